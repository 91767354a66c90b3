//! Compute nodes that write for others in tables of FlexKV.

use std::collections::HashMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use farsight::{
    Addresses, Answers, Client, ComputeNode, ComputeNodeError, ComputeNodeOptions, EngineKind, Options,
    Proxy, ReadsByOthers, Server, ServerBuilder, ServerUrl, Session, TableOptions, ValueKind, WriteOutcome,
};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Connection as _;
use farsight_fabric::lane::Lane;
use farsight_fabric_tcp::TcpConnection;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{
    ControlRequest, LostNodes, PROXIES_MAX, ProxyOffer, Reply, Request, ServedWork, TableId,
};
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 16 << 20;
const PARTITIONS: usize = 1024;
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory nodes with a table, at addresses of one fabric.
struct Cluster {
    directory: TempDir,
    nodes: Vec<Server>,
    is_tcp: bool,
}

impl Cluster {
    fn start(nodes: usize, is_tcp: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Self { directory, nodes: Vec::new(), is_tcp };
        for number in 0..nodes {
            let builder = Server::builder().table_memory_bytes(MEMORY_BYTES);
            cluster.nodes.push(cluster.listen(builder, &format!("node-{number}")).start().unwrap());
        }
        cluster
    }

    fn listen(&self, builder: ServerBuilder, name: &str) -> ServerBuilder {
        if self.is_tcp {
            builder.listen("tcp://127.0.0.1:0".parse().unwrap())
        } else {
            builder.socket(self.directory.path().join(name))
        }
    }

    fn pool(&self) -> Addresses {
        Addresses::new(self.nodes.iter().map(|node| node.url().clone()).collect())
    }

    fn client(&self) -> Client {
        Client::connect_with(self.pool(), &farsight::ConnectOptions::default()).unwrap()
    }

    fn compute_node(&self, name: &str, partitions: u16) -> ComputeNode {
        let options = ComputeNodeOptions { partitions, ..ComputeNodeOptions::default() };
        ComputeNode::start(self.listen(Server::builder(), name), &self.pool(), &options).unwrap()
    }
}

fn session(client: &Client, values: ValueKind) -> Session<u64> {
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    client.create_table_of::<u64>("t", values, &options).unwrap().session(Options::default()).unwrap()
}

fn proxies(client: &Client) -> Vec<Proxy> {
    client.proxies(client.describe_table("t").unwrap().id).unwrap()
}

