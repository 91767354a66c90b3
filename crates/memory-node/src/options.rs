//! What a memory node is told before it starts.

use farsight_node::process;

/// Settings of a memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryNodeOptions {
    /// Worker threads at each listener, at least one.
    pub workers: usize,
    /// Bytes of each table's leaves on this node: the most that it can ever hold here. Home has an eighth
    /// more for directory and models. Pages cost nothing until they are written. Default: a quarter of the
    /// machine's memory.
    pub table_memory_bytes: u64,
}

impl Default for MemoryNodeOptions {
    fn default() -> Self {
        Self { workers: 1, table_memory_bytes: process::machine_memory_bytes() / 4 }
    }
}
