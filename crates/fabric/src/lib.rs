//! The verb contract: what every engine asks of a fabric, and what every provider answers for.
//!
//! Invariant: nothing is sent before the doorbell rings, and nothing is read from a slot before it is
//! complete. What a READ returns is private to the caller, though it may be stale, foreign or hostile: only
//! `layout` makes a view of it.
//!
//! Protocol of a client: a [`Connection`] to one node hands out [`QueuePair`]s, one a session. Verbs are
//! *posted* into numbered slots of the queue pair's batch ([`QueuePair::post_read`] and its siblings), the
//! *doorbell* sends them all at once, completions are *polled*, results *taken* slot by slot. The [`lane`]
//! wraps the same in futures for operations that do not fit a straight batch. Every wait has a deadline; a
//! dead peer ends it with
//! [`FabricError::Disconnected`].
//!
//! Protocol of a server: a [`Host`] owns the regions and hands a [`ServerPort`] to each worker. The worker
//! drains calls from it in batches ([`ServerPort::serve`]) and sleeps in it when there are none
//! ([`ServerPort::wait`]). A server that listens on several fabrics knows each as a [`Listener`].

#![forbid(unsafe_code)]

pub mod chained;
mod error;
pub mod filter;
mod gate;
mod guarantees;
pub mod lane;
mod listener;
mod meters;
mod queue_pair;
mod region;
mod server;
mod share;

pub use error::FabricError;
pub use gate::Gate;
pub use guarantees::{AtomicUnit, CostClass, Guarantees};
pub use listener::Listener;
pub use meters::Meters;
pub use queue_pair::{Connection, QueuePair, ReadMode, Slot};
pub use region::{Region, RegionRights};
pub use server::{CallHandler, Departure, Host, Lingering, ServerPort};
pub use share::{Held, QUEUES_MAX, Share};
