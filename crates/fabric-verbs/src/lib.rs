//! The fabric over InfiniBand and RoCE: verbs executed by network cards, through libibverbs.
//!
//! Without the feature `verbs` this crate is empty. With it nothing more is needed to build: the library is
//! looked for when the first device is ([`devices`]).
//!
//! Invariant: a server's card reads and writes nothing but what the server registered, with the rights that
//! it registered it with, for queue pairs that the server's control thread made. A client's disorder ends
//! that client alone: its queue pairs, receives and control connection are its own.
//!
//! Protocol: a [`VerbsHost`] listens on TCP; a [`VerbsConnection`] shakes hands with it there, is told where
//! regions lie and under which keys, and connects a pair of queue pairs for each [`VerbsQueue`]
//! (`docs/protocol/verbs.md`). READs, WRITEs and atomics of a doorbell go out as one chain with one signalled
//! completion and cost the server's processor nothing. A call is a SEND into receives that all queue pairs of
//! a client share; a worker's [`VerbsPort`] polls them and answers by SEND. The control connection tells each
//! side of the other's end long before a card would find out.
//!
//! A line of a stamped READ is a snapshot on cards that fetch lines whole. On others it is read three times,
//! each beginning after the one before has ended: the stamps, the lines, the stamps. Equal even stamps before
//! and after prove that nobody wrote in between.
//!
//! Trust: neither the control connection nor RDMA itself is encrypted, and a key is 32 bits that travel in
//! the clear. All clients of a host share its protection domain: a client that guesses another region's key
//! reaches that region, as far as its registration allows.

#![cfg(feature = "verbs")]

mod call_frame;
mod client;
mod control;
mod ibv;
mod os;
mod server;

use farsight_fabric::{AtomicUnit, CostClass, Guarantees};

pub use client::connection::{ConnectOptions, VerbsConnection};
pub use client::queue::VerbsQueue;
pub use ibv::device::{DeviceReport, devices};
pub use server::host::{ListenOptions, VerbsHost};
pub use server::port::VerbsPort;

/// Verbs that one batch holds.
const SLOTS: usize = 256;
/// Region numbers lie below this.
const REGIONS_MAX: u32 = 4096;
/// Calls that one queue pair has under way; more wait on the client's side.
const CALLS_MAX: usize = 16;
/// Bytes that a card is asked to take at once from where they are, instead of fetching them later.
const INLINE_BYTES: u32 = 188;
/// Completions taken at a time.
const COMPLETIONS_PER_POLL: usize = 32;

/// What verbs promise.
const GUARANTEES: Guarantees = Guarantees {
    name: "rdma",
    // Software devices copy words; that cards fetch whole lines is used, and not promised.
    atomic_unit: AtomicUnit::Word,
    read_lines_in_order: false,
    writes_in_order: true,
    read_after_atomic: true,
    write_after_read: false,
    read_before_completion: true,
    // A card's atomics exclude each other. That they exclude the processor's no device here promises.
    atomics_coherent_with_cpu: false,
    one_sided: true,
    read_only_regions: true,
    revocable: true,
    cost_class: CostClass::Nic,
};
