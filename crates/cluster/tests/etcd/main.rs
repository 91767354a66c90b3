//! A pool's map in a real etcd: who is registered, which map counts, and what etcd's failures come to.

mod failures;
mod local_etcd;
mod maps;
mod nodes;
