//! The fabric over shared memory between the processes of one host.
//!
//! Invariant: regions are memory files that the server makes, seals and maps. A client maps what it is given,
//! so a READ is a copy out of the server's memory and costs the server nothing. What only one side may rely
//! on is checked there: sizes and seals by the client, every control message and ring index by the server. A
//! client's disorder, whatever it is, ends that client alone.
//!
//! Protocol:
//! 1. A [`ShmHost`] listens on a Unix socket.
//! 2. A [`ShmConnection`] shakes hands with it, attaches regions and opens [`ShmQueue`]s over the same
//!    socket. Each queue pair has two rings in a memory file of its own, and a socket pair over which a side
//!    wakes the other if that sleeps.
//! 3. A worker drains its clients' rings through its [`ShmPort`]. It may answer a call later: the call keeps
//!    room for its reply in the ring, and replies come in any order.
//!
//! A socket, not an event counter, does the waking. Both sides hold the same counter, so a client could make
//! it block the server that writes to it, whereas `MSG_DONTWAIT` is the sender's own.
//!
//! Withdrawing: the server forgets a region and tells the clients that have it ([`news`]). A client's watcher
//! notes it in the word that says that the link lives, where every batch looks anyway. Each queue pair then
//! lets it go ([`known_region`]), and the mapping goes with the last. The memory is the system's again once
//! nobody maps it. Each region takes a descriptor and a mapping of the server for each of its files. It takes
//! as many in a client process while it has it attached.
//!
//! Growing: a client that loads from a page of a memory file makes the system give that page for good. So
//! a region of which the server says how far it writes it consists of several files ([`extents`]). Each is
//! sealed when it is made, and clients get those that there are. A READ beyond them has the client ask for
//! more.
//!
//! The end: memory files outlive a server that died. So a client's watcher, once it has seen the connection
//! end, exchanges the pages of all regions for zero pages and closes their files ([`link`]). A dead server's
//! memory is the system's again although its clients idle.
//!
//! Trust: clients cannot write read-only regions, nor resize anything. A client with a writable region can
//! write all of it, until the host takes that back. The host tells it to hang up
//! ([`Host::dismiss`](farsight_fabric::Host::dismiss)). If it does not, because it is stopped, the host has
//! the kernel hold up its stores ([`write_guard`], [`write_protection`]). A client that can offer no such
//! hold has its process ended ([`Host::end_process`](farsight_fabric::Host::end_process)), unless that serves
//! memory itself. One process holds a share of the server's descriptors at most, over all of its connections.

mod adaptive_spin;
mod attachments;
mod calls;
mod connection;
mod control;
mod extents;
mod host;
#[cfg(feature = "hostile")]
pub mod hostile;
mod huge_pages;
#[cfg(any(loom, shuttle))]
pub mod injected;
mod known_region;
mod link;
mod link_state;
mod mapping;
mod memory;
mod memory_map;
mod mutations;
mod news;
mod os;
mod own_process;
mod path_lock;
mod port;
mod queue;
#[cfg(feature = "hostile")]
pub mod raw_client;
mod region;
mod ring;
#[cfg(feature = "hostile")]
pub mod sandbox;
mod session;
mod socket;
mod userfaultfd;
mod write_guard;
mod write_protection;

use farsight_fabric::{AtomicUnit, CostClass, Guarantees};

pub use connection::{ConnectOptions, ShmConnection};
pub use host::{ListenOptions, ShmHost};
pub use own_process::OwnProcess;
pub use path_lock::ListenError;
pub use port::ShmPort;
pub use queue::ShmQueue;
pub use region::MappedRegion;

/// Whether this process can be kept from writing a region without its end ([`write_guard`]).
///
/// # Errors
/// Why the kernel, or a sandbox, gives it no userfaultfd.
pub fn check_write_protection() -> std::io::Result<()> {
    userfaultfd::Userfaultfd::new().map(drop)
}

/// Verbs that one batch holds.
const SLOTS: usize = 256;

/// What shared memory promises.
const GUARANTEES: Guarantees = Guarantees {
    name: "shm",
    // Vector moves of 32 B are seen to arrive whole on most processors; none promises it.
    atomic_unit: AtomicUnit::Word,
    // x86-64 performs loads in program order; elsewhere only stamped lines are fenced from each other.
    read_lines_in_order: cfg!(target_arch = "x86_64"),
    writes_in_order: true,
    // A doorbell executes both in the order of their posting, and an atomic releases what was stored before.
    atomic_after_write: true,
    // Atomics execute at the doorbell, READs when they are taken: after every WRITE and atomic of their
    // batch.
    read_after_atomic: true,
    write_after_read: false,
    read_before_completion: false,
    atomics_coherent_with_cpu: true,
    one_sided: true,
    read_only_regions: true,
    // A client that lies, or whose kernel refuses the hold, keeps its mapping until its process has ended.
    revocable: false,
    tells_unasked: true,
    connections_break: false,
    cost_class: CostClass::Memory,
};
