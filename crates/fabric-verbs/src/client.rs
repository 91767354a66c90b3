//! The client's side: connections, queues, calls.

mod arena;
pub(crate) mod calls;
mod chain;
pub(crate) mod connection;
mod link;
pub(crate) mod queue;
#[cfg(test)]
mod refused;
mod slots;
#[cfg(test)]
mod tenants;
