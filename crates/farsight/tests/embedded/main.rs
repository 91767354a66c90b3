//! The facade against a server embedded in the test's process.

mod addresses;
mod asynchronous;
mod faults;
mod operations;
mod restarts;
mod server;
