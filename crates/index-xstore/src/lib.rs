//! XStore (Wei et al., OSDI 2020): one server with a B+tree and all writes; clients that GET and SCAN by
//! one-sided READs through a learned cache. The steps, orderings and linearization points are in
//! docs/protocol/xstore.md, the bytes in docs/format.md.
//!
//! Invariant: a client's answer follows from stamps, incarnation and fences of the lines that it READ, or
//! from the server. Model, table and hints only say where to look first.

#![forbid(unsafe_code)]

pub mod client;
mod free_runs;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
pub mod server;
