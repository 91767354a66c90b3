//! The suite of the verb contract over shared memory.

use farsight_conformance::fabric::shm::Shm;

farsight_conformance::fabric_suite!(Shm::new());

#[test]
fn by_narrower_vectors() {
    farsight_conformance::widths::run_narrower("", "by_narrower_vectors");
}
