//! The program from outside: a server in a process of its own, and commands against it.

mod addresses;
mod compute_node;
mod copies;
mod durability;
mod durable_pool;
mod endings;
mod faults;
mod figures;
mod loads;
mod memory;
mod operations;
mod pool;
mod process;
mod readme;
mod repeats;
mod simulate;
mod twitter;
mod users;
