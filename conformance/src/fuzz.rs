//! Fuzz targets: one function a decoder of bytes that a peer may choose, shared by two drivers.
//!
//! Invariant: a target is a function of its bytes alone. It panics exactly if the code under test broke a
//! promise. Broken promises are a decoder that accepts what no encoder writes, a view that answers wrongly,
//! an index out of bounds, a loop without end. Most bytes are read twice. First as they stand: what a hostile
//! peer sends. Then as a recipe for something well-formed that must come back as it went, or behave as a
//! naive twin does.
//!
//! Drivers: [`driver`] mutates each target's seeds from one number and runs in every `cargo test`. The crate
//! in `fuzz/` hands the same functions to libFuzzer (`cargo xtask fuzz`), which looks for bytes that reach
//! new code. [`canary`] is the target with an injected bug, which both must find.

pub mod canary;
mod client;
mod cluster_record;
mod copy;
pub mod driver;
#[cfg(test)]
mod endless_scans;
#[cfg(test)]
mod found_by_seeds;
mod garbage_queue;
mod hash_index;
mod leaf;
mod leaf_writer;
mod learned;
mod local_host;
mod log;
mod memory_node;
mod model;
mod names;
mod pool_leaf;
mod published;
mod reply;
mod request;
#[cfg(test)]
mod scan_pages;
mod server;
mod source;
mod value_block;

use farsight_fabric_shm::hostile;
use farsight_fabric_tcp::hostile as hostile_tcp;
use farsight_fabric_verbs::hostile as hostile_verbs;

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its program in `fuzz/`.
    pub name: &'static str,
    /// Looks at some bytes; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Bytes that the real encoders write: where mutation begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets that must find nothing.
pub const TARGETS: &[Target] = &[
    Target { name: "request", run: request::run, seeds: request::seeds },
    Target { name: "reply", run: reply::run, seeds: reply::seeds },
    Target { name: "top_model", run: model::top, seeds: model::top_seeds },
    Target { name: "sub_model", run: model::sub, seeds: model::sub_seeds },
    Target { name: "training", run: model::training, seeds: model::training_seeds },
    Target { name: "leaf", run: leaf::run, seeds: leaf::seeds },
    Target { name: "leaf_writer", run: leaf_writer::run, seeds: leaf_writer::seeds },
    Target { name: "pool_leaf", run: pool_leaf::run, seeds: pool_leaf::seeds },
    Target { name: "learned", run: learned::run, seeds: learned::seeds },
    Target { name: "published", run: published::run, seeds: published::seeds },
    Target { name: "log", run: log::run, seeds: log::seeds },
    Target { name: "copy", run: copy::run, seeds: copy::seeds },
    Target { name: "cluster_record", run: cluster_record::run, seeds: cluster_record::seeds },
    Target { name: "hash_index", run: hash_index::run, seeds: hash_index::seeds },
    Target { name: "value_block", run: value_block::run, seeds: value_block::seeds },
    Target { name: "client", run: client::run, seeds: client::seeds },
    Target { name: "server", run: server::run, seeds: server::seeds },
    Target { name: "memory_node", run: memory_node::run, seeds: memory_node::seeds },
    Target { name: "names", run: names::run, seeds: names::seeds },
    Target { name: "shm_control", run: hostile::control, seeds: hostile::control_seeds },
    Target { name: "shm_ring", run: hostile::ring, seeds: hostile::ring_seeds },
    Target { name: "shm_handshake", run: hostile::handshake, seeds: hostile::handshake_seeds },
    Target { name: "tcp_control", run: hostile_tcp::control, seeds: hostile_tcp::control_seeds },
    Target { name: "tcp_batches", run: hostile_tcp::batches, seeds: hostile_tcp::batch_seeds },
    Target { name: "tcp_answers", run: hostile_tcp::answers, seeds: hostile_tcp::answer_seeds },
    Target { name: "verbs_control", run: hostile_verbs::control, seeds: hostile_verbs::control_seeds },
    Target { name: "verbs_calls", run: hostile_verbs::calls, seeds: hostile_verbs::call_seeds },
];

/// Names the directory into which a program of `fuzz/` writes its target's seeds before it begins.
pub const SEEDS_VARIABLE: &str = "FARSIGHT_FUZZ_SEEDS";

/// The target of this name, the canary included.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn target(name: &str) -> Target {
    let mut targets = TARGETS.iter().chain([&canary::CANARY]);
    *targets.find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
}

/// Runs the target of this name on `data`.
pub fn run(name: &str, data: &[u8]) {
    (target(name).run)(data);
}

/// Writes the seeds of the target of this name where the environment asks for them. The canary's are for the
/// driver in tests alone, so that libFuzzer has to find its own way.
///
/// # Panics
/// If the directory cannot be written.
pub fn write_seeds(name: &str) {
    let Some(directory) = std::env::var_os(SEEDS_VARIABLE) else { return };
    for (number, seed) in (target(name).seeds)().iter().enumerate() {
        let path = std::path::Path::new(&directory).join(format!("seed-{number}"));
        std::fs::write(&path, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
