//! Rare requests, in postcard: the catalogue, statistics, a pool's blocks, members and fences.

use farsight_layout::hash_index::{HASH_PARTITIONS, OBJECT_LINES_MAX};
use serde::{Deserialize, Serialize};

use crate::request::decode_whole;
use crate::{
    Blocks, Claim, ComputeNode, DecodeError, ENGINE_NAME_BYTES_MAX, ErrorCode, LockSeen, LostNodes, NodeLife,
    ObjectMemory, POOL_BLOCKS_MAX, POOL_DROPPED_MAX, POOL_NODES_MAX, PROXY_ADDRESS_BYTES_MAX, PoolAddresses,
    PoolPlace, ProxyOffer, Recalled, ServerError, Space, TableId, TableLayout, TakeIn, WriteLoad,
};

/// Requests in postcard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Which epoch has this node, and which pool? Answered by a [`NodeHello`](crate::NodeHello).
    Hello,
    /// To the coordinator: gives this connection's compute node its number. Refused if the pool goes on
    /// without other nodes than these. Answered by a [`ComputeNode`].
    Register {
        /// The nodes that the compute node leaves out.
        lost: LostNodes,
    },
    /// To the others: this connection is that compute node's, of the pool whose coordinator has this
    /// epoch. Refused once it is fenced. Answered by nothing.
    Announce {
        /// The coordinator's epoch.
        coordinator: u64,
        /// Its number.
        compute_node: ComputeNode,
        /// The nodes that it leaves out.
        lost: LostNodes,
    },
    /// Renews what this compute node believes of its pool: which nodes go on. Answered by how many
    /// microseconds it may do so from when it sent this, a `u32`; by 0 if the pool goes on without others.
    Renew {
        /// The nodes that it leaves out.
        lost: LostNodes,
        /// All others have answered it the last time.
        is_whole: bool,
    },
    /// Has the pool go on without these nodes, as this one sees to it. Answered by a
    /// [`LeftOut`](crate::LeftOut).
    LeaveOut {
        /// The nodes.
        lost: LostNodes,
        /// How many nodes the pool has taken in, as its list of epochs has them.
        term: u32,
    },
    /// Makes a table, or finds the one of the same definition (boundaries aside, which the coordinator
    /// keeps): at the coordinator, which numbers it, then at the others with that number. Answered by a
    /// [`TableInfo`](crate::TableInfo).
    CreateTable {
        /// Its layout.
        layout: TableLayout,
        /// The node's place in the client's list.
        place: PoolPlace,
        /// Its number; none at the coordinator.
        id: Option<TableId>,
    },
    /// Finds a table by name. Answered by a [`TableInfo`](crate::TableInfo).
    OpenTable(String),
    /// To the coordinator: ends the table of this name. Its number leads nowhere from now on, and its regions
    /// are withdrawn. Answered by nothing.
    DropTable(String),
    /// To the coordinator: gives a table another name. Answered by nothing.
    RenameTable {
        /// Its name so far.
        from: String,
        /// Its name from now on, which no table has.
        to: String,
    },
    /// To the coordinator: two tables exchange their names, at one instant. Answered by nothing.
    SwapTables {
        /// The name of one.
        first: String,
        /// The name of the other.
        second: String,
    },
    /// How often tables of this node were dropped, renamed or swapped: the number of which fabrics tell its
    /// clients. Answered by a `u64`.
    NameChanges,
    /// Makes this session an author of calls ([`CallId`](crate::CallId)). Answered by a `u64`, its number.
    BeginAuthor,
    /// What time is it, by the clock by which pairs end here? Answered by a `u64`, the milliseconds since
    /// 1970.
    Time,
    /// To the coordinator: tables that were dropped there, and at the other nodes perhaps not yet. Answered
    /// by a `Vec<TableId>` of at most [`POOL_DROPPED_MAX`], empty if there are none.
    DroppedTables,
    /// To the others: ends these tables, which were dropped at the coordinator; none of them is made there
    /// again. Then to the coordinator: all nodes have done so. Answered by nothing.
    ForgetTables(Vec<TableId>),
    /// The tables whose numbers are not below `from`, in their order. Answered by a `Vec<TableInfo>` of as
    /// many as a reply carries, empty if there are none.
    ListTables {
        /// The least number.
        from: TableId,
    },
    /// Gives this connection's compute node blocks that nobody uses. Of leaves it may be fewer than asked
    /// for, of lines it is all. Answered by [`Blocks`].
    Allocate {
        /// The table.
        table: TableId,
        /// What is wanted.
        space: Space,
        /// How many, up to [`POOL_BLOCKS_MAX`] leaves.
        count: u32,
    },
    /// Gives back those of the blocks that are this connection's compute node's under this claim; nothing
    /// leads to them any more. Answered by their number, a `u64`.
    Free {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// How they became the compute node's.
        claim: Claim,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Takes given blocks from their owners and gives them to this connection's compute node. It saw them in
    /// use after this node had told it of `known`, and alone may free them from now on. It gets none of them
    /// if a block of the space has become free since then. A block that is free is refused. Answered by
    /// [`Adopted`](crate::Adopted).
    Adopt {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// The newest claim that the compute node had heard of.
        known: Claim,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Makes those of the blocks that are this connection's compute node's under this claim the table's own:
    /// nobody frees them any more, unless they are adopted. Answered by nothing.
    Pin {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// How they became the compute node's.
        claim: Claim,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Compute nodes that have ended and left blocks that may be in use or not. Answered by a
    /// `Vec<ComputeNode>` of at most [`POOL_ENDED_MAX`](crate::POOL_ENDED_MAX), empty if there are none.
    Ended {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
    },
    /// Takes over blocks of a compute node that has ended: who takes them, and has fenced it at every node,
    /// finds out which are in use, and frees the others. Answered by [`TakenBlocks`](crate::TakenBlocks) of
    /// at most [`POOL_BLOCKS_MAX`] blocks, none if there are none.
    TakeOrphans {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// Whose they were.
        of: ComputeNode,
    },
    /// Gives this connection's compute node memory for objects, after taking note of what became of other
    /// memory. Answered by an [`ObjectGrant`](crate::ObjectGrant) of at most `count` pieces, at least one
    /// unless `count` is 0 or the shard has to be settled first.
    ExchangeObjects {
        /// The table.
        table: TableId,
        /// The shard whose memory that is; this node is its head.
        shard: u8,
        /// Lines of each of those that are wanted.
        lines: u8,
        /// How many, up to [`POOL_BLOCKS_MAX`].
        count: u16,
        /// What this compute node was given and slots name now, or named. Up to [`POOL_BLOCKS_MAX`].
        published: Vec<ObjectMemory>,
        /// What no slot names any more, or never will. Up to [`POOL_BLOCKS_MAX`].
        freed: Vec<ObjectMemory>,
    },
    /// Says that all replicas of a shard have what its head had when it requested that. Answered by nothing.
    Settled {
        /// The table.
        table: TableId,
        /// The shard; this node is its head.
        shard: u8,
        /// The number under which it has asked.
        number: u32,
    },
    /// Says that no connection of these compute nodes is left at any node, which an
    /// [`ObjectGrant`](crate::ObjectGrant) named. Answered by nothing.
    FencedOwners {
        /// The table.
        table: TableId,
        /// The shard; this node is its head.
        shard: u8,
        /// Up to [`POOL_ENDED_MAX`](crate::POOL_ENDED_MAX) of them.
        owners: Vec<ComputeNode>,
    },
    /// Asks for the two units into which a subtable of a hash table's index is to be split. Answered by a
    /// [`SplitGrant`](crate::SplitGrant).
    BeginSplit {
        /// The table.
        table: TableId,
        /// The partition, one of this node's.
        partition: u16,
        /// The subtable's number in its partition's directory.
        subtable: u16,
    },
    /// Says that units which this compute node was given are named by the directory, or will not be, and that
    /// it writes them no more. Answered by nothing.
    EndSplit {
        /// The table.
        table: TableId,
        /// The shard of its partition.
        shard: u8,
        /// The units.
        units: [u32; 2],
    },
    /// Ends every connection of that compute node with this node. Refused for the lock of a number that
    /// nobody has, or had, here. Answered by a [`Fenced`](crate::Fenced).
    Fence {
        /// The coordinator's epoch.
        coordinator: u64,
        /// Its number.
        compute_node: ComputeNode,
        /// The lock of a leaf of this node for whose lease it is fenced. Without one, nothing is done that
        /// costs it more than connections.
        seen: Option<LockSeen>,
    },
    /// Statistics of the node. Answered by a [`NodeStats`](crate::NodeStats) without tables.
    Stats,
    /// Statistics of the tables whose numbers are not below `from`, in their order. Answered by a
    /// `Vec<TableStats>` of as many as a reply carries, empty if there are none.
    TableStats {
        /// The least number.
        from: TableId,
    },
    /// Waits for nothing and trains what is pending; answered at once with the pending count as `u64`.
    PendingTraining,
    /// Begins a snapshot of each table, in the node's directory of data. Answered by the number of this round
    /// of snapshots, a `u64`; refused without a directory.
    BeginSnapshots,
    /// Whether the snapshots of a round are made. Answered by a `bool`; refused if they failed.
    AreSnapshotsMade {
        /// The round.
        round: u64,
    },
    /// Which life of its directory of data is this, and which of the other nodes' were met? Answered by
    /// [`NodeLives`](crate::NodeLives).
    Lives,
    /// Whether the directory of data has had this life. Answered by a `bool`.
    HasLived(NodeLife),
    /// These are the lives of the pool's nodes, in their order, with which a client works: the node keeps
    /// them. Refused if one is of another copy of a directory than that which it has met. Answered by
    /// nothing.
    Meet(Vec<NodeLife>),
    /// To the coordinator: this connection's compute node would write for others, or goes on to. Answered by
    /// a [`ProxyLease`](crate::ProxyLease).
    OfferProxy(ProxyOffer),
    /// To the coordinator: which compute nodes write for others in this table? Answered by a `Vec<Proxy>`
    /// ([`Proxy`](crate::Proxy)) of at most [`PROXIES_MAX`](crate::PROXIES_MAX).
    Proxies {
        /// The table.
        table: TableId,
        /// What this process has written there since it last asked.
        load: WriteLoad,
    },
    /// This connection's compute node keeps values of the table, or is about to: it trusts no lease on this
    /// node's keys that began before the answer. Answered by nothing.
    KeepValues {
        /// The table.
        table: TableId,
    },
    /// Has this connection's compute node told what is recalled, and says what it has let go of. Answered
    /// [later](crate::Recalls), once there is something; not while there is nothing.
    AwaitRecalls {
        /// The table.
        table: TableId,
        /// It gives nothing out any more that recalls up to this one's number are of. Zero: none yet.
        let_go: u64,
    },
    /// Has all others who keep values of the table give none out that were noted when a counter of closings
    /// was below this. This compute node gives none out itself. Answered later by a `bool`: true if nobody
    /// does any more, false if somebody may until its leases are over.
    Recall {
        /// The table.
        table: TableId,
        /// Which counter.
        recalled: Recalled,
    },
    /// A step of taking a new node in, in place of a lost one.
    TakeIn(TakeIn),
    /// To the coordinator: gives this connection's compute node another number, beside those that it has.
    /// Refused as [`ControlRequest::Register`], and once it has
    /// [`POOL_NUMBERS_MAX`](crate::POOL_NUMBERS_MAX) of them. Answered by a [`ComputeNode`].
    RegisterAgain {
        /// The nodes that the compute node leaves out.
        lost: LostNodes,
    },
    /// To the others: this connection's compute node has that number, too. Refused as
    /// [`ControlRequest::RegisterAgain`]. Answered by nothing.
    AnnounceAgain {
        /// The coordinator's epoch.
        coordinator: u64,
        /// The number that it got.
        compute_node: ComputeNode,
        /// The nodes that it leaves out.
        lost: LostNodes,
    },
    /// What does this node know of the map of its pool? Answered by a [`PoolMap`](crate::PoolMap).
    Map,
    /// By these addresses clients reach the nodes of the pool. A node believes it that belongs to a pool of
    /// so many nodes, has this list of them, and was told no addresses before. Answered by nothing.
    TellAddresses {
        /// How many nodes the pool has taken in, as its list of epochs has them.
        term: u32,
        /// The addresses.
        addresses: PoolAddresses,
    },
}

impl ControlRequest {
    /// Decodes a request's body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not one.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        decode_whole("a control request", body)
    }

    /// Refuses bounds that no request of this version exceeds.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`].
    pub fn check(&self) -> Result<(), ServerError> {
        let refuse = |text: String| Err(ServerError::new(ErrorCode::BadRequest, text));
        match self {
            Self::CreateTable { place, .. } if !place.is_sound() => refuse(format!(
                "a pool has 1 to {POOL_NODES_MAX} nodes, not {}, and a node's index is below that, not {}",
                place.epochs.len(),
                place.index
            )),
            Self::CreateTable { layout, .. } if layout.engine.name.len() > ENGINE_NAME_BYTES_MAX => {
                refuse(format!(
                    "an engine has a name of at most {ENGINE_NAME_BYTES_MAX} B; that of {:?} has {}",
                    layout.definition.name,
                    layout.engine.name.len()
                ))
            }
            Self::Allocate { space: Space::Leaves, count, .. }
                if !(1..=POOL_BLOCKS_MAX).contains(&(*count as usize)) =>
            {
                refuse(format!("a call gives 1 to {POOL_BLOCKS_MAX} leaves, not {count}"))
            }
            Self::ForgetTables(tables) if tables.len() > POOL_DROPPED_MAX => refuse(format!(
                "a call names at most {POOL_DROPPED_MAX} dropped tables, not {}",
                tables.len()
            )),
            Self::Meet(lives) if lives.len() > POOL_NODES_MAX => {
                refuse(format!("a pool has 1 to {POOL_NODES_MAX} nodes, not {}", lives.len()))
            }
            Self::Allocate { count: 0, .. } => refuse("no lines were requested".to_owned()),
            Self::Free { blocks, .. } | Self::Adopt { blocks, .. } | Self::Pin { blocks, .. }
                if blocks.len() > POOL_BLOCKS_MAX =>
            {
                refuse(format!("a call names at most {POOL_BLOCKS_MAX} runs, not {}", blocks.len()))
            }
            Self::ExchangeObjects { count, published, freed, .. }
                if usize::from(*count).max(published.len()).max(freed.len()) > POOL_BLOCKS_MAX =>
            {
                refuse(format!(
                    "a call gives, or names, at most {POOL_BLOCKS_MAX} objects, not {count}, {} and {}",
                    published.len(),
                    freed.len()
                ))
            }
            Self::OfferProxy(offer) if offer.address.len() > PROXY_ADDRESS_BYTES_MAX => refuse(format!(
                "a compute node that serves has an address of at most {PROXY_ADDRESS_BYTES_MAX} B, not {}",
                offer.address.len()
            )),
            Self::OfferProxy(offer) if offer.heat.len() > HASH_PARTITIONS => refuse(format!(
                "an index has {HASH_PARTITIONS} partitions, and an offer tells of {} of them",
                offer.heat.len()
            )),
            Self::OfferProxy(ProxyOffer { percent: Some(percent @ 101..), .. }) => {
                refuse(format!("partitions are offloaded in part or all, and {percent} percent are more"))
            }
            Self::Proxies { load, .. } if load.own.len() > HASH_PARTITIONS => refuse(format!(
                "an index has {HASH_PARTITIONS} partitions, and a client tells of {} of them",
                load.own.len()
            )),
            Self::ExchangeObjects { lines, .. } if !(1..=OBJECT_LINES_MAX).contains(lines) => {
                refuse(format!("an object has 1 to {OBJECT_LINES_MAX} lines, not {lines}"))
            }
            Self::TakeIn(step) => step.check(),
            Self::TellAddresses { addresses, .. } if addresses.0.len() > POOL_NODES_MAX => {
                refuse(format!("a pool has 1 to {POOL_NODES_MAX} nodes, not {}", addresses.0.len()))
            }
            Self::TellAddresses { addresses, .. } => addresses.check(addresses.0.len()),
            _ => Ok(()),
        }
    }
}
