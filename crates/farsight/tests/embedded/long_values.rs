//! Values that no message carries: they go and come in pieces, and each shows whole or not at all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farsight::{
    Answers, Client, Endpoint, Exchanges, Options, ReadError, Server, ServerUrl, Session, TableOptions,
    ValueKind, WriteError, WriteOutcome,
};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, Ordering};
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of the longest value of any table.
const LONGEST: usize = 16 << 20;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 64 << 10;
const KEYS: u64 = 24;
const TURNS: usize = 250;
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn start(directory: &TempDir) -> Server {
    let tcp = ServerUrl::Tcp(Endpoint { host: "127.0.0.1".to_owned(), port: 0 });
    let builder = Server::builder().table_memory_bytes(MEMORY_BYTES);
    builder.listen(tcp).socket(directory.path().join("server.sock")).start().expect("a server")
}

/// A server, and sessions of one table by each of its addresses.
fn sessions(directory: &TempDir, values: ValueKind) -> (Server, Vec<Session<u64>>) {
    let server = start(directory);
    let sessions = server.urls().iter().map(|url| session(url, values)).collect();
    (server, sessions)
}

fn session(url: &ServerUrl, values: ValueKind) -> Session<u64> {
    let client = Client::connect(url).expect("a client");
    let table = client.create_table_of::<u64>("t", values, &TableOptions::default()).expect("a table");
    table.session(Options::default()).expect("a session")
}

/// Bytes that tell a value from others of its length, and its pieces from each other.
pub(crate) fn value(rng: &mut SplitMix64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn length(rng: &mut SplitMix64) -> usize {
    match rng.below(20) {
        0..12 => rng.below(400) as usize,
        // About the length that a message carries, and that a few do.
        12..17 => MESSAGE_BYTES * (1 + rng.below(3) as usize) - 70 + rng.below(80) as usize,
        17..19 => rng.below(1 << 20) as usize,
        _ => rng.below(3 << 20) as usize,
    }
}

fn check_all(session: &mut Session<u64>, model: &BTreeMap<u64, Vec<u8>>) {
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut answers = Answers::default();
    session.multi_get(&keys, &mut answers).expect("values");
    for (key, found) in keys.iter().zip(answers.iter()) {
        let found = found.map(|(value, _)| value);
        assert!(found == model.get(key).map(Vec::as_slice), "key {key}");
    }
    let mut expected = model.iter();
    for found in session.scan(..) {
        let (key, entry) = found.expect("a scan");
        let (wanted, value) = expected.next().expect("no more pairs than there are");
        assert!(key == *wanted && entry.value == *value, "key {key}, {} B", value.len());
    }
    assert!(expected.next().is_none(), "a scan found fewer pairs than there are");
}

fn write(session: &mut Session<u64>, model: &mut BTreeMap<u64, Vec<u8>>, rng: &mut SplitMix64) {
    let (key, stored) = (rng.below(KEYS), value_of(rng));
    let before = model.get(&key).cloned();
    let is_stored = match rng.below(7) {
        0 => matches!(session.insert(key, &stored), Ok(WriteOutcome::Inserted(_))) && before.is_none(),
        1 => matches!(session.update(key, &stored), Ok(WriteOutcome::Replaced(_))) && before.is_some(),
        2 => {
            let swapped = session.swap(key, &stored).expect("a swap");
            assert!(swapped.old.as_deref() == before.as_deref(), "key {key}: the value before");
            true
        }
        3 => {
            let version = session.get(key).expect("a get").map_or(0, |entry| entry.version);
            let is_right = rng.below(3) > 0;
            let expected = if is_right { version } else { version + 1 };
            let outcome = session.compare_and_set(key, expected, &stored).expect("a compare-and-set");
            assert_eq!(is_right, matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)));
            is_right
        }
        4 => {
            let is_right = rng.below(3) > 0;
            let mut expected = before.clone().unwrap_or_default();
            if !is_right && let Some(last) = expected.last_mut() {
                *last ^= 1;
            }
            let outcome = session.compare_and_set_value(key, &expected, &stored).expect("a compare-and-set");
            let is_equal = before.as_ref() == Some(&expected);
            assert_eq!(is_equal, matches!(outcome, WriteOutcome::Replaced(_)), "{outcome:?}");
            assert_eq!(before.is_none(), outcome == WriteOutcome::Absent, "{outcome:?}");
            is_equal
        }
        5 => {
            session.remove(key).expect("a removal");
            model.remove(&key);
            false
        }
        _ => return write_many(session, model, rng),
    };
    if is_stored {
        model.insert(key, stored);
    }
}

