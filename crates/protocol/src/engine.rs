//! Which engine works with a table, as the table's nodes keep it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of an engine's name at most.
pub const ENGINE_NAME_BYTES_MAX: usize = 16;

/// How a table is worked with. Nodes and clients look the name up in their registries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableEngine {
    /// The engine's name, up to [`ENGINE_NAME_BYTES_MAX`].
    pub name: String,
    /// The least key of each node's range but the first node's, ascending. Empty for one node, and for an
    /// engine without ranges.
    #[serde(with = "crate::exact::words")]
    pub boundaries: Vec<u64>,
}

impl TableEngine {
    /// True for the same engine, wherever its ranges begin.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for TableEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}
