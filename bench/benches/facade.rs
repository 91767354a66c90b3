//! What a user's program gets through the facade, beside the engine's own loop on the same table.
//!
//! Each row is a way to use the answers. The engine gets the same keys and its answers the same use, in turns
//! with the facade. `get` has no such twin: it is compared with the engine's GET into a buffer.
//!
//!     cargo bench -p farsight-bench --bench facade [-- KEYS [ROUNDS [WORDS OF A ROW]]]
//!
//! A user's program has no link-time optimization unless it asks for it. With `--profile tests` this one has
//! none either. One side of a row alone (`-- 1000000 20 engine: get, summed`) is for callgrind.

use std::hint::black_box;

use farsight::{Answers, Options, Server, Session};
use farsight_base::prng::{SplitMix64, mix};
use farsight_bench::machine::thread_cpu_time;
use farsight_fabric::{Connection as _, QueuePair};
use farsight_fabric_shm::{ConnectOptions, ShmConnection};
use farsight_index::Access;
use farsight_index_xstore::client::{XCache, XClient};
use farsight_layout::FORMAT_VERSION;

/// Keys that a batch has.
const BATCH: usize = 64;
/// GETs of one side of a row in a round.
const GETS: usize = 1 << 19;

/// One side of a row.
trait Reader {
    fn get_into(&mut self, key: u64, value: &mut [u8; 8]) -> Option<u64>;
    fn multi_get(&mut self, keys: &[u64], answers: &mut Answers);
}

/// A queue pair and the engine over it.
struct Engine<Q> {
    queue: Q,
    client: XClient,
}

impl<Q: QueuePair> Reader for Engine<Q> {
    #[inline]
    fn get_into(&mut self, key: u64, value: &mut [u8; 8]) -> Option<u64> {
        self.client.get(&mut self.queue, key, value).expect("an answer")
    }

    #[inline]
    fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) {
        self.client.multi_get(&mut self.queue, keys, answers).expect("answers");
    }
}

impl Reader for Session<u64> {
    #[inline]
    fn get_into(&mut self, key: u64, value: &mut [u8; 8]) -> Option<u64> {
        Session::get_into(self, key, value).expect("an answer")
    }

    #[inline]
    fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) {
        Session::multi_get(self, keys, answers).expect("answers");
    }
}

/// The value of a key.
fn value_of(key: u64) -> [u8; 8] {
    (!key).to_le_bytes()
}

fn into_black_box(reader: &mut impl Reader, keys: &[u64]) {
    for key in keys {
        let mut value = [0; 8];
        assert!(reader.get_into(*key, &mut value).is_some(), "every key is stored");
        black_box(value);
    }
}

fn into_sum(reader: &mut impl Reader, keys: &[u64]) {
    let mut sum = 0_u64;
    for key in keys {
        let mut value = [0; 8];
        if let Some(version) = reader.get_into(*key, &mut value) {
            sum = sum.wrapping_add(u64::from_le_bytes(value) ^ version);
        }
    }
    black_box(sum);
}

fn into_comparison(reader: &mut impl Reader, keys: &[u64]) {
    let mut value = [0; 8];
    for key in keys {
        let found = reader.get_into(*key, &mut value);
        assert!(found.is_some() && value == value_of(*key), "the value of {key}");
    }
}

fn owned_black_box(session: &mut Session<u64>, keys: &[u64]) {
    for key in keys {
        black_box(session.get(*key).expect("an answer"));
    }
}

fn owned_sum(session: &mut Session<u64>, keys: &[u64]) {
    let mut sum = 0_u64;
    for key in keys {
        if let Some(entry) = session.get(*key).expect("an answer") {
            let value = entry.value.as_ref().try_into().expect("eight bytes");
            sum = sum.wrapping_add(u64::from_le_bytes(value) ^ entry.version);
        }
    }
    black_box(sum);
}

fn owned_comparison(session: &mut Session<u64>, keys: &[u64]) {
    for key in keys {
        let entry = session.get(*key).expect("an answer").expect("every key is stored");
        assert!(entry.value == value_of(*key), "the value of {key}");
    }
}

fn batches_last(reader: &mut impl Reader, keys: &[u64]) {
    let mut answers = Answers::default();
    for batch in keys.chunks(BATCH) {
        reader.multi_get(batch, &mut answers);
        assert!(answers.get(BATCH - 1).is_some(), "every key is stored");
    }
}

