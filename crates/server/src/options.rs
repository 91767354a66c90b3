//! What a server is told before it starts.

use farsight_model::TrainOptions;
use farsight_node::process;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Worker threads at each listener, 1 to [`ServerOptions::WORKERS_MAX`].
    pub workers: usize,
    /// Bytes of each table's leaf region: the most that the table can ever hold. Pages cost nothing until
    /// they are written. Default: a quarter of the machine's memory.
    pub table_memory_bytes: u64,
    /// Memory that is taken at the start, on huge pages, instead of when it is first written: so many bytes
    /// of the first table, of the second, and so on, at most all of each. Default: none.
    pub prefault_bytes: Vec<u64>,
    /// How the tables' models are trained.
    pub training: TrainOptions,
}

impl ServerOptions {
    /// Listeners of one server at most.
    pub const LISTENERS_MAX: usize = farsight_node::LISTENERS_MAX;
    /// Worker threads of one listener at most.
    pub const WORKERS_MAX: usize = farsight_node::WORKERS_MAX;
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            table_memory_bytes: process::machine_memory_bytes() / 4,
            prefault_bytes: Vec::new(),
            training: TrainOptions::default(),
        }
    }
}
