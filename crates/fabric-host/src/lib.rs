//! What the hosts of shared memory, TCP and RDMA share: clients and their ends, ports, regions, quotas, the
//! fields of their control messages, and the system calls of waiting.
//!
//! Invariant: a client is in a host's table from its welcome to its end, whichever comes of it: its own
//! close, a dead peer, a broken rule, a fence. Once a client has ended and none of its requests executes any
//! more, the server is told, once.
//!
//! Protocol of a host:
//! 1. It keeps its clients as [`Session`]s in [`Clients`], together with its epoll and its [`Ports`].
//! 2. Its control thread waits in [`Clients::events`], and answers what the tokens name.
//! 3. A queue of a client goes to the [port](PortHandle) whose turn it is. The port serves it under its
//!    [`Gate`].
//! 4. A client ends by [`Clients::end`]. Its gates close first. Then it hears the [`DisconnectReason`].
//! 5. [`Clients::take_departed`] names the clients that have ended and of which no request executes.

#![forbid(unsafe_code)]

mod clients;
mod disconnect;
mod gate;
mod handshake;
#[cfg(any(loom, shuttle))]
pub mod injected;
pub mod message;
pub mod os;
mod ports;
mod quota;
mod regions;

pub use clients::{
    Clients, FENCE_TIMEOUT, FENCED, FIRST_CONNECTION, LISTENER_TOKEN, Session, Sessions, TURN,
    fence_timed_out,
};
pub use disconnect::{DisconnectQueue, DisconnectReason, Farewell};
pub use gate::{Gate, Gated};
pub use handshake::Handshake;
pub use ports::{PortHandle, Ports};
pub use quota::{Held, Quota, descriptor_limit};
pub use regions::{REGIONS_MAX, RegionTable};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose value stays sound whatever thread panicked while it held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
