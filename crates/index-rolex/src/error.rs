//! What can go wrong in an operation on a pool.

use std::error::Error;
use std::time::Duration;

use farsight_fabric::FabricError;

use crate::{LeafPlace, LearnedError};

/// A failure of one operation. But for [`RolexError::Indeterminate`], a write that ends so changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum RolexError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The learned index could not be fetched.
    #[error(transparent)]
    Learned(#[from] LearnedError),
    /// A write was under way when the fabric failed: it may have happened or not.
    #[error("whether the write of key {key} happened is unknown: {source}")]
    Indeterminate {
        /// The key.
        key: u64,
        /// What failed.
        source: FabricError,
    },
    /// A leaf stayed locked or kept changing beyond the bound.
    #[error("key {key}: {place} stayed busy for {waited:?}{}", held_by(.holder.as_ref()))]
    Contended {
        /// The key of the operation.
        key: u64,
        /// The leaf.
        place: LeafPlace,
        /// How long the operation waited in all.
        waited: Duration,
        /// The compute node that holds its lock, and why that was not taken over.
        holder: Option<(u32, String)>,
    },
    /// The leaves lead nowhere: the pool's memory was overwritten by something else.
    #[error("key {key}: {place} leads nowhere after {steps} steps (found {found})")]
    Astray {
        /// The key of the operation.
        key: u64,
        /// The last leaf looked at.
        place: LeafPlace,
        /// Leaves looked at.
        steps: u32,
        /// What it was.
        found: &'static str,
    },
    /// A memory node refused a request of the operation. What the fabric failed in is [`RolexError::Fabric`].
    #[error("{what}: {source}")]
    Call {
        /// What was requested.
        what: &'static str,
        /// Its answer.
        source: Box<dyn Error + Send + Sync>,
    },
}

fn held_by(holder: Option<&(u32, String)>) -> String {
    let words = |(owner, why): &(u32, String)| format!(": compute node {owner} holds its lock, and {why}");
    holder.map(words).unwrap_or_default()
}

impl RolexError {
    /// What a failed request means to the operation that made it.
    pub(crate) fn of_call(what: &'static str, source: Box<dyn Error + Send + Sync>) -> Self {
        match source.downcast::<FabricError>() {
            Ok(error) => Self::Fabric(*error),
            Err(source) => Self::Call { what, source },
        }
    }
}
