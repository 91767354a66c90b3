//! FlexKV, one-sided: a hash index and objects in a memory pool, which compute nodes read and write without
//! any processor of the pool.
//!
//! Invariants:
//! - a key is in the table exactly if one slot of its two combined buckets is live and leads to its object;
//! - no two live slots have one key;
//! - an object does not change while a slot names it, and the word of a slot does not recur
//!   ([`farsight_layout::hash_index`]).
//!
//! A GET reads both buckets, then the objects that they name by the key's fingerprint. It took effect when
//! the slot was read.
//!
//! Protocol of a write, none of whose steps needs a lock:
//! 1. READ both buckets; beside that WRITE the new object into memory that nobody else knows.
//! 2. READ the objects of the key's fingerprint. Decide what is to be done.
//! 3. The key is there: compare its slot with the word that was read, and swap it for the new object's or for
//!    zero. That is the write's effect. Another word came first: begin again.
//! 4. The key is not there: insert it ([`insert`]). There is no room: split the subtable first ([`split`]).
//! 5. The object that was replaced is freed by its node's processor, many with one call ([`stock`]).
//!
//! A key that was seen lately takes fewer steps: its address is remembered ([`addresses`]) and compared with
//! its slot, by the same verbs that use it ([`recall`]).
//!
//! A compute node may keep values, and give them out without a verb ([`values`]). Who replaces one waits
//! until nobody does so any more ([`closing`]).
//!
//! Pairs may have deadlines, at which they end by themselves ([`expiry`]).
//!
//! All pairs are found partition by partition, while others write and split ([`enumerate`]).
//!
//! What a compute node leaves that ends between any two steps: an object that no slot names, or a slot that
//! is reserved. Its node finds both, and frees them.

#![forbid(unsafe_code)]

mod addresses;
mod chain;
mod closing;
mod combine;
mod copy;
mod directory;
mod doubts;
mod engine;
mod enumerate;
mod error;
mod expiry;
mod for_others;
mod found_elsewhere;
mod get;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
mod insert;
mod look;
mod object;
mod overtaken;
mod proxied;
mod recall;
mod remove;
mod replace;
mod row;
mod session;
mod settle;
mod split;
mod stock;
mod table;
mod values;
mod versions;
mod write;

pub use addresses::Addresses;
pub use copy::{BroughtAhead, CopyFor, CopySink};
pub use engine::FlexEngine;
pub use enumerate::EnumerationFault;
pub use error::FlexError;
pub use proxied::{ProxyCall, ProxyCalls, ProxyFailure};
pub use session::FlexSession;
pub use stock::{CallResult, ObjectCalls, Stock};
pub use table::{FlexNode, FlexTable, UnsoundTable};
pub use values::Values;
