//! The suite of the engine contract over XStore.

use farsight_conformance::engine::harness::XStore;

farsight_conformance::engine_suite!(XStore::start(64 << 20, 1));

#[test]
fn by_narrower_vectors() {
    farsight_conformance::widths::run_narrower("", "by_narrower_vectors");
}
