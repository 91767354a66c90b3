//! One command a file: its arguments, and what it does.

pub(crate) mod add;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod compute_node;
pub(crate) mod create;
pub(crate) mod dataset;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod drop;
pub(crate) mod figure;
pub(crate) mod get;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod neighbour;
pub(crate) mod put;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod tables;
pub(crate) mod ttl;
pub(crate) mod verify;
