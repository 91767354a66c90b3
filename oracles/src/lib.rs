//! What judges, journals and workloads know keys by, and what proves whose a value is.
//!
//! Invariant: a judge names a key by its [`Identity`] alone. An [`Embedding`] maps identities to the keys of
//! a table, and back, at one seam: where a harness calls a session. Identities have the order of their keys,
//! so a judge may judge scans. A new kind of key is a new embedding, and no judge changes.

#![forbid(unsafe_code)]

mod eight_bytes;
mod embedding;
mod identity;
pub mod sets;
mod strings;
pub mod values;

pub use eight_bytes::EightBytes;
pub use embedding::Embedding;
pub use identity::Identity;
pub use strings::Strings;
