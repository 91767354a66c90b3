//! The unchecked walks beside the store: they touch what its GETs touch, in as many steps.

use farsight::{Answers, Options, Server, Session};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::AtomicU64;
use farsight_bench::limits::LimitArrays;
use farsight_fabric::Meters;

const KEYS: usize = 200_000;
const BATCH: usize = 64;
const LINE_BYTES: f64 = 64.0;

/// What `count` GETs cost by the session's meters, each of them: lines, and lines a READ.
fn lines(session: &mut Session<u64>, count: usize, run: impl FnOnce(&mut Session<u64>)) -> (f64, Meters) {
    let before = session.meters();
    run(session);
    let used = session.meters() - before;
    (used.read_bytes as f64 / LINE_BYTES / count as f64, used)
}

#[test]
fn walks_touch_what_gets_touch() {
    let mut random = SplitMix64::new(7);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| random.next_u64()).collect();
    keys.sort_unstable();
    keys.dedup();

    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let server = Server::builder().socket(&socket).workers(1).table_memory_bytes(64 << 20).start();
    let _server = server.expect("a server");
    let client = farsight::connect(&format!("shm://{}", socket.display())).expect("a connection");
    let table = client.create_table::<u64>("t", 8).expect("a table");
    let mut load = table.bulk_load().expect("a load");
    for key in &keys {
        load.push(*key, &key.to_le_bytes()).expect("ascending");
    }
    load.finish().expect("the load");
    let begun = std::time::Instant::now();
    while client.pending_training().expect("an answer") > 0 {
        assert!(begun.elapsed().as_secs() < 60, "training takes for ever");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut session = table.session(Options::default()).expect("a session");
    session.prefill().expect("the model");
    let asked: Vec<u64> = (0..64 * BATCH).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();

    let words: Vec<AtomicU64> =
        (0..LimitArrays::leaf_bytes(keys.len() as u64) / 8).map(|_| AtomicU64::new(0)).collect();
    let arrays = LimitArrays::new(&words, &keys);
    let [batched, alone] = [arrays.touched_in_batches(), arrays.touched_alone()];
    for touched in [batched, alone] {
        assert!(touched.astray * 100 < touched.walks, "walks come to their keys: {touched:?}");
        assert_eq!(touched.of_sub_models, touched.walks, "a line names the leaf: {touched:?}");
    }

    // The first step, in the client's own memory: the same model, in the same lines.
    let (store, walks) = (table.cache_stats(), arrays.model_stats());
    assert_eq!((store.sub_models, store.sub_models_filled), (walks.sub_models, walks.sub_models));
    assert_eq!((store.model_bytes, store.table_bytes), (walks.model_bytes, walks.table_bytes));

    // A tie of hints costs the store a READ more; walks leave it at the first.
    let (lines_a_get, used) = lines(&mut session, asked.len(), |session| {
        let mut answers = Answers::default();
        for keys in asked.chunks(BATCH) {
            session.multi_get(keys, &mut answers).expect("answers");
            assert!(answers.iter().all(|answer| answer.is_some()));
        }
    });
    let lines_a_walk = (batched.of_leaves + batched.of_values) as f64 / batched.walks as f64;
    assert!((lines_a_walk..1.02 * lines_a_walk).contains(&lines_a_get), "{lines_a_get}: {batched:?}");
    let steps = 2.0 * (asked.len() / BATCH) as f64;
    assert!((steps..1.4 * steps).contains(&(used.doorbells as f64)), "two steps a batch: {used:?}");
    let [of_leaves, of_values] = [batched.of_leaves, batched.of_values].map(|lines| lines / batched.walks);
    assert_eq!((of_leaves, of_values, batched.of_leaves % batched.walks), (3, 1, 0), "in two steps");

    let (lines_a_get, used) = lines(&mut session, asked.len(), |session| {
        let mut value = [0; 8];
        for key in &asked {
            assert!(session.get_into(*key, &mut value).expect("an answer").is_some());
        }
    });
    assert_eq!(alone.of_values, 0, "in one step");
    let lines_a_walk = alone.of_leaves as f64 / alone.walks as f64;
    assert!((lines_a_walk..1.02 * lines_a_walk).contains(&lines_a_get), "{lines_a_get}: {alone:?}");
    let steps = asked.len() as f64;
    assert!((steps..1.02 * steps).contains(&(used.doorbells as f64)), "one step a GET: {used:?}");
}
