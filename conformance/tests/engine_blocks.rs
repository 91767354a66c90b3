//! The suite of the engine contract over XStore's tables of blocks: over shared memory and over TCP.

use farsight::{Access, Meters, Options, ValueKind};
use farsight_base::LINE_BYTES;
use farsight_conformance::engine::TableUnderTest as _;
use farsight_conformance::engine::blocks::HasBlocks as _;
use farsight_conformance::engine::harness::XStore;
use farsight_layout::value_block::block_lines;

mod shm {
    use farsight_conformance::engine::harness::XStore;

    farsight_conformance::block_suite!(XStore::start(64 << 20, 1));
}

mod tcp {
    use std::sync::Arc;

    use farsight_conformance::engine::direct::DirectStore;
    use farsight_conformance::fabric::tcp::Tcp;

    farsight_conformance::block_suite!(DirectStore::start(Arc::new(Tcp::default()), 64 << 20));
}

/// Pairs of the table whose costs are counted.
const PAIRS: u64 = 20_000;

fn value_of(key: u64, value_bytes: usize) -> Vec<u8> {
    (0..value_bytes).map(|index| (key.wrapping_mul(31) + index as u64) as u8).collect()
}

/// What 64 GETs of values of this length cost, one batch of them.
fn cost_of_a_batch(value_bytes: usize) -> Meters {
    let store = XStore::start(256 << 20, 1);
    let table = store.block_table(ValueKind::blocks(40_000));
    let mut load = table.open().bulk_load().expect("a load");
    let is_asked = |key: u64| key.is_multiple_of(PAIRS / 64);
    for key in 0..PAIRS {
        let length = if is_asked(key) { value_bytes } else { 8 };
        load.push(key << 32, &value_of(key, length)).expect("a pair");
    }
    assert_eq!(load.finish().expect("the load"), PAIRS);
    table.await_training();
    let mut session = table.open().session(Options { access: Access::OneSided }).expect("a session");
    session.prefill().expect("the model");
    let keys: Vec<u64> = (0..PAIRS).filter(|key| is_asked(*key)).take(64).map(|key| key << 32).collect();
    let mut answers = farsight::Answers::default();
    let before = session.meters();
    session.multi_get(&keys, &mut answers).expect("answers");
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer.expect("present").0, value_of(key >> 32, value_bytes));
    }
    session.meters() - before
}

#[test]
fn a_get_takes_a_third_read() {
    for value_bytes in [0, 32, 33, 100, 5_000] {
        let cost = cost_of_a_batch(value_bytes);
        let block_bytes = (block_lines(8, value_bytes) * LINE_BYTES) as u64;
        // A hint may tie.
        assert!((3 * 64..=3 * 64 + 2).contains(&cost.reads), "{value_bytes} B: {cost:?}");
        assert!(cost.read_bytes <= 64 * (256 + block_bytes) + 2 * 192, "{value_bytes} B: {cost:?}");
        assert!((3..=5).contains(&cost.doorbells) && cost.calls == 0, "{value_bytes} B: {cost:?}");
    }
}

#[test]
fn a_long_value_says_its_length_first() {
    let cost = cost_of_a_batch(20_000);
    // Two of the leaf, the block's first line, and its 313 lines in two pieces.
    assert!((5 * 64..=5 * 64 + 2).contains(&cost.reads) && cost.calls == 0, "{cost:?}");
}

#[test]
fn a_load_into_a_table_with_pairs_is_refused() {
    let store = XStore::start(64 << 20, 1);
    let table = store.block_table(ValueKind::BLOCKS).open();
    table.session(Options::default()).expect("a session").put(9, b"there").expect("a put");
    let mut load = table.bulk_load().expect("a load");
    load.push(1, b"new").expect("a pair");
    let error = load.finish().expect_err("the table has a pair");
    assert!(farsight::with_causes(&error).contains("this one has 1 pairs"), "{error}");
}
