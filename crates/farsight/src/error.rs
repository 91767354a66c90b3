//! Errors of connecting and of opening tables. Those of reads, writes and loads come from the client as they
//! are.

use farsight_client::{CatalogueError, RepairError};
use farsight_cluster::ClusterError;
use farsight_fabric::FabricError;
use farsight_protocol::KeyKind;

use crate::{ServerUrl, UrlError};

/// A failure to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The text is no server's address.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The server could not be reached, or refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// What answered is neither a server nor the memory nodes of a pool, or could not be asked.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The pool of this name is not found.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The nodes that have a name listen at no fabric that all of them have.
    #[error("the nodes of {name} listen at no fabric in common: {nodes:?}")]
    NoCommonFabric {
        /// The name.
        name: String,
        /// The addresses of each.
        nodes: Vec<Vec<String>>,
    },
    /// Memory nodes over several fabrics.
    #[error("{first} and {second} are of different fabrics: a client reaches all nodes of a pool over one")]
    MixedFabrics {
        /// One address.
        first: ServerUrl,
        /// Another.
        second: ServerUrl,
    },
}

/// A failure to take new nodes into a pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolRepairError {
    /// The addresses are none of a pool.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A step failed.
    #[error(transparent)]
    Repair(#[from] RepairError),
}

/// A failure to make or open a table with keys of a certain kind.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The server refused, or could not be asked.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The table's keys are of another kind.
    #[error("table {table:?} has keys of kind {got}, the program opens it with {expected}")]
    KeyKind {
        /// The table.
        table: String,
        /// The kind requested.
        expected: KeyKind,
        /// The kind that the table has.
        got: KeyKind,
    },
    /// A value size that no table can have.
    #[error(
        "table {table:?} cannot have values of {got_bytes} B: the format takes {min_bytes} to {max_bytes} B"
    )]
    ValueSize {
        /// The table.
        table: String,
        /// The size requested.
        got_bytes: usize,
        /// The least that the format takes.
        min_bytes: usize,
        /// The most that the format takes.
        max_bytes: usize,
    },
}
