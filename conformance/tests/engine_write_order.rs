//! The order of an insert's stores, seen from outside: when a key's line shows a slot, the slot's value is there.
//!
//! Clients get over the opposite order (a slot's version of zero makes them look again), so no wrong answer betrays
//! it; but then a GET beside an insert could use up its READs for nothing. So this reader looks at the raw lines.

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{LeafNumber, Line};
use farsight_conformance::engine::harness::XStore;
use farsight_conformance::engine::raw_table::RawTable;
use farsight_conformance::engine::{EngineUnderTest, SessionUnderTest, TableUnderTest};
use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, ValueFault};

/// Inserts that the reader must have met while they were new.
const MET_MIN: u64 = 10_000;
const SECONDS_MAX: u64 = 30;

fn read(table: &mut RawTable, geometry: &Geometry, leaf: LeafNumber, line: usize, into: &mut [Line]) {
    let from = geometry.address(table.info.region(), leaf, line);
    table.queue.post_read(0, from, into.len(), ReadMode::Stamped);
    table.queue.doorbell().expect("a doorbell");
    table.queue.take_read(0, into).expect("a READ");
}

/// The only leaf of a table whose keys never fill it.
fn only_leaf(table: &mut RawTable, geometry: &Geometry) -> LeafNumber {
    let mut lines = [Line::ZERO; KEY_LINES];
    let leaf = (0..8).map(LeafNumber).find(|leaf| {
        read(table, geometry, *leaf, 0, &mut lines);
        matches!(KeyLines(&lines).search(0), KeySearch::Absent)
    });
    leaf.expect("one of the first blocks is the table's first leaf")
}

#[test]
fn a_visible_key_has_its_value() {
    const VALUE_BYTES: usize = 256;
    let server = XStore::start(1 << 20, 1);
    let made = server.table(VALUE_BYTES);
    let mut table = RawTable::open(&server.socket(), made.name());
    let geometry = Geometry::new(VALUE_BYTES).expect("a value size");
    let leaf = only_leaf(&mut table, &geometry);
    let stop = AtomicBool::new(false);
    let mut met = 0;
    std::thread::scope(|scope| {
        let mut writer = made.session(Access::Rpc);
        // A batch fills the leaf and the next empties it, which the first insert after it compacts.
        let filled: Vec<_> = (1..=LEAF_SLOTS as u64).map(|key| (key, vec![7; VALUE_BYTES])).collect();
        let emptied: Vec<_> = filled.iter().map(|(key, _)| (*key, Vec::new())).collect();
        let stop = &stop;
        scope.spawn(move || {
            // Relaxed: the flag carries nothing with it.
            while !stop.load(Ordering::Relaxed) {
                let outcomes = writer.write(WriteOperation::Insert, &filled);
                assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));
                writer.write(WriteOperation::Remove, &emptied);
            }
        });
        let started = std::time::Instant::now();
        let mut lines = [Line::ZERO; KEY_LINES];
        let mut value_lines = vec![Line::ZERO; geometry.lines_per_value()];
        let mut value = [0; VALUE_BYTES];
        let mut next = 1;
        let mut is_awaited = false;
        let mut faults = Vec::new();
        while met < MET_MIN && faults.is_empty() && started.elapsed().as_secs() < SECONDS_MAX {
            read(&mut table, &geometry, leaf, 0, &mut lines);
            let KeySearch::Hit { slot, incarnation } = KeyLines(&lines).search(next) else {
                is_awaited = true;
                continue;
            };
            let place = geometry.value_place(slot);
            read(&mut table, &geometry, leaf, place.line, &mut value_lines);
            // Only a key that was not there a moment ago is new.
            met += u64::from(std::mem::take(&mut is_awaited));
            match geometry.read_value(&value_lines, place, incarnation, &mut value) {
                Err(ValueFault::NotWritten) => faults.push(format!("slot {slot:?} was not written")),
                // The leaf was compacted since. Nobody updates, so nothing else changes a value's lines.
                Err(ValueFault::OtherIncarnation) => {}
                Err(ValueFault::Changing) => {
                    read(&mut table, &geometry, leaf, 0, &mut lines);
                    if KeyLines(&lines).incarnation() == Some(incarnation) {
                        faults.push(format!("slot {slot:?} was being written after its key"));
                    }
                }
                Ok(_) => assert!(value.iter().all(|byte| *byte == 7), "a torn value"),
            }
            next = next % LEAF_SLOTS as u64 + 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(faults.is_empty(), "{faults:?}");
    });
    assert!(met >= MET_MIN, "only {met} inserts were met");
}
