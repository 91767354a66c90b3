//! The contract of engines, and what they share: where reads put their answers, what a session counts, slabs
//! of leaves, and the way a tree knows its leaves.
//!
//! Invariant: nothing here names a provider, and [`registry`] alone names engines.

#![forbid(unsafe_code)]

mod answers;
mod conditional;
mod contention;
mod counters;
mod engine;
mod enumeration;
mod gather;
#[cfg(injected)]
pub mod injected;
mod kept;
mod key;
mod leaf_format;
mod leaf_pairs;
mod old_values;
mod pair_version;
mod record;
mod registry;
mod slab;
mod unfinished;

pub use answers::{Answers, NoDeadline, Pair, PairRoom, Pairs, ShortRoom};
pub use conditional::{Decision, HeldPair, NewValue, Undecided, decide, decide_parts};
pub use contention::{Backoff, Contended, Waited};
pub use counters::Counters;
pub use engine::{
    Access, CachePolicy, CacheStats, Engine, EngineError, MixedWrites, NoByteKeys, NoEnumeration,
    NoWritesForOthers, Ordered, ReadsByOthers, ScanRequest, ValueCache, Writes, leaves_calls_unknown,
};
pub use enumeration::{EnumeratedPage, Enumeration, FoundPair, FoundPairs};
pub use farsight_protocol::Direction;
pub use gather::{distinct, gather};
pub use kept::{Buffer, KEPT_BYTES_MAX, Kept, Lent, clear_kept};
pub use key::{Key, OwnedKey};
pub use leaf_format::{LatchedLeaf, LeafAnswer, LeafFormat, LeafListener, LeafSpan, Place, Room};
pub use leaf_pairs::{ConsistentLeaf, Extent, key_behind, wanted_pairs};
pub use old_values::OldValues;
pub use pair_version::PairVersion;
pub use record::{model_of, record_of};
pub use registry::{
    EngineKind, Engines, FlexKv, Registered, Registry, Rolex, UnfitTable, UnknownEngine, XStore, XStoreD,
};
pub use slab::{RegionFull, Slab};
pub use unfinished::{Author, LostCall, Unfinished, UnfinishedShare};
