//! Regions that come and go by the thousand leave nothing behind: no descriptor, no mapping, no memory. What
//! is counted is the process's, so this program has this test alone.

use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_conformance::fabric::withdraw::come_and_go;
use farsight_conformance::holding::Holding;

/// Rounds before the first count: what is kept for ever is there by then.
const WARM_UP: usize = 1_000;
const ROUNDS: usize = 10_000;
fn leaves_nothing<F: FabricUnderTest>(name: &str, subject: &F) {
    let mut before = None;
    come_and_go(subject, WARM_UP + subject.rounds(ROUNDS), |round| {
        let now = Holding::now();
        if round >= WARM_UP {
            now.assert_not_above(*before.get_or_insert(now), &format!("{name}, round {round}"));
        }
    });
    let before = before.expect("it was counted");
    println!("{name}: {before:?} after {WARM_UP} rounds, {:?} after all", Holding::now());
}

#[test]
fn regions_that_come_and_go_leave_nothing() {
    leaves_nothing("shm", &Shm::new());
    leaves_nothing("tcp", &Tcp::default());
}
