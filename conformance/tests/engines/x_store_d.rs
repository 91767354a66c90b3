//! XStore-D: the suite of the engine contract over memory nodes on each fabric that needs no device. Blocks
//! go over shared memory and TCP. Also what it costs, and what is seen of memory nodes that are gone.

mod costs;
mod lives;
mod suite;