fn value_of(rng: &mut SplitMix64) -> Vec<u8> {
    let length = length(rng);
    value(rng, length)
}

/// Long and short values of few keys together: those of one key in their order.
fn write_many(session: &mut Session<u64>, model: &mut BTreeMap<u64, Vec<u8>>, rng: &mut SplitMix64) {
    let pairs: Vec<_> = (0..=rng.below(12)).map(|_| (rng.below(6), value_of(rng))).collect();
    if rng.below(2) == 0 {
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("puts");
        assert_eq!(outcomes.len(), pairs.len());
    } else {
        let mut exchanges = Exchanges::default();
        session.swap_many(&pairs, &mut exchanges).expect("swaps");
        let mut then = model.clone();
        assert_eq!(exchanges.outcomes().len(), pairs.len());
        for (index, (key, value)) in pairs.iter().enumerate() {
            let before = then.insert(*key, value.clone());
            assert!(exchanges.old(index) == before.as_deref(), "key {key}: the value before");
        }
    }
    model.extend(pairs);
}

#[test]
fn values_of_any_length_are_what_a_map_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let (server, mut sessions) = sessions(&directory, ValueKind::BLOCKS);
    let mut rng = SplitMix64::fresh();
    let mut model = BTreeMap::new();
    for turn in 0..TURNS {
        let by = rng.below(sessions.len() as u64) as usize;
        write(&mut sessions[by], &mut model, &mut rng);
        if turn % 50 == 49 {
            for session in &mut sessions {
                check_all(session, &model);
            }
        }
    }
    let live_bytes: u64 = model.values().map(|value| (32 + value.len() as u64).next_multiple_of(64)).sum();
    let blocks = server.stats().tables[0].blocks.expect("blocks");
    assert_eq!(blocks.live_bytes, live_bytes, "each pair's block, and none besides");
}

#[test]
fn the_longest_value_goes_and_comes_and_a_longer_one_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for values in [ValueKind::BLOCKS, ValueKind::BLOCKS.expiring(3_600_000)] {
        let (server, mut sessions) = sessions(&directory, values);
        let mut rng = SplitMix64::fresh();
        for session in &mut sessions {
            let longest = value(&mut rng, LONGEST);
            session.put(1, &longest).expect("a put");
            let mut found = Vec::new();
            session.get_vec(1, &mut found).expect("a get").expect("a value");
            assert!(found == longest);
            let error = session.put(1, &[longest, vec![0]].concat()).expect_err("a byte more");
            assert!(matches!(error, WriteError::WrongValueSize { got_bytes: 16_777_217, .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("16777216 B") && text.contains("16777217 B"), "{text}");
        }
        server.shutdown().expect("it stops");
    }
}

#[test]
fn readers_see_one_of_two_writers_values() {
    const LENGTHS: [usize; 2] = [700_000, 900_000];
    let directory = tempfile::tempdir().expect("a directory");
    let (server, mut readers) = sessions(&directory, ValueKind::BLOCKS);
    let written = LENGTHS.map(|length| value(&mut SplitMix64::fresh(), length));
    let are_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (url, value) in server.urls().iter().zip(&written) {
            let are_done = &are_done;
            scope.spawn(move || {
                let mut session = session(url, ValueKind::BLOCKS);
                for _ in 0..60 {
                    session.put(7, value).expect("a put");
                }
                are_done.store(true, Ordering::Relaxed);
            });
        }
        let mut found = Vec::new();
        while !are_done.load(Ordering::Relaxed) {
            for session in &mut readers {
                let version = session.get_vec(7, &mut found).expect("a get");
                assert!(version.is_none() || written.contains(&found), "{} B of neither", found.len());
            }
        }
    });
}

