//! Clusters in simulation: the real server and the real client on a simulated fabric.
//!
//! Invariant: nothing here replaces product code. A [`Node`] steps the server's own workers and background;
//! sessions are the client's own, blocking ones.

#![forbid(unsafe_code)]

mod node;

pub use node::{Node, connect};
