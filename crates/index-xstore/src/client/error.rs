//! What can go wrong for a client of one table.

use farsight_fabric::FabricError;
use farsight_index::leaves_calls_unknown;
use farsight_layout::GeometryError;
use farsight_protocol::{DecodeError, ErrorCode, ServerError};

/// A failed read or write. Reads that fail have no effect; for writes see [`XStoreError::is_indeterminate`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum XStoreError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The server refused.
    #[error("the server or memory node refused: {0}")]
    Server(#[from] ServerError),
    /// The server answered with bytes that this version does not understand.
    #[error("the answer is unintelligible: {0}")]
    Decode(#[from] DecodeError),
    /// The table's description is unusable.
    #[error("the table cannot be used: {0}")]
    Table(#[from] GeometryError),
    /// A call whose answer was lost was sent again, and the server does not tell what became of it.
    #[error("the server does not tell what became of a call whose answer was lost: {0}")]
    Lost(ServerError),
    /// This process has no memory for a cache of the table's model.
    #[error("a cache for {sub_models} sub-models, 64 B each, has no memory in this process: give it more")]
    NoMemory {
        /// Sub-models of the model.
        sub_models: u64,
    },
}

impl XStoreError {
    /// True if a write may have been executed although it failed: it was sent, and no answer came, or the
    /// server met a bug in it.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        match self {
            Self::Fabric(error) => leaves_calls_unknown(error),
            Self::Decode(_) | Self::Lost(_) => true,
            Self::Server(error) => error.code == ErrorCode::Bug,
            Self::Table(_) | Self::NoMemory { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_was_not_executed_and_one_that_met_a_bug_may_have_been() {
        let of = |code| XStoreError::Server(ServerError::new(code, "words")).is_indeterminate();
        assert!(of(ErrorCode::Bug));
        assert!(!of(ErrorCode::OutOfResources) && !of(ErrorCode::BadRequest) && !of(ErrorCode::Contended));
    }
}
