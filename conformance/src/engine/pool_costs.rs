//! What operations of ROLEX cost, in verbs, round trips and bytes, on each fabric the same: docs/costs.md.
//!
//! Each test gets a function that makes so many memory nodes; all are instantiated by
//! [`pool_costs_suite!`](crate::pool_costs_suite).

use farsight::{Access, WriteOperation};
use farsight_fabric::Meters;
use farsight_protocol::Direction;

use super::raw_pool::RawPool;
use super::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};
use crate::fabric::FabricUnderTest;

const TABLE_BYTES: u64 = 4 << 20;
const LONG_TABLE_BYTES: u64 = 16 << 20;
const KEYS: u64 = 2_000;
const STEP: u64 = 16;
const ASKED: u64 = 400;

/// What each of `ASKED` operations costs on the whole.
struct Cost {
    total: Meters,
}

impl Cost {
    fn assert(&self, what: &str, budgets: [(&str, u64, f64); 6]) {
        for (verb, count, budget) in budgets {
            let each = count as f64 / ASKED as f64;
            println!("{what}: {each} {verb}");
            assert!(each <= budget, "{what}: {each} {verb}, budget {budget}: {:?}", self.total);
        }
    }
}

/// The costs of one kind of operation on keys that the cache knows, one after the other.
fn cost<F: FabricUnderTest>(
    make: impl Fn(usize) -> Vec<F>,
    run: impl Fn(&mut dyn FnMut(Option<(WriteOperation, u64)>, u64)),
) -> Cost {
    let pool = RawPool::start(make(2), TABLE_BYTES);
    let table = pool.table(8);
    let mut session = table.session(Access::OneSided);
    let keys: Vec<u64> = (0..KEYS).map(|key| (key.wrapping_mul(0x9e37_79b9) % KEYS) * STEP).collect();
    let entries: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, key.to_le_bytes().to_vec())).collect();
    session.write(WriteOperation::Put, &entries);
    session.multi_get(&keys);
    let before = session.meters();
    run(&mut |write, key| match write {
        None => drop(session.get(key)),
        Some((operation, key)) => {
            let value = if operation.has_value() { key.to_le_bytes().to_vec() } else { Vec::new() };
            session.try_write(operation, key, &value).expect("a write");
        }
    });
    Cost { total: session.meters() - before }
}

/// WRITEs of an insert into a free slot, the lock's release among them, and their bytes at most.
const INSERT_WRITES: (u64, u64) = (4, 688);
/// WRITEs and bytes of an insert that splits its leaf, or has its blocks taken, at most.
const SPLIT_WRITES: (u64, u64) = (11, 2560);

fn budgets(
    total: &Meters,
    [round_trips, reads, read_bytes, writes, write_bytes, atomics]: [f64; 6],
) -> [(&'static str, u64, f64); 6] {
    [
        ("round trips", total.doorbells, round_trips),
        ("READs", total.reads, reads),
        ("bytes READ", total.read_bytes, read_bytes),
        ("WRITEs", total.writes, writes),
        ("bytes written", total.write_bytes, write_bytes),
        ("atomics", total.atomics, atomics),
    ]
}

/// A GET of a key that the cache knows.
pub fn a_get_is_one_round_trip<F: FabricUnderTest>(make: impl Fn(usize) -> Vec<F>) {
    let cost = cost(&make, |run| (0..ASKED).for_each(|index| run(None, index * 3 % KEYS * STEP)));
    cost.assert("GET", budgets(&cost.total, [1.0, 1.0, 448.0, 0.0, 0.0, 0.0]));
}

/// GETs of a batch whose values have 100 B, over a network: a key part, and two lines of a leaf of 35.
///
/// # Panics
/// If they cost more.
pub fn gets_of_long_values_bring_their_lines_alone<F: FabricUnderTest>(make: impl Fn(usize) -> Vec<F>) {
    let pool = RawPool::start(make(2), LONG_TABLE_BYTES);
    let table = pool.table(100);
    let mut session = table.session(Access::OneSided);
    let keys: Vec<u64> = (0..KEYS).map(|key| (key.wrapping_mul(0x9e37_79b9) % KEYS) * STEP).collect();
    let value = |key: u64| key.to_le_bytes().repeat(13)[..100].to_vec();
    let entries: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, value(*key))).collect();
    session.write(WriteOperation::Put, &entries);
    session.multi_get(&keys);
    let before = session.meters();
    let asked = &keys[..ASKED as usize];
    for (key, got) in asked.iter().zip(session.multi_get(asked)) {
        assert_eq!(got.map(|got| got.0), Some(value(*key)), "key {key}");
    }
    let cost = Cost { total: session.meters() - before };
    // Seven batches, two nodes, two steps.
    cost.assert("GET of 100 B", budgets(&cost.total, [0.07, 2.0, 320.0, 0.0, 0.0, 0.0]));
    let before = session.meters();
    let absent: Vec<u64> = asked.iter().map(|key| key + 1).collect();
    assert!(session.multi_get(&absent).iter().all(Option::is_none));
    let cost = Cost { total: session.meters() - before };
    cost.assert("GET of an absent key", budgets(&cost.total, [0.035, 1.0, 192.0, 0.0, 0.0, 0.0]));
}

