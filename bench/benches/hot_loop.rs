//! The hot loop alone: staged multi-GETs over a loaded array of leaves in shared memory, against this
//! machine's limits measured beside it. No tree, no writers: what is left is the fabric, the layout, the
//! model and the driver.
//!
//!     cargo bench -p farsight-bench --bench hot_loop [-- KEYS [ROUNDS]]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::prng::{SplitMix64, mix};
use farsight_base::{ClientId, LeafNumber};
use farsight_bench::limits::LimitArrays;
use farsight_bench::loaded_leaves::{fences_of, fill};
use farsight_bench::machine::thread_cpu_time;
use farsight_fabric::{
    Answer, CallHandler, Connection, Host, QueuePair, Region, RegionRights, ServerPort, Ticket,
};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};
use farsight_index::{Access, Answers, Direction, EngineKind, Pairs, ScanRequest, record_of};
use farsight_index_xstore::client::{XCache, XClient};
use farsight_layout::{FORMAT_VERSION, Geometry, SubModelRecord, TableEntry};
use farsight_model::{TrainOptions, TrainedModel, train};
use farsight_protocol::{
    KeyKind, PoolPlace, RegionInfo, ReplyWriter, Request, Space, TableDefinition, TableId, TableInfo,
};

/// A published model over leaves in address order, served by the protocol's own frames.
struct Published {
    model: TrainedModel,
    fences: Vec<u64>,
}

impl CallHandler for Published {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let mut writer = ReplyWriter::new(reply);
        match Request::decode(request).expect("the client's own frame") {
            Request::TopModel { first_word, .. } => {
                let words = self.model.top.to_words();
                writer.set(words.len() as u32, 1);
                writer.push_words(words.into_iter().skip(first_word as usize).take(4_000));
            }
            Request::SubModels { key, .. } => {
                let first = self.model.top.dispatch(key) as usize;
                let mut next = 0;
                for (number, sub_model) in self.model.sub_models.iter().enumerate().skip(first) {
                    let (record, entries) = self.sub_model(number);
                    if writer.len() + 64 + 8 * sub_model.model.leaf_count as usize > 60_000 {
                        next = sub_model.interval.map_or(0, |(low, _)| low);
                        break;
                    }
                    writer.push_sub_model(number as u32, &record, &entries);
                }
                writer.push_words([next]);
                writer.set(0, 1);
            }
            other => panic!("the hot loop sends no {other:?}"),
        }
        Answer::Now
    }
}

impl Published {
    fn sub_model(&self, index: usize) -> (SubModelRecord, Vec<u64>) {
        let trained = &self.model.sub_models[index];
        let model = trained.model;
        let leaves = trained.first_leaf..trained.first_leaf + model.leaf_count as usize;
        let entries = leaves
            .map(|leaf| TableEntry::new(LeafNumber(leaf as u32), model.leaf_hint(self.fences[leaf])).0)
            .collect();
        let record = record_of(&model);
        (record, entries)
    }
}

