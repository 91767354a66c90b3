//! Why a baseline could not answer.

use farsight_fabric::FabricError;
use farsight_layout::GeometryError;

/// What ends an operation of a baseline.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The table's value size is outside the format.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The leaves READ do not tile the keys: the table changed meanwhile.
    #[error("leaf {leaf} of {leaf_count}: expected the low fence {expected}, got {got:?}")]
    NotTiled {
        /// The leaf's place in key order.
        leaf: usize,
        /// Leaves found.
        leaf_count: usize,
        /// The high fence of the leaf before.
        expected: u64,
        /// The low fence found; `None`: the keys end before the greatest key.
        got: Option<u64>,
    },
    /// The tree leads to leaves that split or moved too often since it was fetched.
    #[error("key {key}: not found in {reads} READs; the tree is too old, fetch it again")]
    Stale {
        /// The key.
        key: u64,
        /// READs spent.
        reads: usize,
    },
}
