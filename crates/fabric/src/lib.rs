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
//! dead peer ends it with [`FabricError::Disconnected`]. What becomes of a verb that its region forbids is
//! written once ([`refusals`]). Where regions lie in the client's own memory it may READ them in place
//! ([`mapped`]).
//!
//! Protocol of withdrawing:
//! 1. A host withdraws a region for good ([`Host::withdraw_region`]).
//! 2. A client learns of it within a second, without a call: its verbs there fail with
//!    [`FabricError::RegionWithdrawn`], each in its own slot. Until then they find the region's own bytes: no
//!    other region gets its number, nor its memory while a client may reach that.
//! 3. The client lets go ([`QueuePair::detach`]).
//!
//! With [`Host::notify`] a host tells all clients a number that only grows, which costs a client one load
//! ([`QueuePair::notice`]).
//!
//! Protocol of a server: a [`Host`] owns the regions and hands a [`ServerPort`] to each worker. The worker
//! drains calls from it in batches ([`ServerPort::serve`]) and sleeps in it when there are none
//! ([`ServerPort::wait`]). A server that listens on several fabrics knows each as a [`Listener`].
//!
//! Protocol of a call that is answered later:
//!
//! 1. The [`CallHandler`] gets a [`Ticket`] with each request. It keeps the ticket and says
//!    [`Answer::Later`].
//! 2. The port parks the call, with room for its reply, and goes on with other calls of all clients. A queue
//!    parks [`PARKED_MAX`] calls at most; until one of them is finished its further requests stay where they
//!    are.
//! 3. The same worker answers the call ([`ServerPort::finish`]), whenever it likes. So replies of one queue
//!    come in another order than the requests; each names its call.
//! 4. A client that ends takes its parked calls with it, and counts as departed at once. Their tickets answer
//!    nobody from then on.

#![forbid(unsafe_code)]

pub mod chained;
mod error;
pub mod filter;
mod guarantees;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
pub mod lane;
mod listener;
pub mod mapped;
mod meters;
mod parked;
mod queue_pair;
pub mod refusals;
mod region;
mod region_map;
mod server;

pub use error::FabricError;
pub use guarantees::{AtomicUnit, CostClass, Guarantees};
pub use listener::Listener;
pub use meters::Meters;
pub use parked::{PARKED_MAX, Parked, Parking, Ticket};
pub use queue_pair::{Connection, QueuePair, ReadMode, Slot};
pub use region::{Region, RegionRights};
pub use region_map::RegionMap;
pub use server::{Answer, CallHandler, Departure, Host, Lingering, Reserved, ServerPort, SetAside};