#[test]
fn a_value_for_which_there_is_no_room_fails_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Server::builder().table_memory_bytes(4 << 20);
    let server = builder.socket(directory.path().join("server.sock")).start().expect("a server");
    let client = Client::connect(server.url()).expect("a client");
    let table = client.create_blocks_table::<u64>("t").expect("a table");
    let mut session = table.session(Options::default()).expect("a session");
    let live_bytes = || server.stats().tables[0].blocks.expect("blocks").live_bytes;
    let pairs = [(1, vec![1; 100]), (2, vec![2; 3 << 20]), (3, vec![3; 3 << 20]), (4, vec![4; 100])];
    let mut outcomes = Vec::new();
    session.put_many(&pairs, &mut outcomes).expect("puts");
    let is_stored = |outcome: &WriteOutcome| matches!(outcome, WriteOutcome::Inserted(_));
    assert_eq!(outcomes.iter().map(is_stored).collect::<Vec<_>>(), [true, true, false, true], "{outcomes:?}");
    let live_before = live_bytes();
    let error = session.put(3, &pairs[2].1).expect_err("no room");
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(live_bytes(), live_before, "what was refused leaves nothing");
    let found: Result<Vec<_>, ReadError> = (1..5).map(|key| session.get(key)).collect();
    let found: Vec<_> = found.expect("gets").into_iter().map(|found| found.is_some()).collect();
    assert_eq!(found, [true, true, false, true]);
}

/// Bytes of a value that one piece has: those of a message, less its head.
const PIECE_BYTES: usize = MESSAGE_BYTES - 32;

/// Waits until a GET of key 1 makes no call, or is one anyway.
fn wait_for_model(session: &mut Session<u64>, is_tcp: bool) {
    let begun = Instant::now();
    let mut calls = u64::MAX;
    while !is_tcp && session.meters().calls != calls {
        assert!(begun.elapsed() < PATIENCE, "no model after {PATIENCE:?}");
        session.prefill().expect("a model, or none yet");
        calls = session.meters().calls;
        session.get(1).expect("a get").expect("a value");
    }
}

#[test]
fn a_value_in_pieces_costs_a_call_a_piece() {
    let directory = tempfile::tempdir().expect("a directory");
    let (server, mut sessions) = sessions(&directory, ValueKind::BLOCKS);
    for (url, session) in server.urls().iter().zip(&mut sessions) {
        let is_tcp = matches!(url, ServerUrl::Tcp(_));
        session.put(1, b"short").expect("a put");
        wait_for_model(session, is_tcp);
        for length in [MESSAGE_BYTES, 10 * PIECE_BYTES, 10 * PIECE_BYTES + 1, 1 << 20] {
            let bytes = vec![7; length];
            let pieces = length.div_ceil(PIECE_BYTES) as u64;
            let before = session.meters();
            session.put(1, &bytes).expect("a put");
            let written = session.meters();
            assert_eq!(written.calls - before.calls, pieces + 1, "a put of {length} B");
            session.get(1).expect("a get").expect("a value");
            let read = session.meters();
            let lines = (32 + length).div_ceil(64) as u64;
            if is_tcp {
                assert_eq!(read.calls - written.calls, pieces + 1, "a get of {length} B");
            } else {
                let reads = read.reads - written.reads;
                // Key part, value line and first line of the block, then the block.
                assert_eq!(reads, 3 + lines.div_ceil(256), "a get of {length} B");
                assert_eq!(read.calls, written.calls, "a get of {length} B");
            }
        }
    }
}

