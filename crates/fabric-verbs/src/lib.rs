//! The fabric over InfiniBand and RoCE: verbs executed by network cards, through libibverbs.
//!
//! Nothing is needed to build this crate: the library is looked for when the first device is ([`devices`]).
//!
//! Invariant: a server's card reads and writes nothing but what the server registered, with the rights that
//! it registered it with, for queue pairs that the server's control thread made. A client's disorder ends
//! that client alone: its queue pairs, receives and control connection are its own.
//!
//! Protocol: a [`VerbsHost`] listens on TCP. A [`VerbsConnection`] shakes hands with it there and is told
//! where regions lie and under which keys. It connects a pair of queue pairs for each [`VerbsQueue`]
//! (`docs/protocol/verbs.md`). READs, WRITEs and atomics of a doorbell go out as one chain with one signalled
//! completion and cost the server's processor nothing. A call is a SEND into receives that all queue pairs of
//! a client share; a worker's [`VerbsPort`] polls them and answers by SEND. The control connection tells each
//! side of the other's end long before a card would find out.
//!
//! A line of a stamped READ is a snapshot on cards that fetch lines whole. On others it is read three times,
//! each beginning after the one before has ended: the stamps, the lines, the stamps. Equal even stamps before
//! and after prove that nobody wrote in between.
//!
//! Trust: with certificates on both sides the control connection is encrypted, and strangers learn no keys.
//! RDMA itself is not: keys, 32 bits each, and data travel in the clear between the cards. Clients with the
//! same certificate are one tenant, with a protection domain of its own: a key opens nothing through a queue
//! pair of another tenant. Without certificates all clients are one.

mod call_frame;
mod client;
mod control;
#[cfg(feature = "hostile")]
pub mod hostile;
mod ibv;
mod server;

use std::time::Duration;

use farsight_fabric::{AtomicUnit, CostClass, Guarantees};
use farsight_fabric_net::KeepAlive;

pub use client::connection::{ConnectOptions, VerbsConnection};
pub use client::queue::VerbsQueue;
pub use ibv::report::{DeviceReport, devices};
pub use server::host::{ListenError, ListenOptions, VerbsHost};
pub use server::port::VerbsPort;

/// Verbs that one batch holds.
const SLOTS: usize = 256;
/// Calls that one queue pair has under way; more wait on the client's side.
const CALLS_MAX: usize = 16;
/// Bytes that a card is asked to take at once from where they are, instead of fetching them later.
const INLINE_BYTES: u32 = 188;
/// A control connection whose peer's machine is silent for 5 s is dead: nothing else tells of that machine's
/// end.
const CONTROL_ALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(1),
    pause: Duration::from_secs(1),
    probes: 4,
    unacknowledged_max: Duration::from_secs(5),
};
/// About as long as a sleep and a wake take: a waiter polls for so long before it sleeps.
const BRIEF: Duration = Duration::from_micros(20);
/// Completions taken at a time.
const COMPLETIONS_PER_POLL: usize = 32;

/// What verbs promise.
const GUARANTEES: Guarantees = Guarantees {
    name: "rdma",
    // Software devices copy words; that cards fetch whole lines is used, and not promised.
    atomic_unit: AtomicUnit::Word,
    read_lines_in_order: false,
    writes_in_order: true,
    // The responder executes requests in their order, and a card's atomic is no posted write.
    atomic_after_write: true,
    read_after_atomic: true,
    write_after_read: false,
    read_before_completion: true,
    // A card's atomics exclude each other. That they exclude the processor's no device here promises.
    atomics_coherent_with_cpu: false,
    one_sided: true,
    read_only_regions: true,
    revocable: true,
    tells_unasked: true,
    connections_break: true,
    cost_class: CostClass::Nic,
};