/// Operations a second of this thread's processor time.
fn rate(operations: usize, mut run: impl FnMut()) -> f64 {
    let begun = thread_cpu_time();
    run();
    operations as f64 / thread_cpu_time().saturating_sub(begun).as_secs_f64()
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let key_count = numbers.first().copied().unwrap_or(10_000_000);
    let rounds = numbers.get(1).copied().unwrap_or(5);
    let mut keys: Vec<u64> = (0..key_count as u64).map(mix).collect();
    keys.sort_unstable();

    let directory = std::env::temp_dir().join(format!("farsight-hot-loop-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let socket = directory.join("s");
    let host = Arc::new(ShmHost::listen(&socket, ListenOptions::new(FORMAT_VERSION)).expect("a socket"));
    let geometry = Geometry::new(8).expect("eight bytes");
    let fences = fences_of(&keys);
    let bytes = (fences.len() * geometry.leaf_bytes()) as u64;
    let region = host.create_region(bytes, RegionRights::ReadOnly).expect("memory");
    fill(region.words(), &geometry, &keys, &fences);
    region.collapse_to_huge_pages(bytes);

    let begun = Instant::now();
    let model = train(&fences, TrainOptions::default()).expect("ascending fences");
    println!("trained {} leaves in {:?}", fences.len(), begun.elapsed());
    let mut published = Published { model, fences };
    let table = TableInfo {
        id: TableId(0),
        definition: TableDefinition::new("hot", KeyKind::U64, 8),
        engine: EngineKind::XSTORE.table(&[], 1),
        block_lines: geometry.leaf_lines() as u16,
        format_version: FORMAT_VERSION,
        place: PoolPlace { epochs: vec![1], index: 0 },
        regions: vec![RegionInfo {
            space: Space::Leaves,
            id: region.id().0,
            capacity: published.fences.len() as u32,
        }],
    };
    let mut port = host.open_port().expect("a port");
    let control = Arc::clone(&host);
    std::thread::spawn(move || while control.step(Duration::from_millis(100)).is_ok() {});
    std::thread::spawn(move || {
        loop {
            if port.serve(64, &mut published) == 0 {
                port.wait(Duration::from_secs(1));
            }
        }
    });

    let connection = ShmConnection::connect(&socket, ConnectOptions::new(FORMAT_VERSION)).expect("a server");
    let mut queue = connection.open_queue().expect("a queue");
    let region_bytes = queue.attach(table.region()).expect("the region");
    let huge = connection.collapse_to_huge_pages();
    let cache = XCache::new(&table, region_bytes).expect("a table");
    let mut client = XClient::new(Arc::clone(&cache), Access::OneSided);
    client.prefill(&mut queue).expect("a model");
    let stats = cache.stats();
    println!(
        "cache: {} sub-models, {:.3} B a key models, {:.3} B a key in all; {} MiB on huge pages",
        stats.sub_models,
        stats.model_bytes as f64 / key_count as f64,
        (stats.model_bytes + stats.table_bytes) as f64 / key_count as f64,
        huge >> 20,
    );
    measure(&keys, rounds, &host, bytes, &mut queue, &mut client);
    std::fs::remove_dir_all(&directory).expect("own directory");
}

fn measure<Q: QueuePair>(
    keys: &[u64],
    rounds: usize,
    host: &ShmHost,
    bytes: u64,
    queue: &mut Q,
    client: &mut XClient,
) {
    let limit_region =
        host.create_region(bytes.max(LimitArrays::leaf_bytes(keys.len() as u64)), RegionRights::ReadOnly);
    let limit_region = limit_region.expect("memory");
    let arrays = LimitArrays::new(limit_region.words(), keys);
    limit_region.collapse_to_huge_pages(bytes);
    let mut random = SplitMix64::new(5);
    let queries: Vec<u64> = (0..1 << 22).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();
    let mut fractions = Vec::new();
    for _ in 0..rounds {
        let limits = arrays.measure();
        println!("independent 64 B reads: {:.1} M/s", limits.random_reads_per_s / 1e6);
        let before = queue.meters();
        let gets = multi_gets(queue, client, &queries);
        let used = queue.meters() - before;
        row("GET, batch 64", gets, limits.shape_walks_per_s);
        println!(
            "    {:.4} READs, {:.0} B a GET",
            used.reads as f64 / queries.len() as f64,
            used.read_bytes as f64 / queries.len() as f64,
        );
        row("GET, single", single_gets(queue, client, &queries), limits.single_walks_per_s);
        row("GET, chained", chained_gets(queue, client, &queries), limits.chained_walks_per_s);
        println!("    timed one by one: p50 {} ns", chained_p50_ns(queue, client, &queries));
        row("scans of 1-100", scans(queue, client, &queries), limits.shape_scans_per_s);
        fractions.push(gets / limits.shape_walks_per_s);
    }
    fractions.sort_by(f64::total_cmp);
    println!("median fraction of the shape limit: {:.3}; {:?}", fractions[rounds / 2], client.counters());
}

/// One figure beside its limit.
fn row(what: &str, rate: f64, limit: f64) {
    println!("{what:>16}: {:>7.3} M/s, {:.3} of {:.3} M/s", rate / 1e6, rate / limit, limit / 1e6);
}

fn multi_gets<Q: QueuePair>(queue: &mut Q, client: &mut XClient, queries: &[u64]) -> f64 {
    let mut answers = Answers::default();
    rate(queries.len(), || {
        for batch in queries.chunks(64) {
            client.multi_get(queue, batch, &mut answers).expect("answers");
            assert!(answers.get(63).is_some(), "every key is stored");
        }
    })
}

/// Gets one stored key; its value.
fn get_one<Q: QueuePair>(queue: &mut Q, client: &mut XClient, key: u64) -> u64 {
    let mut value = [0; 8];
    assert!(client.get(queue, key, &mut value).expect("an answer").is_some(), "every key is stored");
    u64::from_le_bytes(value)
}

fn single_gets<Q: QueuePair>(queue: &mut Q, client: &mut XClient, queries: &[u64]) -> f64 {
    let queries = &queries[..queries.len() / 4];
    rate(queries.len(), || {
        for key in queries {
            black_box(get_one(queue, client, *key));
        }
    })
}

/// Each key from the value before: a key's value is its complement, but the processor has to wait for it.
fn chained_gets<Q: QueuePair>(queue: &mut Q, client: &mut XClient, queries: &[u64]) -> f64 {
    let queries = &queries[..queries.len() / 8];
    rate(queries.len(), || {
        let mut last = !queries[0];
        for pair in queries.windows(2) {
            last = get_one(queue, client, pair[1] ^ last ^ !pair[0]);
        }
    })
}

/// The median of chained GETs, each between two looks at the clock.
fn chained_p50_ns<Q: QueuePair>(queue: &mut Q, client: &mut XClient, queries: &[u64]) -> u128 {
    let mut last = !queries[0];
    let pairs = queries[..queries.len() / 32].windows(2);
    let mut elapsed: Vec<Duration> = pairs
        .map(|pair| {
            let begun = Instant::now();
            last = get_one(queue, client, pair[1] ^ last ^ !pair[0]);
            begun.elapsed()
        })
        .collect();
    elapsed.sort_unstable();
    elapsed[elapsed.len() / 2].as_nanos()
}

fn scans<Q: QueuePair>(queue: &mut Q, client: &mut XClient, queries: &[u64]) -> f64 {
    let mut pairs = Pairs::default();
    let scans: Vec<ScanRequest> = queries[..1 << 18]
        .iter()
        .map(|from| ScanRequest { from: *from, limit: 1 + (mix(*from) % 100) as usize })
        .collect();
    rate(scans.len(), || {
        for batch in scans.chunks(64) {
            client.scan_batch(queue, Direction::Ascending, batch, &mut pairs).expect("pairs");
        }
    })
}
