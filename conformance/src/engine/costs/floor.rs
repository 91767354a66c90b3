//! The price of a cache that holds the top model and nothing else: sub-models are READ, each time.

use farsight::Access;

use super::{BATCH, KEYS, LoadedTable, cost, get_all, load, per};
use crate::engine::SessionUnderTest as _;

/// Passes over all keys until none fetches a sub-model, at most.
const PASSES_MAX: usize = 10;

/// A get whose sub-model the cache has no room for is one read more, and no call.
pub fn a_get_by_the_top_model_alone_is_a_read_more_and_no_call<L: LoadedTable>() {
    let loaded = load::<L>("the top model alone", KEYS, 8);
    loaded.table.set_cache_bytes(0);
    let mut session = loaded.table.session(Access::OneSided);
    let keys = loaded.some(KEYS / 4);
    // The top model comes by a call, and the root line by the first READ.
    get_all(&mut session, &keys[..BATCH], true);
    get_all(&mut session, &keys[..BATCH], true);
    let operations = loaded.table.server_stats().operations;
    let (meters, counters) = cost(&mut session, |session| get_all(session, &keys, true));
    println!("{meters:?} {counters:?}");
    let reads = per(meters.reads, keys.len());
    assert!((2.8..=3.3).contains(&reads), "{reads} READs a GET");
    assert_eq!((meters.calls, meters.writes, counters.fallbacks), (0, 0, 0), "{meters:?} {counters:?}");
    let doorbells = per(meters.doorbells, keys.len().div_ceil(BATCH));
    // A sub-model that does not fit its slot is READ elsewhere; where hints tie, leaves are READ again.
    assert!((3.0..=4.6).contains(&doorbells), "{doorbells} doorbells a batch");
    let mut straight = 0;
    let (meters, counters) = cost(&mut session, |session| {
        for key in &keys[..5_000] {
            let (meters, _) = cost(session, |session| {
                session.get(*key).expect("every key is stored");
            });
            straight += usize::from((meters.reads, meters.doorbells) == (2, 2));
        }
    });
    println!("{straight} straight, {meters:?} {counters:?}");
    assert!(straight > 4_700, "{straight} of 5,000 single GETs are two READs");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0), "{meters:?} {counters:?}");
    assert_eq!(loaded.table.server_stats().operations, operations, "the server worked");
    let stats = loaded.table.cache_stats();
    assert_eq!(stats.sub_models_filled, 0, "{stats:?}");
}

/// Sub-models of one batch are read once each.
pub fn a_batch_reads_a_sub_model_once<L: LoadedTable>() {
    let loaded = load::<L>("a sub-model once", KEYS, 8);
    loaded.table.set_cache_bytes(0);
    let mut session = loaded.table.session(Access::OneSided);
    get_all(&mut session, &loaded.keys[..BATCH], true);
    get_all(&mut session, &loaded.keys[..BATCH], true);
    for batch in loaded.keys.chunks(BATCH).step_by(97) {
        let (meters, counters) = cost(&mut session, |session| get_all(session, batch, true));
        // Neighbours are of one sub-model, or two, and each takes two READs at most.
        let most = 2 * batch.len() as u64 + 6;
        assert!(meters.reads <= most && meters.calls == 0, "{meters:?} {counters:?}");
    }
}

/// What a cache with a budget lacks is read once, and stays.
pub fn a_cache_with_room_reads_a_sub_model_once<L: LoadedTable>() {
    let loaded = load::<L>("with room", 20_000, 8);
    loaded.table.set_cache_bytes(1 << 20);
    let mut session = loaded.table.session(Access::OneSided);
    get_all(&mut session, &loaded.keys, true);
    // A walk on the way may have had sub-models trained again. They are fetched as keys need them.
    let is_fetched = (0..PASSES_MAX).any(|_| {
        loaded.table.await_training();
        let (_, counters) = cost(&mut session, |session| get_all(session, &loaded.keys, true));
        counters.sub_models_fetched == 0
    });
    assert!(is_fetched, "each of {PASSES_MAX} passes fetched sub-models");
    let (meters, counters) = cost(&mut session, |session| get_all(session, &loaded.keys, true));
    println!("{meters:?} {counters:?} {:?}", loaded.table.cache_stats());
    assert_eq!((meters.calls, counters.sub_models_fetched), (0, 0), "{meters:?}");
    assert!(per(meters.reads, loaded.keys.len()) < 2.05, "{meters:?}");
}