fn batches_sum(reader: &mut impl Reader, keys: &[u64]) {
    let (mut answers, mut sum) = (Answers::default(), 0_u64);
    for batch in keys.chunks(BATCH) {
        reader.multi_get(batch, &mut answers);
        for (value, version) in answers.iter().flatten() {
            sum = sum.wrapping_add(u64::from_le_bytes(value.try_into().expect("eight bytes")) ^ version);
        }
    }
    black_box(sum);
}

fn batches_comparison(reader: &mut impl Reader, keys: &[u64]) {
    let mut answers = Answers::default();
    for batch in keys.chunks(BATCH) {
        reader.multi_get(batch, &mut answers);
        for (index, key) in batch.iter().enumerate() {
            let found = answers.get(index);
            assert!(found.is_some_and(|(value, _)| value == value_of(*key)), "the value of {key}");
        }
    }
}

type Row<E> = (&'static str, fn(&mut E, &[u64]), fn(&mut Session<u64>, &[u64]));

fn rows<E: Reader>() -> [Row<E>; 9] {
    [
        ("get_into, black box", into_black_box, into_black_box),
        ("get_into, summed", into_sum, into_sum),
        ("get_into, compared", into_comparison, into_comparison),
        ("get, black box", into_black_box, owned_black_box),
        ("get, summed", into_sum, owned_sum),
        ("get, compared", into_comparison, owned_comparison),
        ("multi_get, looked at", batches_last, batches_last),
        ("multi_get, summed", batches_sum, batches_sum),
        ("multi_get, compared", batches_comparison, batches_comparison),
    ]
}

/// GETs a second of this thread's processor time.
fn rate(run: impl FnOnce()) -> f64 {
    let begun = thread_cpu_time();
    run();
    GETS as f64 / thread_cpu_time().saturating_sub(begun).as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let mut numbers = words.iter().map_while(|word| word.parse::<usize>().ok());
    let key_count = numbers.next().unwrap_or(10_000_000);
    let rounds = numbers.next().unwrap_or(15);
    let row = words.iter().skip_while(|word| word.parse::<usize>().is_ok());
    let row = row.cloned().collect::<Vec<_>>().join(" ");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("s");
    let table_bytes = (key_count as u64 * 64).max(1 << 26);
    let server = Server::builder().socket(&socket).table_memory_bytes(table_bytes).start().expect("a server");
    let user = farsight::connect(&server.url().to_string()).expect("a client");
    let table = user.create_table::<u64>("facade", 8).expect("a table");
    let mut keys: Vec<u64> = (0..key_count as u64).map(mix).collect();
    keys.sort_unstable();
    let mut load = table.bulk_load().expect("a load");
    for key in &keys {
        load.push(*key, &value_of(*key)).expect("ascending");
    }
    load.finish().expect("the load");
    while user.pending_training().expect("an answer") > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut session = table.session(Options::default()).expect("a session");
    session.prefill().expect("the model");

    let connection = ShmConnection::connect(&socket, ConnectOptions::new(FORMAT_VERSION)).expect("a server");
    let mut queue = connection.open_queue().expect("a queue");
    let bytes = queue.attach(table.info().region()).expect("the region");
    let cache = XCache::new(table.info(), bytes).expect("a table");
    let mut engine = Engine { queue, client: XClient::new(cache, Access::OneSided) };
    engine.client.prefill(&mut engine.queue).expect("the model");

    let mut random = SplitMix64::new(5);
    let queries: Vec<u64> = (0..GETS).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();
    println!("{key_count} keys; medians of {rounds} rounds; processor time");
    for (name, by_engine, by_facade) in rows() {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..rounds {
            if row.is_empty() || row == name || row == format!("engine: {name}") {
                rates[0].push(rate(|| by_engine(&mut engine, &queries)));
            }
            if row.is_empty() || row == name || row == format!("facade: {name}") {
                rates[1].push(rate(|| by_facade(&mut session, &queries)));
            }
            if let [Some(engine), Some(facade)] = rates.each_ref().map(|rates| rates.last()) {
                ratios.push(facade / engine);
            }
        }
        if !ratios.is_empty() {
            let [engine, facade] = rates.map(|rates| median(rates) / 1e6);
            let ratio = median(ratios);
            println!("{name:>22}: {facade:>6.2} M/s, {ratio:.3} of the engine's {engine:.2} M/s");
        }
    }
}