/// Over TCP the calls of a batch are in flight together, also those of values that need one or two each. So
/// several share a doorbell. As many are made as if one came after the other.
#[test]
fn long_values_of_a_batch_come_side_by_side() {
    const KEYS: u64 = 48;
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(&directory);
    let tcp = server.urls().iter().find(|url| matches!(url, ServerUrl::Tcp(_))).expect("an address");
    let mut session = session(tcp, ValueKind::BLOCKS);
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut answers = Answers::default();
    let (mut rng, half_a_message) = (SplitMix64::fresh(), MESSAGE_BYTES / 2);
    for (length, calls) in [
        (100, 1),
        (half_a_message, KEYS),
        (MESSAGE_BYTES, 1 + 2 * KEYS),
        (3 * PIECE_BYTES, 1 + 3 * KEYS),
        // Two of them are more than what is fetched side by side.
        (6 << 20, 1 + KEYS / 8 * (6_u64 << 20).div_ceil(PIECE_BYTES as u64)),
    ] {
        let keys = if length > 1 << 20 { &keys[..KEYS as usize / 8] } else { &keys[..] };
        let values: Vec<_> = keys.iter().map(|_| value(&mut rng, length)).collect();
        let mut outcomes = Vec::new();
        let pairs: Vec<_> = keys.iter().copied().zip(&values).collect();
        session.put_many(&pairs, &mut outcomes).expect("puts");
        let before = session.meters();
        session.multi_get(keys, &mut answers).expect("values");
        let after = session.meters();
        for (found, value) in answers.iter().zip(&values) {
            assert!(found.is_some_and(|(found, _)| found == value), "a value of {length} B");
        }
        assert_eq!(after.calls - before.calls, calls, "{length} B");
        let doorbells = after.doorbells - before.doorbells;
        assert!(doorbells <= 2 + calls.div_ceil(4), "{doorbells} doorbells for {calls} calls of {length} B");
    }
}

/// A page of a scan has so many bytes as a few values, however many pairs it might have.
#[test]
fn scans_take_long_values_a_few_at_a_time() {
    const PAIRS: u64 = 40;
    const LENGTH: usize = 300_000;
    let directory = tempfile::tempdir().expect("a directory");
    for values in [ValueKind::BLOCKS, ValueKind::BLOCKS.expiring(3_600_000)] {
        let (server, mut sessions) = sessions(&directory, values);
        for key in 0..PAIRS {
            sessions[0].put(key, &vec![key as u8; if key % 5 == 4 { 10 } else { LENGTH }]).expect("a put");
        }
        for (index, session) in sessions.iter_mut().enumerate() {
            let before = session.meters();
            for is_upwards in [true, false] {
                let first =
                    if is_upwards { session.scan(..).next() } else { session.scan_descending(..).next() };
                let (key, _) = first.expect("a pair").expect("a scan");
                assert_eq!(key, if is_upwards { 0 } else { PAIRS - 1 });
            }
            let after = session.meters();
            let fetched_bytes = after.read_bytes - before.read_bytes;
            assert!(fetched_bytes < 20 * LENGTH as u64, "{fetched_bytes} B for two pairs");
            assert!(
                after.calls - before.calls < 20 * 5,
                "{} calls for two pairs",
                after.calls - before.calls
            );
            let mut found: Vec<u64> = session.scan(3..).map(|pair| pair.expect("a scan").0).collect();
            assert!(found.iter().copied().eq(3..PAIRS), "session {index}: {found:?}");
            found = session.scan_descending(..30).map(|pair| pair.expect("a scan").0).collect();
            assert!(found.iter().copied().eq((0..30).rev()), "session {index}: {found:?}");
        }
        server.shutdown().expect("it stops");
    }
}
