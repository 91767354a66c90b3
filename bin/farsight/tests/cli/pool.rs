//! Pools: memory nodes and compute nodes as real processes, some of which die.

use std::process::Command;
use std::time::{Duration, Instant};

use farsight::Options;

use crate::process::{Ended, Serve, program, start, url, wait};

/// Memory nodes, the coordinator first.
struct Pool(Vec<Serve>);

impl Pool {
    fn start(nodes: usize) -> Self {
        let node = |_| Serve::start_as("memory-node", tempfile::tempdir().expect("a directory"), &[]);
        Self((0..nodes).map(node).collect())
    }

    /// Their addresses in this order.
    fn urls(&self, order: &[usize]) -> String {
        let urls: Vec<String> = order.iter().map(|node| url(&self.0[*node].socket())).collect();
        urls.join(",")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let all: Vec<usize> = (0..self.0.len()).collect();
        let mut command = program();
        command.env("FARSIGHT_URL", self.urls(&all)).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        wait(start(&mut self.command(arguments)))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
        ended.out
    }

    fn fails(&self, arguments: &[&str]) -> String {
        self.run(arguments).into_error(arguments)
    }

    /// Ends a node, if it has not ended, and starts another in its place.
    fn start_again(&mut self, node: usize) {
        let former = self.0.remove(node);
        self.0.insert(node, former.start_again_as_memory_node());
    }
}

#[test]
fn the_doctor_names_nodes_that_a_pool_goes_on_without() {
    let mut pool = Pool::start(3);
    pool.ok(&["create", "users", "--engine", "flexkv", "--replicas", "3"]);
    let doctor = pool.run(&["doctor"]).out;
    assert!(doctor.contains("ok    server") && !doctor.contains("goes on without"), "{doctor}");
    pool.0[1].kill();
    pool.ok(&["put", "users", "7", "Ada"]);
    let doctor = pool.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    let lost = |line: &str| line.starts_with("warn  server") && line.contains("goes on without nodes 2");
    assert!(doctor.out.lines().any(lost) && doctor.out.contains("farsight repair"), "{doctor:?}");
    pool.start_again(1);
    pool.ok(&["repair", "--wait", "30s"]);
    let doctor = pool.run(&["doctor"]).out;
    assert!(doctor.contains("ok    server"), "{doctor}");
}

