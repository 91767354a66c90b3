//! What can be wrong with a pool as a whole.

use farsight_base::Epoch;
use farsight_protocol::LostNodes;

/// The places of nodes, counted from one.
fn places(lost: LostNodes) -> String {
    let places: Vec<String> =
        (0..16).filter(|place| lost.contains(*place)).map(|place| (place + 1).to_string()).collect();
    places.join(", ")
}

/// A list of memory nodes that is no pool, or not the pool that it was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// No addresses, or too many.
    #[error("a pool has 1 to {max} memory nodes, not {got}")]
    Count {
        /// The most that a pool has.
        max: usize,
        /// Addresses given.
        got: usize,
    },
    /// A node that is none of the pool that others go on with.
    #[error(
        "memory node {peer} is not node {place} of the pool that goes on: give the addresses of its nodes, in their order"
    )]
    NotOfPool {
        /// Its address.
        peer: String,
        /// Its place in the list.
        place: usize,
    },
    /// All nodes that had a part of the table are lost.
    #[error(
        "table {table:?} cannot be used: its pool of {nodes} nodes goes on without nodes {}, and it may have pairs on \
         them alone", places(*lost)
    )]
    Lost {
        /// The table.
        table: String,
        /// The nodes.
        lost: LostNodes,
        /// How many there were.
        nodes: usize,
    },
    /// Names and tables are not changed without all nodes.
    #[error(
        "no table can be {changed}: the pool of {nodes} nodes goes on without nodes {}. Start new ones in their \
         places, and take them in with `farsight repair`", places(*lost)
    )]
    Incomplete {
        /// What was to be done with a table.
        changed: &'static str,
        /// The nodes.
        lost: LostNodes,
        /// How many there were.
        nodes: usize,
    },
    /// A fabric that does not keep what ROLEX's compute nodes need: WRITEs in order, READs behind atomics.
    #[error(
        "the fabric {name} does not keep the order of WRITEs and of READs behind atomics, which ROLEX needs: make the \
         table with XStore-D"
    )]
    Fabric {
        /// The fabric.
        name: &'static str,
    },
    /// Something that only ROLEX's tables have was asked of another.
    #[error("table {table:?} is not of ROLEX: its memory nodes train it themselves")]
    NotRolex {
        /// The table.
        table: String,
    },
    /// Two addresses of one node.
    #[error(
        "{first} and {second} are the same memory node, or have copies of one directory of data: a pool names each of \
         its nodes once"
    )]
    SameNode {
        /// One address.
        first: String,
        /// The other.
        second: String,
    },
    /// Addresses of two pools.
    #[error(
        "{first} and {second} are nodes of different pools, or servers that have tables alone: a client has one"
    )]
    TwoPools {
        /// The address of a node of one.
        first: String,
        /// And of the other.
        second: String,
    },
    /// A pool that is not reached over the fabric of the addresses that were given.
    #[error(
        "node {} of the pool has no address that begins with {scheme:?}: give the addresses of all nodes of the pool",          place + 1
    )]
    NoAddress {
        /// Its place.
        place: usize,
        /// What its address is to begin with.
        scheme: String,
    },
    /// What a node says of its pool cannot be.
    #[error("{peer} describes a pool that cannot be")]
    UnsoundMap {
        /// Its address.
        peer: String,
    },
    /// A memory node was started again: what the pool's tables had there is lost, and with it the tables.
    #[error(
        "memory node {peer} was started again ({is}, it was {was}) and has lost its part of every table: start all \
         nodes of the pool again and load the tables anew"
    )]
    NodeRestarted {
        /// Its address.
        peer: String,
        /// The epoch in which it joined the pool.
        was: Epoch,
        /// Its epoch now.
        is: Epoch,
    },
    /// A node that keeps its tables in a directory came without it.
    #[error(
        "memory node {peer} was started with a directory of data that is not of this pool (node {is}, it was node \
         {was}): start it with --data and the directory that it had"
    )]
    OtherDirectory {
        /// Its address.
        peer: String,
        /// The epoch of the first life of the pool's directory.
        was: Epoch,
        /// That of the directory which it has now.
        is: Epoch,
    },
    /// A node came with an old copy of its directory.
    #[error(
        "memory node {peer} was started with an old copy of its directory of data: {witness} has met its life {number} \
         with {epoch}, which this copy never had. Start it with the newest directory, or all nodes with backups \
         of one time"
    )]
    OldDirectory {
        /// Its address.
        peer: String,
        /// Who met it.
        witness: String,
        /// The life that was met.
        number: u64,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Some nodes keep their tables on disks, others do not.
    #[error(
        "memory node {without} keeps its part of every table in memory alone, and {with} in a directory of data: start \
         all nodes of a pool with --data, or none"
    )]
    SomeInMemory {
        /// One with a directory.
        with: String,
        /// One without.
        without: String,
    },
    /// A node that stands elsewhere in the list of its pool, or in another pool.
    #[error(
        "memory node {peer} is number {} of a pool of {count}, here it is number {} of {got_count}, or stands beside \
         other nodes: give the addresses of all {count} nodes, and of no others. A directory of data is one node's",
        .index + 1,
        .got_index + 1
    )]
    OtherList {
        /// Its address.
        peer: String,
        /// Its index in its pool, from 0; in words it is numbered from 1.
        index: usize,
        /// Nodes of its pool.
        count: usize,
        /// Its index in this list, from 0.
        got_index: usize,
        /// Nodes of this list.
        got_count: usize,
    },
    /// What a memory node says of a table cannot be.
    #[error(
        "memory node {peer} describes table {table:?} otherwise than the pool's others, or beyond its regions"
    )]
    Unsound {
        /// Its address.
        peer: String,
        /// The table.
        table: String,
    },
}
