//! The server: tables in regions, workers that execute calls, training in the background.
//!
//! Invariants:
//! - every request gets one reply, whatever its bytes, and no reply is longer than its client can receive;
//! - a table is never taken back: what a call found stays valid for the server's life;
//! - a bug met by any thread (a panic) is written to stderr once and turns every later call into a refusal
//!   that says so; the workers go on, so nobody waits for an answer that never comes;
//! - a server with nothing to do sleeps: workers in their ports, training on its signal, the control thread
//!   in its socket.
//!
//! All work is done in steps ([`Worker::step`], [`Background::step`], [`Host::step`]) that take the time and
//! never start a thread; [`Server::start`] is the runner that gives each of them one.
//!
//! [`Host::step`]: farsight_fabric::Host::step

#![forbid(unsafe_code)]

mod background;
mod bulk;
mod call;
mod options;
mod prefault;
mod server;
mod signal;
mod state;
mod table;
mod tables;

pub use background::{Background, BackgroundState};
pub use call::Calls;
pub use farsight_node::{ShutdownError, StartError};
pub use options::ServerOptions;
pub use server::{Server, ServerHandle, spawn_training};
pub use state::ServerState;
pub use tables::TABLES_MAX;

/// A worker of a server.
pub type Worker = farsight_node::Worker<ServerState>;