fn await_proxies(client: &Client, what: &str, is_so: impl Fn(&[Proxy]) -> bool) {
    let begun = Instant::now();
    while !is_so(&proxies(client)) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", proxies(client));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// On each fabric, over one node and over two.
fn on_each(test: impl Fn(&Cluster)) {
    for is_tcp in [false, true] {
        for nodes in [1, 2] {
            test(&Cluster::start(nodes, is_tcp));
        }
    }
}

#[test]
fn every_write_is_a_call_and_no_verb_of_its_callers() {
    on_each(|cluster| {
        for values in [ValueKind::Fixed(16), ValueKind::blocks(1_000)] {
            let client = cluster.client();
            let mut session = session(&client, values);
            let value = |key: u64, turn: u64| [key.to_le_bytes(), turn.to_le_bytes()].concat();
            let serving = cluster.compute_node("compute-node", PARTITIONS as u16);
            assert_eq!(proxies(&client).iter().map(Proxy::partitions).sum::<usize>(), PARTITIONS);
            let before = session.meters();
            for key in 0..100 {
                let outcome = match key % 2 {
                    0 => session.put(key, &value(key, 0)).unwrap(),
                    _ => session.insert(key, &value(key, 0)).unwrap(),
                };
                assert!(matches!(outcome, WriteOutcome::Inserted(_)), "{outcome:?}");
            }
            let mut versions = Vec::new();
            for key in 0..100 {
                match session.put(key, &value(key, 1)).unwrap() {
                    WriteOutcome::Replaced(version) => versions.push(version),
                    other => panic!("{other:?}"),
                }
            }
            let outcome = session.insert(0, &value(0, 2)).unwrap();
            assert_eq!(outcome, WriteOutcome::Exists(versions[0]));
            assert_eq!(session.update(1_000, &value(0, 0)).unwrap(), WriteOutcome::Absent);
            assert_eq!(session.remove(1_000).unwrap(), WriteOutcome::Absent);
            assert_eq!(session.remove(99).unwrap(), WriteOutcome::Removed(versions[99]));
            let differs = session.remove_if(98, versions[98] + 1).unwrap();
            assert_eq!(differs, WriteOutcome::Differs(versions[98]));
            assert_eq!(session.remove_if(98, versions[98]).unwrap(), WriteOutcome::Removed(versions[98]));
            // No verb of this session's took part.
            assert_eq!(session.meters() - before, farsight::Meters::default());
            assert!(session.get(98).unwrap().is_none() && session.get(99).unwrap().is_none());
            for key in 0..98 {
                let entry = session.get(key).unwrap().expect("the key is there");
                assert_eq!((&entry.value[..], entry.version), (&value(key, 1)[..], versions[key as usize]));
            }
            await_proxies(&client, "206 writes", |proxies| {
                proxies.iter().map(|proxy| proxy.work.writes).sum::<u64>() == 206
            });
            serving.shutdown().unwrap();
            assert!(proxies(&client).is_empty(), "it let its partitions go");
            client.drop_table("t").unwrap();
        }
    });
}

/// What a compute node says of a key saves the READs that would find it, or all of them.
#[test]
fn a_key_that_a_compute_node_finds_takes_a_call_and_its_own_lines() {
    on_each(|cluster| {
        let client = cluster.client();
        let values = ValueKind::Fixed(16);
        let mut writer = session(&client, values);
        let serving = cluster.compute_node("compute-node", PARTITIONS as u16);
        let value = |key: u64| [key.to_le_bytes(), (!key).to_le_bytes()].concat();
        for key in 0..100 {
            writer.put(key, &value(key)).unwrap();
        }
        // How many READs a GET takes of a key that is there, and of one that is not.
        for (reads, of_present, of_absent) in [
            (ReadsByOthers::None, 3.0, 2.0),
            (ReadsByOthers::Addresses, 2.0, 0.0),
            (ReadsByOthers::Values, 0.0, 0.0),
        ] {
            // Another process's, whose cache is empty.
            let other = cluster.client();
            let table = other.table::<u64>("t").unwrap();
            table.set_reads_by_others(reads).unwrap();
            let mut reader = table.session(Options::default()).unwrap();
            let before = reader.meters();
            for key in 0..100 {
                let entry = reader.get(key).unwrap().expect("the key is there");
                assert_eq!(&entry.value[..], &value(key)[..], "{reads:?}");
            }
            let between = reader.meters();
            for key in 1_000..1_100 {
                assert!(reader.get(key).unwrap().is_none(), "{reads:?}");
            }
            let cost = |meters: farsight::Meters| meters.reads as f64 / 100.0;
            let (present, absent) = (cost(between - before), cost(reader.meters() - between));
            // A few keys have others' fingerprints in their buckets.
            assert!((of_present..of_present + 0.5).contains(&present), "{reads:?}: {present} READs");
            assert!((of_absent..of_absent + 0.5).contains(&absent), "{reads:?}: {absent} READs");
        }
        await_proxies(&client, "400 keys found", |proxies| {
            proxies.iter().map(|proxy| proxy.work.found).sum::<u64>() == 400
        });
        serving.shutdown().unwrap();
        client.drop_table("t").unwrap();
    });
}

/// Has the coordinator name a compute node at this address for all partitions, as one that serves would.
fn offer(node: &Server, table: TableId, address: String) {
    let url = node.url().to_string();
    let at = url.strip_prefix("tcp://").expect("a node over TCP");
    let options = farsight_fabric_tcp::ConnectOptions::new(FORMAT_VERSION);
    let connection = TcpConnection::connect(at, options).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let (epoch, work, heat, percent) = (7, ServedWork::default(), Vec::new(), Some(100));
    let partitions = PARTITIONS as u16;
    for request in [
        ControlRequest::Register { lost: LostNodes::default() },
        ControlRequest::OfferProxy(ProxyOffer { table, partitions, address, epoch, work, heat, percent }),
    ] {
        let (mut frame, mut reply) = (Vec::new(), Vec::new());
        Request::control(&mut frame, &request);
        let lane = Lane::new(&mut queue);
        lane.block_on(async |slot| slot.call(&frame, &mut reply).await).expect("a lane").expect("a reply");
        Reply::decode(&reply).expect("well-formed").expect("an answer");
    }
    // It has not ended as long as the test runs.
    std::mem::forget((queue, connection));
}

/// A compute node that is stopped takes connections, and answers none. A batch of GETs waits for it once,
/// however many keys it has.
#[test]
fn a_compute_node_that_does_not_answer_is_asked_once_a_batch() {
    let cluster = Cluster::start(1, true);
    let client = cluster.client();
    let mut writer = session(&client, ValueKind::Fixed(16));
    for key in 0..640 {
        writer.put(key, &[key as u8; 16]).unwrap();
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    offer(&cluster.nodes[0], client.describe_table("t").unwrap().id, address);
    // Another process's, whose cache is empty.
    let table = cluster.client().table::<u64>("t").unwrap();
    table.set_reads_by_others(ReadsByOthers::Values).unwrap();
    let mut reader = table.session(Options::default()).unwrap();
    let (keys, mut answers) = ((0..640).collect::<Vec<u64>>(), Answers::default());
    reader.multi_get(&keys, &mut answers).unwrap();
    for key in keys {
        let (value, _) = answers.get(key as usize).expect("the key is there");
        assert_eq!(value, [key as u8; 16]);
    }
    silent.set_nonblocking(true).unwrap();
    assert_eq!(std::iter::from_fn(|| silent.accept().ok()).count(), 1, "connections");
}

#[test]
fn writers_of_hot_keys_and_conditional_writers_see_each_others_writes() {
    const KEYS: u64 = 4;
    const WRITERS: u64 = 4;
    const TURNS: u64 = 300;
    on_each(|cluster| {
        let mut random = SplitMix64::fresh();
        let client = cluster.client();
        drop(session(&client, ValueKind::Fixed(8)));
        let serving = [cluster.compute_node("first", 300), cluster.compute_node("second", 300)];
        let sums: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        // Of each key the versions that writers were told.
        let told: Vec<HashMap<(u64, u64), [u8; 8]>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (seed, sums) = (random.next_u64(), &sums);
                    scope.spawn(move || {
                        let mut random = SplitMix64::new(seed);
                        let mut session = session(&cluster.client(), ValueKind::Fixed(8));
                        let mut told = HashMap::new();
                        for turn in 0..TURNS {
                            let key = random.below(KEYS);
                            let mut values = vec![(WRITERS * turn + writer).to_le_bytes()];
                            if random.below(3) == 0 {
                                // Counters are keys of their own, so that nobody replaces them.
                                session.fetch_add(KEYS + key, 1).unwrap();
                                // Relaxed: looked at when all threads have ended.
                                sums[key as usize].fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                            if random.below(3) == 0 {
                                values.push(u64::MAX.to_le_bytes());
                            }
                            let entries: Vec<_> = values.iter().map(|value| (key, *value)).collect();
                            let mut outcomes = Vec::new();
                            session.put_many(&entries, &mut outcomes).unwrap();
                            for (outcome, value) in outcomes.iter().zip(values) {
                                let (WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) =
                                    outcome
                                else {
                                    panic!("{outcome:?}")
                                };
                                assert!(
                                    told.insert((key, *version), value).is_none(),
                                    "version {version} twice"
                                );
                            }
                        }
                        told
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let mut all = HashMap::new();
        for ((key, version), value) in told.into_iter().flatten() {
            let other = all.insert((key, version), value);
            // Those that one write overtook have the version below its own, which nobody reads.
            assert!(other.is_none() || version % 4 == 3, "two writers were told version {version}");
        }
        let mut session = session(&client, ValueKind::Fixed(8));
        for key in 0..KEYS {
            let newest = all.keys().filter(|(of, _)| *of == key).map(|(_, version)| *version).max();
            let entry = session.get(key).unwrap();
            let found = entry.map(|entry| (entry.version, entry.value.to_vec()));
            assert_eq!(found, newest.map(|version| (version, all[&(key, version)].to_vec())), "key {key}");
            let sum = session
                .get(KEYS + key)
                .unwrap()
                .map_or(0, |entry| u64::from_le_bytes(entry.value[..].try_into().unwrap()));
            assert_eq!(sum, sums[key as usize].load(Ordering::Relaxed), "counter {key}");
        }
        for serving in serving {
            serving.shutdown().unwrap();
        }
    });
}

/// What clients say of their writes reaches the coordinator: it goes on to measure none of the partitions.
#[test]
fn the_coordinator_measures_what_writes_cost() {
    let cluster = Cluster::start(1, false);
    let client = cluster.client();
    let mut session = session(&client, ValueKind::Fixed(8));
    let serving = cluster.compute_node("compute-node", PARTITIONS as u16);
    let offloaded = || proxies(&client).iter().map(Proxy::partitions).sum::<usize>();
    assert_eq!(offloaded(), PARTITIONS);
    let begun = Instant::now();
    while offloaded() == PARTITIONS {
        assert!(begun.elapsed() < PATIENCE, "all partitions are offloaded still");
        let entries: Vec<_> = (0..256_u64).map(|key| (key, key.to_le_bytes())).collect();
        session.put_many(&entries, &mut Vec::new()).unwrap();
    }
    assert!(proxies(&client).iter().all(|proxy| usize::from(proxy.has) == PARTITIONS), "it keeps them");
    serving.shutdown().unwrap();
}

#[test]
fn it_listens_where_clients_of_the_pool_reach_it() {
    let cluster = Cluster::start(1, false);
    let options = ComputeNodeOptions::default();
    let elsewhere = || Server::builder().listen("tcp://127.0.0.1:0".parse::<ServerUrl>().unwrap());
    let refused = ComputeNode::start(elsewhere(), &cluster.pool(), &options).err();
    assert!(matches!(refused, Some(ComputeNodeError::Address { .. })), "{refused:?}");
    let twice = elsewhere().socket(cluster.directory.path().join("other"));
    let refused = ComputeNode::start(twice, &cluster.pool(), &options).err();
    assert!(matches!(refused, Some(ComputeNodeError::Address { .. })), "{refused:?}");
    // Who takes it for a memory node is told what it is.
    let serving = cluster.compute_node("compute-node", 10);
    let error = Client::connect(serving.url()).err().expect("it has no tables");
    assert!(farsight::with_causes(&error).contains("compute node"), "{error}");
}

/// A table that has as many compute nodes as there may be keeps one more out of no other table.
#[test]
fn a_table_that_refuses_a_compute_node_keeps_it_out_of_no_other() {
    let cluster = Cluster::start(1, true);
    let client = cluster.client();
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let tables = ["full", "t"].map(|name| {
        client.create_table_of::<u64>(name, ValueKind::Fixed(8), &options).unwrap();
        client.describe_table(name).unwrap().id
    });
    let served = |id: TableId| client.proxies(id).unwrap();
    let begun = Instant::now();
    loop {
        for port in 1..=PROXIES_MAX {
            offer(&cluster.nodes[0], tables[0], format!("tcp://127.0.0.1:{port}"));
        }
        let serving = cluster.compute_node("compute-node", PARTITIONS as u16);
        let is_at = |proxy: &Proxy| proxy.address == serving.url().to_string();
        let [of_full, of_other] = tables.map(served);
        // The others' leases may have ended before this one offered: once more.
        if of_full.iter().any(is_at) {
            assert!(begun.elapsed() < PATIENCE, "the table is never full: {of_full:?}");
            serving.shutdown().unwrap();
            continue;
        }
        assert!(of_other.iter().any(is_at), "{of_other:?}");
        return serving.shutdown().unwrap();
    }
}
