//! What every process that owns regions has, be it a server or a memory node: listeners, threads that serve
//! them, and a one-way door into refusing everything.
//!
//! Invariants:
//! - every request gets one reply, whatever its bytes, and no reply is longer than its client can receive;
//! - a bug met by any thread (a panic) is written to stderr once and turns every later call into a refusal
//!   that says so; the threads go on, so nobody waits for an answer that never comes. The call that met it is
//!   answered by a code of its own, because what it changed is unknown;
//! - a process with nothing to do sleeps.

#![forbid(unsafe_code)]

mod answer;
mod error;
mod failure;
mod listeners;
pub mod process;
mod service;
mod threads;
mod worker;

pub use answer::answer;
pub use error::{ShutdownError, StartError};
pub use failure::Failure;
pub use listeners::Listeners;
pub use service::{Calls, Service};
pub use threads::{Stop, Threads};
pub use worker::Worker;

/// Addresses of one process at most.
pub const LISTENERS_MAX: usize = 16;
/// Worker threads at one address at most.
pub const WORKERS_MAX: usize = 256;
