//! Regions that come and go by the thousand leave nothing behind: no descriptor, no mapping, no memory. What
//! is counted is the process's, so this program has this test alone.

use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_conformance::fabric::withdraw::come_and_go;

/// Rounds before the first count: what is kept for ever is there by then.
const WARM_UP: usize = 1_000;
const ROUNDS: usize = 10_000;
/// What may differ between two counts, for what is under way: a region of the other queue pair, and this
/// test's own look.
const UNDER_WAY: usize = 4;
/// Growth of memory that is no leak; a leaked region of 4 KiB a round would be ten times that.
const MEMORY_BYTES: usize = 4 << 20;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Holding {
    descriptors: usize,
    mappings: usize,
    memory_bytes: usize,
}

impl Holding {
    fn now() -> Self {
        let text = |path| std::fs::read_to_string(path).expect("/proc");
        let resident =
            text("/proc/self/statm").split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").expect("/proc").count(),
            mappings: text("/proc/self/maps").lines().count(),
            memory_bytes: resident.expect("a number of pages") * 4096,
        }
    }

    fn assert_not_above(self, before: Self, what: &str) {
        assert!(
            self.descriptors <= before.descriptors + UNDER_WAY
                && self.mappings <= before.mappings + UNDER_WAY
                && self.memory_bytes <= before.memory_bytes + MEMORY_BYTES,
            "{what}: {self:?} after {before:?}"
        );
    }
}

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
