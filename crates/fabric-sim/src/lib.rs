//! A simulated fabric: the verb contract over the memory of simulated nodes, in virtual time, from one seed.
//!
//! Invariant: whatever the contract and a card's [`Kind`] do not promise happens, sooner or later, under some
//! seed; what they promise always holds. One seed gives one run, event by event ([`Simulation::trace_hash`]).
//!
//! Protocol: a [`Simulation`] has servers ([`Simulation::listen`]), whose workers and background are steps
//! that it calls ([`SimHost::run_port`], [`SimHost::run`]), and clients. A client's code is the real,
//! blocking one: run as a *process* ([`Simulation::process`]) it gives way to all others wherever it waits.
//! Code that waits outside a process lets the simulation run until what it waits for has come.
//!
//! A verb has three moments: its posting, its execution (line by line or word by word), its completion. A
//! server's processor stores are logged between their ordering points (`farsight_base::observe`). They become
//! visible one by one, in any order that these points allow, so that a READ meets a write at every stage.
//! Threads of one process are not simulated: a server executes one call at a time.
//!
//! [`Simulation::priced`] gives each verb and call a price instead of a fate: cards, links and cores with
//! queues before them, and nothing left to chance. So it measures.
//!
//! [`Simulation::beside_threads`] runs the same fabric on the machine's clock, under threads that the test
//! starts itself; nothing is reproducible there.

#![forbid(unsafe_code)]

mod calls;
mod clock;
mod connection;
mod fault;
mod history;
mod host;
#[cfg(injected)]
pub mod injected;
mod kind;
mod leaks;
mod life;
mod locks;
mod network;
mod pair;
mod priced;
mod prices;
mod profile;
mod queue;
mod region;
mod simulation;
mod state;
mod station;
mod timing;
mod trace;
mod verbs;
mod watch;
mod withdrawal;
mod world;

pub use connection::SimConnection;
pub use fault::{Fault, FlippedRead, Rule, Strikes};
pub use host::{SimHost, SimPort};
pub use kind::{Kind, Ordered, ReliableConnection, Weakest};
pub use leaks::Held;
pub use prices::{
    ADDRESS_BYTES, ATOMIC_BYTES, LinkPrices, NicPrices, Prices, ThreadPrices, Usage, Utilization, WORD_BYTES,
};
pub use profile::{Constant, EnginePrices, Profile, ProfileError};
pub use queue::SimQueue;
pub use region::SimRegion;
pub use simulation::Simulation;
pub use station::Station;
pub use timing::Timing;
pub use trace::{Place, Told};
