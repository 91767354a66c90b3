//! Readers in other processes while writers split, update, remove, insert again and reuse slots and blocks.

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::XStore;
use farsight_conformance::engine::processes::{Player, role, say};
use farsight_conformance::engine::torture::{Plan, Reader, Report, TABLE, Writer};
use farsight_conformance::engine::witness::Ledger;

const READERS: usize = 2;
const READING_MS: u64 = 2_500;
/// What each reader must have seen at least, lest a test pass without having met a writer.
const CHANGES_MIN: u64 = 2_000;
/// What the writers must have done at least.
const SPLITS_MIN: u64 = 50;

#[test]
fn play() {
    let Some(role) = role() else { return };
    assert_eq!(role, "reader");
    say(&Reader::start(&Plan::of_role()).run().to_text());
}

/// Stops the writers when the test is over, however it ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing with it.
        self.0.store(true, Ordering::Relaxed);
    }
}

fn torture(test: &str, value_bytes: usize, keys: u64, stride: u64, writers: u64) {
    let seed = Seed::new(test);
    let server = XStore::start(64 << 20, writers as usize);
    let plan = Plan {
        socket: server.socket(),
        ledger: server.file("ledger"),
        value_bytes,
        keys,
        stride,
        writers,
        reading_ms: READING_MS,
        seed: seed.random(0).next_u64() >> 1,
    };
    let _ledger = Ledger::create(&plan.ledger, keys as usize);
    server.connect().create_table::<u64>(TABLE, value_bytes).expect("a table");
    let written = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let mut ready: Vec<Writer> = (0..writers).map(|index| Writer::start(&plan, index)).collect();
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        for mut writer in ready.drain(..) {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    written.fetch_add(writer.step() as u64, Ordering::Relaxed);
                }
            });
        }
        let readers: Vec<Player> = (0..READERS).map(|_| Player::start("reader", &plan.arguments())).collect();
        let reports = readers.into_iter().map(|reader| Report::from_text(&reader.finish())).collect();
        drop(stopping);
        reports
    });
    let tree = server.server().stats().tables[0].tree;
    println!("{test}: {} writes, {tree:?}, {reports:?}", written.into_inner());
    assert!(tree.splits >= SPLITS_MIN && tree.compactions >= SPLITS_MIN, "the writers were idle: {tree:?}");
    for report in &reports {
        assert!(report.changes >= CHANGES_MIN && report.collisions > 0, "a reader saw little: {report:?}");
        assert!(report.absences > 0 && report.scans > 0, "a reader saw little: {report:?}");
    }
}

#[test]
fn short_values_in_a_small_table() {
    torture("short values in a small table", 8, 64, 1, 1);
}

#[test]
fn values_of_a_line_in_a_small_table() {
    torture("values of a line in a small table", 24, 64, 1, 1);
}

#[test]
fn values_of_two_lines_in_a_small_table() {
    torture("values of two lines in a small table", 100, 64, 1, 1);
}

#[test]
fn values_of_five_lines_in_a_small_table() {
    torture("values of five lines in a small table", 256, 64, 3, 1);
}

#[test]
fn short_values_in_a_larger_table() {
    torture("short values in a larger table", 8, 6_000, 1 << 40, 1);
}

#[test]
fn long_values_in_a_larger_table() {
    torture("long values in a larger table", 256, 4_000, 1_000_003, 1);
}

#[test]
fn two_writers_in_a_small_table() {
    torture("two writers in a small table", 24, 64, 1, 2);
}

#[test]
fn two_writers_in_a_larger_table() {
    torture("two writers in a larger table", 100, 4_000, 1 << 33, 2);
}
