//! ROLEX over memory nodes. The suite of the engine contract runs over one and three of them, on each fabric
//! that needs no device. Other tests are of sessions side by side, and of sessions that die between any two
//! changes or stop with a lock. Others again are of leaves that empty and go back, of groups, and of keys
//! where, and in the order in which, they hurt most.

mod costs;
mod deaths;
mod lives;
mod merges;
mod orders;
mod queues;
mod silent;
mod suite;
mod threads;
