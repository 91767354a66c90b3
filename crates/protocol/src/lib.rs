//! What clients and servers say to each other over a fabric's calls: requests, replies, the catalogue of
//! tables, error codes. Their bytes stand in docs/format.md, the steps in which they are used in
//! docs/protocol/xstore.md.
//!
//! Invariant: a decoder accepts exactly what the encoder of the same version writes, but for padding, the
//! unused half of a hint's word and over-long postcard numbers. It answers everything else with a
//! [`DecodeError`] that names what, where, expected and got. Frames are private copies when they are decoded;
//! every length is checked before it is believed.
//!
//! Data frames (reads, writes, models) are fixed little-endian words, because millions of them travel each
//! second. Control messages (tables, statistics) are postcard: a stable, published format.

#![forbid(unsafe_code)]

mod call_id;
mod catalogue;
mod control;
mod delegated_entries;
mod direction;
mod engine;
mod error;
pub mod exact;
mod find;
mod former_layouts;
mod operand;
mod outcome;
mod pool;
mod pool_map;
mod proxies;
mod proxy_pace;
mod recalls;
mod reply;
mod request;
mod staged;
mod stats;
mod taking_in;
mod value_entries;
mod wire;

pub use call_id::{AuthorId, CALLS_UNANSWERED_MAX, CallId, ENVELOPE_BYTES};
pub use catalogue::{
    Ack, Expiry, KeyKind, RegionInfo, TABLE_NAME_BYTES_MAX, TableDefinition, TableId, TableInfo, TableLayout,
    VALUE_TYPE_BYTES_MAX, ValueKind, check_table_name,
};
pub use control::ControlRequest;
pub use delegated_entries::{DelegatedEntries, DelegatedEntry};
pub use direction::Direction;
pub use engine::{ENGINE_NAME_BYTES_MAX, TableEngine};
pub use error::{DecodeError, ErrorCode, ServerError};
pub use find::{FindWanted, SentAddress};
pub use operand::Operand;
pub use outcome::{EXPECTED_VERSION_BYTES, INTEGER_BYTES, SentOutcome, WriteOperation, WriteOutcome};
pub use pool::{
    Adopted, Blocks, Claim, ComputeNode, Fenced, LEASE_MAX, LeftOut, LockSeen, LostNodes, NodeHello,
    NodeLife, NodeLives, ObjectGrant, ObjectMemory, POOL_BLOCKS_MAX, POOL_DROPPED_MAX, POOL_ENDED_MAX,
    POOL_NODES_MAX, POOL_NUMBERS_MAX, PoolPlace, Space, SplitGrant, TakenBlocks,
};
pub use pool_map::{ADDRESS_BYTES_MAX, NODE_ADDRESSES_MAX, POOL_ADDRESSES_BYTES_MAX, PoolAddresses, PoolMap};
pub use proxies::{
    PROXIES_MAX, PROXY_ADDRESS_BYTES_MAX, Proxy, ProxyLease, ProxyOffer, ServedWork, WriteLoad,
};
pub use proxy_pace::ProxyPace;
pub use recalls::{RECALLS_MAX, Recalled, Recalls};
pub use reply::{
    ModelReader, PairsReader, Reply, ReplyWriter, SentBranch, SentModel, SentPair, SentSubModel,
};
pub use request::{DELEGATE_BYTES, Request, SubModelsWanted, WriteEntries, WriteEntry, padded};
pub use staged::{PIECE_HEAD_BYTES, StagedWrite, ValuePiece};
pub use stats::{
    BlockSpaceStats, DataStats, HashIndexStats, ListenerStats, MemoryStats, ModelStats, NodeStats, PartStats,
    SnapshotStats, SpaceStats, TableStats, TreeStats,
};
pub use taking_in::{Begun, Closed, TAKEN_BYTES_MAX, TAKEN_PIECES_MAX, TakeIn, TakenPiece};
pub use value_entries::{VALUE_ENTRY_HEAD_BYTES, ValueEntries};
pub use wire::Words;

/// Bytes of a request's and a reply's header.
pub const HEADER_BYTES: usize = 16;
/// Operations that one call carries at most.
pub const OPERATIONS_MAX: usize = 1024;
/// Children of a branch at most.
pub const BRANCH_CHILDREN_MAX: usize = 64;
/// Branches on the way from one of the top model's numbers to a sub-model, at most.
pub const BRANCH_LEVELS_MAX: usize = 8;
