//! What every layer stands on: shared words and stamped lines, which words equal a key, addresses, and the
//! clock. Memory for futures, random numbers, reports to the operator, whether this process serves, and who
//! watches writes.
//!
//! Invariant: memory that another process may write is reached through [`words`] alone. Elsewhere it is a
//! `&[AtomicU64]`, never a `&[u8]` and never a reference to a plain type.

pub mod address;
pub mod clock;
#[cfg(not(any(loom, shuttle)))]
pub mod heap;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
#[cfg(any(loom, shuttle, injected))]
pub mod injection;
pub mod observe;
pub mod pinned;
pub mod prng;
pub mod report;
pub mod search;
pub mod serving;
pub mod sync;
pub mod vectors;
pub mod words;

pub use address::{ClientId, Epoch, LeafNumber, RegionId, RemoteAddress};
pub use words::{LINE_BYTES, Line, Stamp, WORDS_PER_LINE};
