//! What TCP alone has to stand: hostile and silent peers, certificates, crowds, regions taken away.

mod certificates;
mod crowd;
mod cuts;
mod descriptors;
mod engine;
mod engine_suite;
mod hostile;
mod life;
mod raw;
mod tls;
mod withdrawn;

use farsight_conformance::engine::processes;

/// Plays a role if this process is to play one ([`processes::ENTRY`]).
#[test]
fn play() {
    match processes::role().as_deref() {
        None => {}
        Some(descriptors::SERVER) => descriptors::serve(),
        Some(other) => panic!("there is no role {other}"),
    }
}
