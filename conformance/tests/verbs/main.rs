//! The suites over RDMA: the verb contract, the engine, and what this fabric alone can do wrong.

mod contract;
mod engine;
mod hostile;
mod restart;
