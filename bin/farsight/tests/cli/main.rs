//! The program from outside: a server in a process of its own, and commands against it.

mod addresses;
mod cluster;
mod compute_node;
mod copies;
mod durability;
mod durable_pool;
mod endings;
mod faults;
mod figures;
mod flexkv_figures;
mod loads;
#[path = "../../../../crates/cluster/tests/etcd/local_etcd.rs"]
mod local_etcd;
mod memory;
mod operations;
mod pool;
mod process;
mod readme;
mod repeats;
mod simulate;
mod twitter;
mod users;
