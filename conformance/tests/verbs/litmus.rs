//! What litmus programs show over RDMA is possible on the simulated fabric with the same guarantees.

use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_conformance::litmus;

#[test]
fn queue_pairs() {
    if is_asked_for() {
        litmus::compare(Verbs::new);
    }
}