/// Tables of which a part is lost are named, and the others are read.
#[test]
fn a_pool_without_a_node_is_verified_and_copied_as_far_as_it_is_there() {
    let mut pool = Pool::start(3);
    for name in ["a-copied", "z-copied"] {
        pool.ok(&["create", name, "--engine", "flexkv", "--replicas", "3"]);
        pool.ok(&["put", name, "7", "Ada"]);
    }
    for (name, engine) in [("m-lost", "rolex"), ("n-lost", "xstore-d")] {
        pool.ok(&["create", name, "--engine", engine]);
    }
    pool.0[1].kill();
    pool.ok(&["put", "a-copied", "7", "Grace"]);
    let verified = pool.run(&["verify", "--json"]);
    assert_eq!((verified.code, verified.error.as_str()), (Some(1), ""), "{verified:?}");
    let found: serde_json::Value = serde_json::from_str(&verified.out).expect("JSON");
    let tables = found["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 4, "{found}");
    for table in tables {
        let is_lost = table["name"].as_str().expect("a name").ends_with("lost");
        assert_eq!(
            table["failure"].as_str().is_some_and(|text| text.contains("nodes 2")),
            is_lost,
            "{table}"
        );
    }
    let verified = pool.run(&["verify"]);
    assert_eq!(verified.out.matches("nothing of it was read").count(), 2, "{verified:?}");

    let place = tempfile::tempdir().expect("a temporary directory");
    let place = |name: &str| place.path().join(name).to_str().expect("text").to_owned();
    let error = pool.fails(&["export", &place("all")]);
    let copied = "a-copied z-copied";
    for named in ["\"m-lost\"", "\"n-lost\"", copied] {
        assert!(error.contains(named), "{error} lacks {named}");
    }
    let names: Vec<&str> = copied.split(' ').collect();
    pool.ok(&[&["export", &place("some")], &names[..]].concat());
    let error = pool.fails(&["export", &place("lost"), "m-lost"]);
    assert!(error.contains("\"m-lost\"") && !error.contains("of the others"), "{error}");
}

#[test]
fn a_pool_is_used_as_a_server_is() {
    let pool = Pool::start(3);
    pool.ok(&["create", "t"]);
    pool.ok(&["create", "t"]);
    pool.ok(&["put", "t", "7", "0000-007"]);
    assert_eq!(pool.ok(&["get", "t", "7"]), "0000-007\n");
    assert_eq!(pool.run(&["get", "t", "8"]).code, Some(3));
    pool.ok(&["put", "t", "8", "0000-008"]);
    pool.ok(&["delete", "t", "7"]);
    assert_eq!(pool.run(&["get", "t", "7"]).code, Some(3));
    assert!(pool.ok(&["scan", "t"]).contains("0000-008"));
    let tables = pool.ok(&["tables"]);
    assert!(tables.contains("u64") && tables.contains("rolex"), "{tables}");
    assert!(!tables.contains(" 0 B "), "a table has its first leaf at least: {tables}");
    let stats = pool.ok(&["stats"]);
    for (node, place) in ["number 1 of 3, coordinator", "number 2 of 3", "number 3 of 3"].iter().enumerate() {
        assert!(stats.contains(place), "{stats}");
        let titled = format!("{}, farsight", url(&pool.0[node].socket()));
        assert!(stats.contains(&titled), "{titled} {stats}");
    }
    assert!(pool.fails(&["stats", "u"]).contains("it has t"), "statistics of another table");
    assert!(pool.fails(&["get", "u", "1"]).contains("no table is called"), "another table");
}

#[test]
fn some_nodes_in_any_order_are_enough() {
    let pool = Pool::start(3);
    pool.ok(&["create", "t"]);
    pool.ok(&["put", "t", "1", "00000001"]);
    let get = |urls: &str| {
        let mut command = program();
        command.args(["get", "t", "1", "--connect", urls]);
        wait(start(&mut command))
    };
    for order in [&[1, 0, 2][..], &[0], &[2], &[2, 1]] {
        assert_eq!(get(&pool.urls(order)).out, "00000001\n", "{order:?}");
    }
    let urls = pool.urls(&[0, 1, 1]);
    assert!(get(&urls).into_error(&urls).contains("the same memory node"), "one twice");
}

#[test]
fn nodes_that_are_told_their_pool_tell_clients() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let urls = directories.each_ref().map(|directory| url(&directory.path().join("test.sock")));
    let all = urls.join(",");
    let nodes = directories.map(|directory| Serve::start_as("memory-node", directory, &["--pool", &all]));
    // Each of these commands names one node alone.
    nodes[1].ok(&["create", "t"]);
    nodes[0].ok(&["put", "t", "1", "00000001"]);
    assert_eq!(nodes[1].ok(&["get", "t", "1"]), "00000001\n");
    let stats = nodes[1].ok(&["stats"]);
    assert!(stats.contains("number 1 of 2, coordinator") && stats.contains("number 2 of 2"), "{stats}");
}

#[test]
fn any_number_of_nodes_has_every_engine() {
    let (alone, pool) = (Serve::start(), Pool::start(2));
    for (engine, other) in [("xstore", "rolex"), ("xstore-d", "rolex"), ("rolex", "xstore")] {
        alone.ok(&["create", engine, "--engine", engine]);
        pool.ok(&["create", engine, "--engine", engine]);
        let create = ["create", engine, "--engine", other];
        for error in [alone.fails(&create), pool.fails(&create)] {
            assert!(error.contains("exists in"), "{error}");
        }
        alone.ok(&["put", engine, "1", "00000001"]);
        pool.ok(&["put", engine, "1", "00000001"]);
        assert_eq!(alone.ok(&["get", engine, "1"]), pool.ok(&["get", engine, "1"]));
    }
    let tables = alone.ok(&["tables"]);
    assert!(tables.contains("xstore") && tables.contains("rolex"), "{tables}");
    // A server that has tables alone is no node of a pool, and says so.
    let urls = format!("{},{}", url(&alone.socket()), url(&pool.0[0].socket()));
    let mut command = program();
    command.args(["tables", "--connect", &urls]);
    let error = wait(start(&mut command)).into_error(&urls);
    assert!(error.contains("of different pools"), "{error}");
}

