//! ROLEX over memory nodes: the suite of the engine contract over one and three of them on each fabric that
//! needs no device; sessions side by side; sessions that die between any two changes, or stop with a lock.

mod costs;
mod deaths;
mod silent;
mod suite;
mod threads;
