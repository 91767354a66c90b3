//! The facade against a server embedded in the test's process, and against a pool's memory nodes.

mod addresses;
mod asynchronous;
mod asynchronous_bytes;
mod bulk_values;
mod compute_nodes;
mod conditional;
mod definitions;
mod driver;
mod expiry;
mod faults;
mod kept_values;
mod long_values;
mod operations;
mod restarts;
mod server;
mod store;
mod training;