/// Updates and removals.
pub fn an_update_and_a_removal_are_two_round_trips<F: FabricUnderTest>(make: impl Fn(usize) -> Vec<F>) {
    let update = |index: u64| Some((WriteOperation::Update, index * 3 % KEYS * STEP));
    let cost_of_update = cost(&make, |run| (0..ASKED).for_each(|index| run(update(index), 0)));
    let budget = [2.0, 1.0, 512.0, 4.0, 368.0, 1.0];
    cost_of_update.assert("update", budgets(&cost_of_update.total, budget));
    let remove = |index: u64| Some((WriteOperation::Remove, index * 3 % KEYS * STEP));
    let cost_of_removal = cost(&make, |run| (0..ASKED).for_each(|index| run(remove(index), 0)));
    cost_of_removal.assert("removal", budgets(&cost_of_removal.total, [2.0, 1.0, 512.0, 2.0, 16.0, 1.0]));
}

/// Half look-ups, half updates, each alone.
pub fn ycsb_a_is_one_round_trip_and_a_half<F: FabricUnderTest>(make: impl Fn(usize) -> Vec<F>) {
    let cost = cost(&make, |run| {
        for index in 0..ASKED {
            let key = index * 7 % KEYS * STEP;
            run((index % 2 == 1).then_some((WriteOperation::Update, key)), key);
        }
    });
    cost.assert("YCSB A", budgets(&cost.total, [1.8, 1.0, 480.0, 2.0, 184.0, 0.5]));
}

/// Inserts, of which some split.
pub fn an_insert_is_two_round_trips_and_its_share_of_a_split<F: FabricUnderTest>(
    make: impl Fn(usize) -> Vec<F>,
) {
    let insert = |index: u64| Some((WriteOperation::Insert, index * 3 % KEYS * STEP + 7));
    let cost = cost(&make, |run| (0..ASKED).for_each(|index| run(insert(index), 0)));
    // A split writes 2.5 KiB, and one in twenty inserts splits: one more is six bytes an insert.
    cost.assert("insert", budgets(&cost.total, [2.3, 1.5, 900.0, 5.0, 750.0, 1.2]));
}

/// Inserts of which each is looked at.
pub fn an_insert_is_two_round_trips_though_its_leaf_splits_and_five_with_new_blocks<F: FabricUnderTest>(
    make: impl Fn(usize) -> Vec<F>,
) {
    let pool = RawPool::start(make(1), TABLE_BYTES);
    let table = pool.table(8);
    let mut session = table.session(Access::OneSided);
    let (mut splits, mut in_two) = (0, 0);
    for index in 0..KEYS {
        let key = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        session.get(key);
        let before = session.meters();
        session.try_write(WriteOperation::Insert, key, &[1; 8]).expect("an insert");
        let cost = session.meters() - before;
        // A split counts itself: the second atomic. One in sixteen takes new blocks, and looks at them. It
        // holds no lock meanwhile: it locks the leaf once more.
        let (is_split, has_new_blocks) = (cost.atomics > 1, cost.atomics == 3);
        let (writes_max, write_bytes_max) = if is_split { SPLIT_WRITES } else { INSERT_WRITES };
        assert!(cost.writes <= writes_max && cost.write_bytes <= write_bytes_max, "{cost:?}");
        assert!(cost.doorbells <= if has_new_blocks { 5 } else { 3 }, "{cost:?}");
        if is_split {
            splits += 1;
            in_two += u64::from(cost.doorbells == 2);
        }
    }
    assert!(splits > 120 && in_two * 10 > splits * 9, "{in_two} of {splits} splits in two round trips");
}

/// Scans of 100 pairs.
pub fn a_scan_reads_the_leaves_that_are_predicted_in_one_doorbell<F: FabricUnderTest>(
    make: impl Fn(usize) -> Vec<F>,
) {
    let pool = RawPool::start(make(1), TABLE_BYTES);
    let table = pool.table(8);
    let mut session = table.session(Access::OneSided);
    for key in 0..KEYS {
        session.try_write(WriteOperation::Insert, key * STEP, &[1; 8]).expect("an insert");
    }
    table.await_training();
    let mut session = table.session(Access::OneSided);
    assert_eq!(session.scan_batch(Direction::Ascending, &[(0, 10)])[0].len(), 10);
    let before = session.meters();
    for from in 0..ASKED {
        assert_eq!(session.scan_batch(Direction::Ascending, &[(from * STEP, 100)])[0].len(), 100);
    }
    let cost = Cost { total: session.meters() - before };
    // Leaves in ascending order are full: 100 pairs are in seven or eight of them.
    cost.assert("scan of 100", budgets(&cost.total, [1.0, 10.0, 4480.0, 0.0, 0.0, 0.0]));
    let before = session.meters();
    for from in 0..ASKED {
        assert_eq!(session.scan_keys(Direction::Ascending, from * STEP, 100).len(), 100);
    }
    let cost = Cost { total: session.meters() - before };
    // Of keys alone their key parts: 192 B each.
    cost.assert("scan of 100 keys", budgets(&cost.total, [1.0, 10.0, 1920.0, 0.0, 0.0, 0.0]));
}

/// Instantiates every test of the suite with the memory nodes that `$make` makes, as many as a test requests.
/// Where that needs what not every machine has, only if `$ready`.
#[macro_export]
macro_rules! pool_costs_suite {
    ($make:expr) => {
        $crate::pool_costs_suite!($make, if true);
    };
    ($make:expr, if $ready:expr) => {
        $crate::pool_costs_suite!(@tests $make, $ready;
            a_get_is_one_round_trip, an_update_and_a_removal_are_two_round_trips,
            ycsb_a_is_one_round_trip_and_a_half, an_insert_is_two_round_trips_and_its_share_of_a_split,
            an_insert_is_two_round_trips_though_its_leaf_splits_and_five_with_new_blocks,
            a_scan_reads_the_leaves_that_are_predicted_in_one_doorbell);
    };
    (@tests $make:expr, $ready:expr; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                if $ready {
                    $crate::engine::pool_costs::$test($make);
                }
            }
        )+
    };
}
