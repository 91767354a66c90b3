//! Several hosts: a server and its clients in network namespaces of their own, over cables that lose
//! packets, go slow, or are cut. Needs root, iproute2 and nftables; what cannot run says so.

mod cables;
mod desk;
mod namespaces;
mod partitions;
mod restarts;
mod slow;

use farsight_conformance::engine::processes::role;

#[test]
fn play() {
    match role().as_deref() {
        None => {}
        Some("server") => desk::serve(),
        Some(other) => panic!("there is no role {other}"),
    }
}
