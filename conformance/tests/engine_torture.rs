//! Readers in other processes while writers split, update, remove, insert again and reuse slots and blocks.

use std::path::PathBuf;

use farsight::{EngineKind, ServerUrl, TableOptions};
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, XStore};
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};
use farsight_conformance::engine::processes::{Player, role, say};
use farsight_conformance::engine::torture::{Plan, Reader, Report, TABLE, Writer};
use farsight_conformance::engine::witness::Ledger;
use farsight_oracles::{Embedding as _, Identity};

const READERS: usize = 2;
const READING_MS: u64 = 2_500;
/// The same in a pool, whose engines have this suite on top of those of XStore.
const POOL_READING_MS: u64 = 1_500;
/// What each reader must have seen at least, lest a test pass without having met a writer.
const CHANGES_MIN: u64 = 2_000;
/// What the writers must have done at least.
const SPLITS_MIN: u64 = 50;

/// A table, and who writes it.
#[derive(Clone, Copy)]
struct Shape {
    value_bytes: usize,
    keys: u64,
    stride: u64,
    writers: u64,
}

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

/// Writers and readers on the table, which is there and empty. Returns what the readers did.
fn run(test: &str, url: String, ledger: PathBuf, shape: Shape, reading_ms: u64) -> Vec<Report> {
    let seed = Seed::new(test);
    let Shape { value_bytes, keys, stride, writers } = shape;
    let seed = seed.random(0).next_u64() >> 1;
    let plan = Plan { url, ledger, value_bytes, keys, stride, writers, reading_ms, seed };
    let _ledger = Ledger::create(&plan.ledger, keys as usize);
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
    println!("{test}: {} writes, {reports:?}", written.into_inner());
    for report in &reports {
        assert!(report.absences > 0 && report.scans > 0, "a reader saw little: {report:?}");
        assert!(report.collisions > 0, "a reader met no writer: {report:?}");
    }
    reports
}

fn torture(test: &str, value_bytes: usize, keys: u64, stride: u64, writers: u64) {
    let server = XStore::start(64 << 20, writers as usize);
    server.connect().create_table::<u64>(TABLE, value_bytes).expect("a table");
    let url = server.server().url().to_string();
    let shape = Shape { value_bytes, keys, stride, writers };
    let reports = run(test, url, server.file("ledger"), shape, READING_MS);
    let tree = server.server().stats().tables[0].part().tree;
    assert!(tree.splits >= SPLITS_MIN && tree.compactions >= SPLITS_MIN, "the writers were idle: {tree:?}");
    assert!(reports.iter().all(|report| report.changes >= CHANGES_MIN), "a reader saw little: {reports:?}");
}

/// The same in a pool of two memory nodes, beside a trainer, which merges empty leaves.
fn torture_a_pool(
    test: &str,
    engine: &'static EngineKind,
    url: impl Fn(&Directory, usize) -> ServerUrl,
    shape: Shape,
) {
    let pool = Pool::start(2, 64 << 20, url);
    // Half of the keys at each node, of XStore-D.
    let embedding = Plan::embedding(shape.stride);
    let sample = (0..shape.keys).map(|number| embedding.key(Identity(number))).collect();
    let options = TableOptions { engine: Some(engine), sample, ..TableOptions::default() };
    pool.connect().create_table_with::<u64>(TABLE, shape.value_bytes, &options).expect("a table");
    let _training = pool.train();
    let reports = run(test, pool.addresses().to_string(), pool.file("ledger"), shape, POOL_READING_MS);
    let changes: u64 = reports.iter().map(|report| report.changes).sum();
    assert!(changes >= CHANGES_MIN / 2, "the readers saw little: {reports:?}");
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

#[test]
fn short_values_in_a_small_table_of_rolex() {
    let shape = Shape { value_bytes: 8, keys: 64, stride: 1, writers: 2 };
    torture_a_pool("short values, rolex", EngineKind::ROLEX, over_shared_memory, shape);
}

#[test]
fn values_of_five_lines_in_a_small_table_of_rolex() {
    let shape = Shape { value_bytes: 256, keys: 64, stride: 3, writers: 1 };
    torture_a_pool("values of five lines, rolex", EngineKind::ROLEX, over_shared_memory, shape);
}

#[test]
fn values_of_two_lines_in_a_larger_table_of_rolex() {
    let shape = Shape { value_bytes: 100, keys: 4_000, stride: 1 << 33, writers: 2 };
    torture_a_pool("values of two lines, rolex", EngineKind::ROLEX, over_shared_memory, shape);
}

#[test]
fn short_values_of_rolex_over_tcp() {
    let shape = Shape { value_bytes: 8, keys: 600, stride: 1 << 40, writers: 2 };
    torture_a_pool("short values, rolex, tcp", EngineKind::ROLEX, over_tcp, shape);
}

#[test]
fn short_values_of_xstore_d() {
    let shape = Shape { value_bytes: 8, keys: 600, stride: 1 << 40, writers: 2 };
    torture_a_pool("short values, xstore-d", EngineKind::XSTORE_D, over_shared_memory, shape);
}
