//! Clusters in simulation: the real server and the real client on a simulated fabric.
//!
//! Invariant: nothing here replaces product code. A [`Node`] steps the server's own workers and background;
//! sessions are the client's own, blocking ones.

#![forbid(unsafe_code)]

mod allowed;
mod campaign;
mod catalogue;
mod classes;
mod client;
mod cluster;
mod hidden_tear;
mod journal;
mod keepers;
mod kept;
mod linear;
mod look_back;
mod names;
mod node;
mod parking;
mod pool;
mod program;
mod report;
mod run;
mod scenario;
mod servers;
mod store;
mod trace;

pub use campaign::{Campaign, Tally};
pub use catalogue::{Named, SCENARIOS, named, run_seed};
pub use classes::{CLASSES, Class, Cover, Coverage, Evidence, Mark};
pub use cluster::connect;
pub use farsight_oracles::{EightBytes, Identity};
pub use journal::{Action, Conditional, Entry, Journal, NEVER, Seen};
pub use kept::Kept;
pub use linear::{Violation, check};
pub use node::Node;
pub use report::{Failure, Report};
pub use scenario::{PoolEngine, PoolShape, Scenario};
pub use trace::Trace;
