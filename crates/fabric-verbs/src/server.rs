//! The server's side: the host and its sessions, workers' ports, queues, regions, tenants.

pub(crate) mod host;
pub(crate) mod port;
mod queue;
mod region;
mod session;
mod tenants;
