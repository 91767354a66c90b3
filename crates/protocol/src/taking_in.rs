//! What a pool's nodes are asked when a new node takes the place of a lost one.
//!
//! The steps, and why nothing that was acknowledged is lost: docs/protocol/flexkv.md.

use farsight_base::LINE_BYTES;
use serde::{Deserialize, Serialize};

use crate::{
    ErrorCode, LostNodes, POOL_DROPPED_MAX, POOL_NODES_MAX, PoolAddresses, PoolPlace, ServerError, Space,
    TableId, TableLayout,
};

/// Bytes of memory that one call brings a new node at most.
pub const TAKEN_BYTES_MAX: usize = 64 * LINE_BYTES;
/// Pieces of it at most.
pub const TAKEN_PIECES_MAX: usize = 64;

/// A step of taking a node in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TakeIn {
    /// To the coordinator: begins an attempt to take a node in. Refused while it hears of another one.
    /// Answered by [`Begun`].
    Begin {
        /// The epochs of the pool's nodes, with that of the new one in the place of a lost one.
        #[serde(with = "crate::exact::words")]
        epochs: Vec<u64>,
        /// How clients reach the pool's nodes then.
        addresses: PoolAddresses,
    },
    /// To the others: there is an attempt of this number, and each later one has a greater one. Answered by
    /// nothing.
    Know {
        /// The attempt.
        attempt: u64,
    },
    /// To the coordinator: the attempt goes on. Answered by nothing.
    Hear {
        /// The attempt.
        attempt: u64,
    },
    /// To the coordinator: lets no compute node in any more, and ends all that are in. It does so while this
    /// hears of the attempt. Answered by a [`Closed`].
    Close {
        /// The attempt.
        attempt: u64,
    },
    /// To the others: ends the compute nodes up to this number, and lets none of them in again. Answered by a
    /// [`Closed`].
    EndFormer {
        /// The attempt.
        attempt: u64,
        /// The number.
        newest: u32,
    },
    /// To the coordinator: gives the compute node its number that takes the node in. Answered by a
    /// [`ComputeNode`](crate::ComputeNode).
    Register {
        /// The attempt.
        attempt: u64,
        /// The nodes that it leaves out.
        lost: LostNodes,
    },
    /// To the new node: forgets what an earlier attempt brought, and begins empty. Answered by nothing.
    Receive {
        /// The attempt, which is later than any that it knows.
        attempt: u64,
        /// Its place in the pool.
        place: PoolPlace,
        /// What names the pool.
        pool: u64,
        /// How many nodes the pool has taken in with it.
        term: u32,
        /// The nodes without which the pool goes on then.
        lost: LostNodes,
        /// How clients reach the pool's nodes then.
        addresses: PoolAddresses,
    },
    /// To the new node: makes a table of the pool. Answered by a [`TableInfo`](crate::TableInfo).
    Table {
        /// The attempt.
        attempt: u64,
        /// The table's number.
        id: TableId,
        /// Its layout.
        layout: TableLayout,
    },
    /// To the new node: memory of a table, as the others have it. Answered by nothing.
    Pieces {
        /// The attempt.
        attempt: u64,
        /// The table.
        table: TableId,
        /// Up to [`TAKEN_PIECES_MAX`], of [`TAKEN_BYTES_MAX`] together.
        pieces: Vec<TakenPiece>,
    },
    /// To the new node: it has all. Answered by nothing.
    Whole {
        /// The attempt.
        attempt: u64,
        /// The greatest number of a compute node that the pool knows.
        newest: u32,
        /// Greater than the number of any table that the pool has or had.
        next_table: u32,
        /// Tables of the pool that it was not brought: they have lost a part. Up to
        /// [`POOL_DROPPED_MAX`](crate::POOL_DROPPED_MAX).
        left: Vec<TableId>,
    },
    /// To the coordinator: the pool has the new node from now on. Answered by a [`Fenced`](crate::Fenced).
    Commit {
        /// The attempt.
        attempt: u64,
    },
    /// To the others: so it has. Refused by a node that goes on without all of those who say so. Answered by
    /// a [`Fenced`](crate::Fenced).
    Adopt {
        /// The epochs of the pool's nodes from now on.
        #[serde(with = "crate::exact::words")]
        epochs: Vec<u64>,
        /// How many nodes the pool has taken in.
        term: u32,
        /// The nodes without which it goes on.
        lost: LostNodes,
        /// The nodes that have said so.
        by: LostNodes,
        /// How clients reach the pool's nodes.
        addresses: PoolAddresses,
    },
}

/// An attempt to take a node in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// Its number.
    pub attempt: u64,
    /// It is ended if the coordinator hears nothing of it for so long.
    pub trusted_us: u32,
}

/// Lines of a region of a new node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TakenPiece {
    /// Which region: the index, or that of blocks.
    pub space: Space,
    /// The first line there.
    pub first_line: u32,
    /// Whole lines.
    pub bytes: Vec<u8>,
}

/// What a node says that ends compute nodes for a new node's sake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Closed {
    /// None up to `newest` is in any more, nor comes again.
    Done {
        /// The greatest number of a compute node that it knows.
        newest: u32,
        /// Greater than the number of any table that it knows.
        next_table: u32,
    },
    /// Not yet.
    Wait {
        /// Before this time has passed another request changes nothing.
        pause_ms: u32,
        /// What is waited for.
        why: String,
    },
}

impl TakeIn {
    /// Refuses bounds that no request of this version exceeds.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let refuse = |text: String| Err(ServerError::new(ErrorCode::BadRequest, text));
        match self {
            Self::Begin { epochs, .. } | Self::Adopt { epochs, .. }
                if !(1..=POOL_NODES_MAX).contains(&epochs.len()) =>
            {
                refuse(format!("a pool has 1 to {POOL_NODES_MAX} nodes, not {}", epochs.len()))
            }
            Self::Receive { place, .. } if !place.is_sound() => refuse(format!(
                "a pool has 1 to {POOL_NODES_MAX} nodes, not {}, and a node's index is below that, not {}",
                place.epochs.len(),
                place.index
            )),
            Self::Begin { epochs, addresses } | Self::Adopt { epochs, addresses, .. } => {
                addresses.check(epochs.len())
            }
            Self::Receive { place, addresses, .. } => addresses.check(place.epochs.len()),
            Self::Whole { left, .. } if left.len() > POOL_DROPPED_MAX => {
                refuse(format!("a call names at most {POOL_DROPPED_MAX} tables, not {}", left.len()))
            }
            Self::Pieces { pieces, .. } => {
                let bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
                let are_whole = pieces.iter().all(|piece| piece.bytes.len().is_multiple_of(LINE_BYTES));
                if pieces.len() <= TAKEN_PIECES_MAX && bytes <= TAKEN_BYTES_MAX && are_whole {
                    return Ok(());
                }
                refuse(format!(
                    "a call brings a new node at most {TAKEN_PIECES_MAX} pieces of whole lines of {LINE_BYTES} \
                     B, {TAKEN_BYTES_MAX} B together, not {} of {bytes} B",
                    pieces.len()
                ))
            }
            _ => Ok(()),
        }
    }
}