#[test]
fn a_memory_node_that_lost_its_memory_is_named() {
    let mut pool = Pool::start(2);
    pool.ok(&["create", "t"]);
    pool.ok(&["put", "t", "1", "00000001"]);
    let address = pool.0[1].socket().display().to_string();
    pool.start_again(1);
    for arguments in [&["get", "t", "1"][..], &["put", "t", "1", "00000002"], &["create", "u"]] {
        let error = pool.fails(arguments);
        assert!(error.contains(&address) && error.contains("was started again"), "{arguments:?}: {error}");
    }
    let doctor = pool.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains("was started again"), "{}", doctor.out);
    pool.start_again(0);
    pool.start_again(1);
    assert!(pool.fails(&["get", "t", "1"]).contains("no table is called"), "all memory is lost");
    pool.ok(&["create", "t"]);
    pool.ok(&["put", "t", "1", "00000003"]);
    assert_eq!(pool.ok(&["get", "t", "1"]), "00000003\n");
}

/// What each node says of the pool's only table.
fn parts(pool: &Pool) -> Vec<serde_json::Value> {
    let stats: serde_json::Value = serde_json::from_str(&pool.ok(&["stats", "--json"])).expect("JSON");
    stats.as_array().expect("nodes").iter().map(|node| node["tables"][0]["part"].clone()).collect()
}

#[test]
fn xstore_d_has_a_range_of_the_keys_at_each_node() {
    let pool = Pool::start(3);
    let said = pool.ok(&["load", "t", "normal", "--keys", "60000", "--engine", "xstore-d"]);
    assert!(said.starts_with("60,000 pairs into table t in bulk"), "{said}");
    for part in parts(&pool) {
        let pairs = part["tree"]["pairs"].as_u64().expect("a count");
        assert!((19_900..=20_100).contains(&pairs), "{pairs} of 60,000 pairs on one of three nodes");
    }
    assert!(pool.ok(&["stats"]).contains("xstore-d"), "its engine");
    let scanned = pool.ok(&["scan", "t", "--limit", "100000"]);
    let keys: Vec<u64> = scanned
        .lines()
        .map(|line| line.split_whitespace().next().expect("a key").parse().expect("a number"))
        .collect();
    assert_eq!(keys.len(), 60_000);
    assert!(keys.is_sorted(), "ranges come in order");
    for key in keys.iter().step_by(20_001).map(u64::to_string) {
        pool.ok(&["put", "t", &key, "replaced"]);
        assert_eq!(pool.ok(&["get", "t", &key]), "replaced\n");
        pool.ok(&["delete", "t", &key]);
        assert_eq!(pool.run(&["get", "t", &key]).code, Some(3));
    }
    // The same engine is fine, another one is not.
    pool.ok(&["create", "t", "--engine", "xstore-d"]);
    assert!(
        pool.fails(&["create", "t", "--engine", "rolex"]).contains("exists in xstore-d"),
        "another engine"
    );
}

#[test]
fn a_node_of_xstore_d_that_was_killed_is_named() {
    let mut pool = Pool::start(3);
    for node in 0..3 {
        pool.ok(&["load", "t", "uniform", "--keys", "3000", "--engine", "xstore-d"]);
        let first = pool.ok(&["scan", "t", "--limit", "1"]);
        let key = first.split_whitespace().next().expect("a key").to_owned();
        let address = pool.0[node].socket().display().to_string();
        pool.0[node].kill();
        let error = pool.fails(&["get", "t", &key]);
        assert!(error.contains(&address), "{error}");
        // Without its part no key is absent.
        pool.start_again(node);
        for arguments in
            [&["get", "t", &key][..], &["get", "t", "1"], &["put", "t", "1", "00000001"], &["scan", "t"]]
        {
            let error = pool.fails(arguments);
            assert!(
                error.contains(&address) && error.contains("was started again"),
                "{arguments:?}: {error}"
            );
        }
        for other in (0..3).filter(|other| *other != node) {
            pool.start_again(other);
        }
        assert!(pool.fails(&["get", "t", &key]).contains("no table is called"), "all memory is lost");
    }
}

