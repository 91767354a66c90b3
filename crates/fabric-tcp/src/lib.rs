//! The fabric over TCP: a network card in software.
//!
//! Invariant: a verb executes on the server only under the gate of its queue. Before that the server checks
//! its region, bounds and rights against what this client is granted at that moment. Nothing that a peer
//! sends, or fails to send, makes either side wait or hold memory without a bound, or touch memory that it
//! was not granted. A client's disorder ends that client alone.
//!
//! Protocol (docs/protocol/tcp.md): a client's *control* connection says hello, attaches regions, and hears
//! why it ends. Each queue pair is a connection of its own. One *batch* frame carries all that a doorbell
//! sends. The server answers with one frame of completions, and one frame a call. What the server sends on it
//! consists of 64 B lines, so a region's lines are copied once on either side. A worker owns an epoll over
//! its share of the queues. It does not serve a client further that does not read its answers.

#![forbid(unsafe_code)]

mod alive;
mod batch;
mod connection;
mod control;
mod execute;
mod frames;
mod grants;
mod host;
#[cfg(feature = "hostile")]
pub mod hostile;
mod inbox;
mod link;
mod output;
mod port;
mod queue;
mod region;
mod served_regions;
mod server_queue;
mod session;

use farsight_fabric::{AtomicUnit, CostClass, Guarantees};

pub use connection::{ConnectOptions, TcpConnection};
pub use farsight_fabric_net::{ListenError, Tls, TlsError, Waiting};
pub use host::{ListenOptions, TcpHost};
pub use port::TcpPort;
pub use queue::TcpQueue;

/// Verbs that one batch holds: where a round trip is dear, many share one.
const BATCH_VERBS_MAX: usize = 1024;
/// Slots of a queue pair: a whole batch's, and some for what is under way beside it.
const SLOTS: usize = BATCH_VERBS_MAX + 64;
/// Bytes of the longest request or reply of a call.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

// Words and lines go over the wire as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "this fabric's bytes are little-endian");

/// What TCP promises.
const GUARANTEES: Guarantees = Guarantees {
    name: "tcp",
    // The server's processor copies as a client over shared memory does.
    atomic_unit: AtomicUnit::Word,
    read_lines_in_order: cfg!(target_arch = "x86_64"),
    writes_in_order: true,
    // The server executes a batch's verbs in posting order.
    atomic_after_write: true,
    read_after_atomic: true,
    write_after_read: true,
    read_before_completion: true,
    atomics_coherent_with_cpu: true,
    one_sided: false,
    read_only_regions: true,
    revocable: true,
    tells_unasked: false,
    connections_break: true,
    cost_class: CostClass::Socket,
};
