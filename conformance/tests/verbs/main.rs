//! The suites over RDMA: the verb contract, the engines, and what this fabric alone can do wrong.

mod broken_pairs;
mod cables;
#[path = "../set_up/causes.rs"]
mod causes;
#[path = "../tcp/certificates.rs"]
mod certificates;
mod contract;
mod device;
mod engine;
mod hostile;
mod litmus;
mod names;
mod one_sided;
mod pool;
mod program;
mod restart;
mod set_up;
mod tls;
mod two_hosts;
mod values;
mod x_store_d;
mod ycsb;

use farsight_conformance::engine::processes;

/// Plays a role if this process is to play one ([`processes::ENTRY`]).
#[test]
fn play() {
    match processes::role().as_deref() {
        None => {}
        Some(one_sided::SERVER) => one_sided::serve(),
        Some(other) => panic!("there is no role {other}"),
    }
}
