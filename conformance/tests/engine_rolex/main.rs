//! ROLEX over memory nodes: the suite of the engine contract over one and three of them on each fabric that
//! needs no device; sessions side by side; sessions that die between any two changes, or stop with a lock;
//! leaves that empty and go back, and groups; keys where, and in the order in which, they hurt most.

mod costs;
mod deaths;
mod lives;
mod merges;
mod orders;
mod queues;
mod silent;
mod suite;
mod threads;