#[test]
fn statistics_say_that_nobody_trains() {
    let pool = Pool::start(2);
    pool.ok(&["create", "t"]);
    let untrained = "nobody trains it: serve --train";
    assert!(!pool.ok(&["stats"]).contains(untrained), "there is nothing to train");
    let client = farsight::connect(&pool.urls(&[0, 1])).expect("a client");
    let mut session = client.table::<u64>("t").expect("it is there").session(Options::default()).unwrap();
    for keys in (0..6_000_u64).collect::<Vec<_>>().chunks(500) {
        let pairs: Vec<_> = keys.iter().map(|key| (key.wrapping_mul(0x9e37_79b9), b"8 bytes.")).collect();
        session.put_many(&pairs, &mut Vec::new()).expect("outcomes");
    }
    assert!(pool.ok(&["stats"]).contains(untrained), "{}", pool.ok(&["stats"]));
}

/// Bytes of directory and models at the coordinator.
fn model_bytes(pool: &Pool) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&pool.ok(&["stats", "--json"])).expect("JSON");
    let meta = &stats[0]["tables"][0]["meta"];
    meta["used"].as_u64().expect("a count") * meta["block_bytes"].as_u64().expect("a size")
}

#[test]
fn a_load_trains_and_so_does_a_memory_node() {
    let mut pool = Pool::start(1);
    let directory = tempfile::tempdir().expect("a directory");
    let addresses = format!("{},{}", pool.urls(&[0]), url(&directory.path().join("test.sock")));
    pool.0.push(Serve::start_as("memory-node", directory, &["--train", &addresses]));
    pool.ok(&["create", "t"]);
    for key in 0..40 {
        pool.ok(&["put", "t", &key.to_string(), "00000001"]);
    }
    let begun = Instant::now();
    // The root line is there from the beginning.
    while model_bytes(&pool) == 64 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the memory node trains");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pool.ok(&["get", "t", "39"]), "00000001\n");

    let loaded = Pool::start(2);
    let said = loaded.ok(&["load", "t", "uniform", "--keys", "100000"]);
    assert!(said.starts_with("100,000 pairs into table t in bulk"), "{said}");
    assert!(model_bytes(&loaded) > 10_000, "{} B of models", model_bytes(&loaded));
    let first = loaded.ok(&["scan", "t", "--limit", "3"]);
    let key = first.split_whitespace().next().expect("a key").to_owned();
    assert!(first.contains(loaded.ok(&["get", "t", &key]).trim_end()), "{first}");
    let nodes: serde_json::Value = serde_json::from_str(&loaded.ok(&["stats", "--json"])).expect("JSON");
    for node in 0..2 {
        let used = nodes[node]["tables"][0]["leaves"]["used"].as_u64().expect("a count");
        assert!(used > 1000, "{used} leaves on node {node}");
    }

    // A table that is empty again is one that had pairs: into it they are put.
    loaded.ok(&["create", "u"]);
    loaded.ok(&["put", "u", "5", "00000005"]);
    loaded.ok(&["delete", "u", "5"]);
    let said = loaded.ok(&["load", "u", "uniform", "--keys", "1000"]);
    assert!(said.starts_with("1,000 pairs into table u by puts"), "{said}");
    assert_eq!(loaded.ok(&["scan", "u", "--limit", "2000"]).lines().count(), 1000);
}

#[test]
fn compute_nodes_that_are_killed_hold_nobody_up() {
    let pool = Pool::start(2);
    pool.ok(&["create", "t"]);
    let mut killed = 0;
    for round in 0..6_u64 {
        let mut load = start(&mut pool.command(&["load", "t", "uniform", "--keys", "200000"]));
        std::thread::sleep(Duration::from_millis(30 + 40 * round));
        killed += u32::from(load.try_wait().expect("a child").is_none());
        load.kill().expect("a child can be killed");
        load.wait().expect("a killed child ends");
        let key = (1000 + round).to_string();
        pool.ok(&["put", "t", &key, "survivor"]);
        assert_eq!(pool.ok(&["get", "t", &key]), "survivor\n");
    }
    assert!(killed > 0, "no load was killed while it ran");
    let scanned = pool.ok(&["scan", "t", "--from", "1000", "--limit", "6"]);
    assert!(scanned.lines().count() <= 6, "{scanned}");
}
