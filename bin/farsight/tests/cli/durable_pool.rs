//! Pools of XStore-D whose nodes have directories of data, killed while clients write, and started with
//! directories that are not theirs, or not the newest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use farsight::{Addresses, Client, ConnectOptions, EngineKind, Options, TableOptions, ValueKind};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::durability::{Acknowledged, BLOCKS, FIXED, PATIENCE, WRITERS, check, count_up, has_grown, read};
use crate::process::{Ended, Serve, program, start, wait};

const NODES: usize = 3;
/// Kills of one pool, one after the other; each fourth is of all nodes.
const KILLS: u64 = 12;

/// A key of each node's range.
const SPREAD_KEYS: [&str; NODES] = ["1", "9223372036854775807", "18446744073709551614"];

/// Memory nodes, each with a directory of data.
pub(crate) struct DurablePool {
    pub(crate) nodes: Vec<Serve>,
    /// Where all directories of data are.
    directories: TempDir,
    over: &'static str,
    ack: &'static str,
}

impl DurablePool {
    /// Three nodes. Over TCP they listen at addresses of this number, at which nobody else does: so a node
    /// that is started again finds its port free.
    fn start(over: &'static str, number: u8) -> Self {
        Self::start_many(NODES, over, number, "durable")
    }

    /// The same of so many nodes, which acknowledge so.
    pub(crate) fn start_many(count: usize, over: &'static str, number: u8, ack: &'static str) -> Self {
        let directories = tempfile::tempdir().expect("a temporary directory");
        let mut pool = Self { nodes: Vec::new(), directories, over, ack };
        for node in 0..count {
            let data = pool.data(node).display().to_string();
            let listen = format!("tcp://127.77.{number}.{}:0", node + 1);
            let arguments = ["--data", &data, "--listen", &listen, "--ack", ack];
            pool.nodes.push(Serve::start_with(tempfile::tempdir().expect("a directory"), &arguments));
        }
        pool
    }

    /// Where a node has its data at first.
    fn data(&self, node: usize) -> PathBuf {
        self.directories.path().join(format!("data-{node}"))
    }

    fn url(&self, node: usize) -> String {
        let mut urls = self.nodes[node].ready.split_whitespace().filter_map(|word| word.strip_prefix("url="));
        urls.find(|url| url.starts_with(self.over)).expect("it listens there").to_owned()
    }

    fn socket(&self, node: usize) -> String {
        self.nodes[node].socket().display().to_string()
    }

    fn urls(&self) -> String {
        let urls: Vec<String> = (0..self.nodes.len()).map(|node| self.url(node)).collect();
        urls.join(",")
    }

    pub(crate) fn connect(&self, reconnect_timeout: Duration) -> Client {
        let urls: Addresses = self.urls().parse().expect("as they say");
        Client::connect_with(urls, &ConnectOptions { reconnect_timeout, ..ConnectOptions::default() })
            .expect("a pool")
    }

    /// Kills a node, if it lives, and starts it where it was, over this directory or over none.
    fn restart(&mut self, node: usize, data: Option<&Path>) {
        let former = self.nodes.remove(node);
        let tcp = former.ready.split_whitespace().find_map(|word| word.strip_prefix("url=tcp://"));
        let listen = format!("tcp://{}", tcp.expect("it listens there"));
        let data = data.map(|data| data.display().to_string());
        let mut arguments = vec!["--listen", &listen];
        arguments.extend(data.iter().flat_map(|data| ["--ack", self.ack, "--data", data]));
        self.nodes.insert(node, former.kill_and_start(&arguments));
    }

    /// The same over its own directory.
    pub(crate) fn come_back(&mut self, node: usize) {
        let data = self.data(node);
        self.restart(node, Some(&data));
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        wait(start(program().env("FARSIGHT_URL", self.urls()).args(arguments)))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
        ended.out
    }

    fn fails(&self, arguments: &[&str]) -> String {
        self.run(arguments).into_error(arguments)
    }
}

/// Tables whose ranges have a writer each, at least.
fn options() -> TableOptions<u64> {
    let sample = (0..WRITERS).map(|writer| writer << 32).collect();
    TableOptions { engine: Some(EngineKind::XSTORE_D), sample, ..TableOptions::default() }
}

fn kill_again_and_again(over: &'static str, number: u8, values: ValueKind) {
    let mut pool = DurablePool::start(over, number);
    let acknowledged: Acknowledged = Mutex::new(vec![0; WRITERS as usize]);
    for kill in 0..KILLS {
        let before = acknowledged.lock().expect("no panic").clone();
        let killed: Vec<usize> = match kill % 4 {
            3 => (0..NODES).collect(),
            node => vec![node as usize],
        };
        // Over TCP a writer whose keys are all at living nodes does not notice the others' end.
        let is_over = OnceLock::new();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (pool, acknowledged, from) = (&pool, &acknowledged, before[writer as usize] + 1);
                let is_over = &is_over;
                scope.spawn(move || {
                    let client = pool.connect(Duration::ZERO);
                    let table = client.create_table_of::<u64>("counted", values, &options());
                    let is_done = || is_over.get().is_some();
                    count_up(&table.expect("a table"), writer, from, acknowledged, is_done);
                });
            }
            if kill > 0 {
                scope.spawn(|| read(&pool.connect(Duration::ZERO), &before));
            }
            if kill % 2 == 1 {
                let client = pool.connect(Duration::ZERO);
                scope.spawn(move || while client.snapshot().is_ok() {});
            }
            std::thread::sleep(Duration::from_millis(100 + 40 * (kill % 5)));
            let deadline = Instant::now() + PATIENCE;
            while !has_grown(&acknowledged, &before) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            for node in &killed {
                kill_process(Pid::from_child(&pool.nodes[*node].child), Signal::KILL).expect("it is there");
            }
            is_over.set(()).expect("once");
        });
        assert!(has_grown(&acknowledged, &before), "writers came to nothing");
        let last = acknowledged.lock().expect("no panic").clone();
        for node in killed {
            pool.come_back(node);
        }
        let checked = check(&pool.connect(Duration::ZERO), &last);
        println!("{over}: after kill {kill} {checked} acknowledged writes were found");
    }
}

#[test]
fn every_acknowledged_write_survives_kills_of_nodes_over_shared_memory() {
    kill_again_and_again("shm://", 1, FIXED);
}

#[test]
fn every_acknowledged_write_survives_kills_of_nodes_over_tcp() {
    kill_again_and_again("tcp://", 2, FIXED);
}

#[test]
fn values_of_any_length_survive_kills_of_nodes() {
    kill_again_and_again("shm://", 3, BLOCKS);
}

/// Sessions that are open go on when a node, or all of them, have come back.
#[test]
fn sessions_go_on_when_nodes_come_back() {
    for (over, number) in [("shm://", 4), ("tcp://", 5)] {
        let mut pool = DurablePool::start(over, number);
        let client = pool.connect(PATIENCE);
        let table = client.create_table_of::<u64>("t", FIXED, &options()).expect("a table");
        let mut session = table.session(Options::default()).expect("a session");
        let key = |writer: u64, round: u64| (writer << 32) + round;
        for round in 0..5 {
            let killed = if round == 4 { 0..NODES } else { round % NODES..round % NODES + 1 };
            for writer in 0..WRITERS {
                session.put(key(writer, round as u64), &[round as u8; 16]).expect("put");
            }
            for node in killed {
                pool.come_back(node);
            }
            for writer in 0..WRITERS {
                let own = key(writer, 100 + round as u64);
                // A call that met the end of its node is in doubt, and can be made again.
                let put = session.put(own, &[7; 16]).or_else(|_| session.put(own, &[7; 16]));
                put.expect("the pool is back");
                for round in 0..=round {
                    let found = session.get(key(writer, round as u64)).expect("the pool is back");
                    assert_eq!(found.expect("it was acknowledged").value[..], [round as u8; 16]);
                }
            }
        }
    }
}

/// Names are changed while a node is down, whether the client has noticed that or not. What was done stays
/// done, at all nodes, and what was refused was not done by half.
#[test]
fn names_are_the_same_at_all_nodes_when_one_was_down() {
    let mut pool = DurablePool::start("shm://", 6);
    for name in ["gone", "one", "other", "old"] {
        pool.ok(&["create", name, "--engine", "xstore-d"]);
        for key in SPREAD_KEYS {
            pool.ok(&["put", name, key, &format!("{name:.<8}")]);
        }
    }
    let client = pool.connect(Duration::ZERO);
    client.table::<u64>("gone").expect("it is there");
    pool.nodes[2].kill();
    let is_swapped = client.swap_tables("one", "other").is_ok();
    let is_renamed = client.rename_table("old", "new").is_ok();
    client.drop_table("gone").expect_err("a node is down");
    // What each name leads to, by what was put there.
    let names = |pool: &DurablePool| -> BTreeMap<&str, String> {
        let values = ["gone", "one", "other", "old", "new"].into_iter().filter_map(|name| {
            let found = SPREAD_KEYS.map(|key| pool.run(&["get", name, key]));
            let values = found.map(|ended| {
                assert!(ended.code == Some(0) || ended.error.contains("no table is called"), "{ended:?}");
                ended.out
            });
            assert!(values.iter().all(|value| *value == values[0]), "{name} is one table: {values:?}");
            (!values[0].is_empty()).then(|| (name, values[0].trim_end_matches(['.', '\n']).to_owned()))
        });
        values.collect()
    };
    let tables_of = |pool: &DurablePool| -> Vec<usize> {
        let stats: serde_json::Value = serde_json::from_str(&pool.ok(&["stats", "--json"])).expect("JSON");
        let nodes = stats.as_array().expect("nodes");
        nodes.iter().map(|node| node["tables"].as_array().expect("tables").len()).collect()
    };
    pool.come_back(2);
    let known = names(&pool);
    assert!(!is_swapped || known["one"] == "other" && known["other"] == "one", "{known:?}");
    assert!(!is_renamed || known.get("new").is_some_and(|value| value == "old"), "{known:?}");
    assert_eq!(tables_of(&pool), [known.len(); NODES]);
    (0..NODES).for_each(|node| pool.come_back(node));
    assert_eq!(names(&pool), known);
    assert_eq!(tables_of(&pool), [known.len(); NODES]);
    pool.ok(&["drop", "one"]);
    pool.ok(&["create", "one", "--engine", "xstore-d"]);
    pool.come_back(1);
    assert_eq!(pool.ok(&["scan", "one"]), "", "another table of that name is empty");
}

#[test]
fn loads_and_lifetimes_come_back() {
    let mut pool = DurablePool::start("shm://", 7);
    pool.ok(&["load", "loaded", "uniform", "--keys", "9000", "--engine", "xstore-d"]);
    pool.ok(&["create", "tokens", "--engine", "xstore-d", "--values", "blocks", "--ttl", "1d"]);
    let before = pool.ok(&["scan", "loaded", "--limit", "10000"]);
    assert_eq!(before.lines().count(), 9_000);
    pool.ok(&["put", "tokens", "7", "secret", "--ttl", "3h"]);
    for node in 0..NODES {
        pool.come_back(node);
    }
    assert_eq!(pool.ok(&["scan", "loaded", "--limit", "10000"]), before);
    assert!(pool.ok(&["ttl", "tokens", "7"]).starts_with("2h 5"), "its deadline stays");
    // A backup of each node is a pool.
    let copies: Vec<PathBuf> =
        (0..NODES).map(|node| pool.directories.path().join(format!("restored-{node}"))).collect();
    for (node, copy) in copies.iter().enumerate() {
        let (data, backup) = (pool.data(node), pool.directories.path().join(format!("backup-{node}")));
        for (command, from, to) in [("backup", &data, &backup), ("restore", &backup, copy)] {
            let ended = wait(start(program().arg(command).args([from, to])));
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
    pool.nodes.iter_mut().for_each(Serve::kill);
    let verified = wait(start(program().arg("verify").arg(&copies[1])));
    assert!(verified.out.contains("node number 2 of 3 in its pool, after 2 lives"), "{verified:?}");
    for (node, copy) in copies.iter().enumerate() {
        pool.restart(node, Some(copy));
    }
    assert_eq!(pool.ok(&["scan", "loaded", "--limit", "10000"]), before);
    pool.ok(&["create", "new", "--engine", "xstore-d"]);
    pool.ok(&["put", "new", "1", "00000001"]);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

#[test]
fn a_directory_that_is_not_the_nodes_own_is_refused_by_name() {
    let mut pool = DurablePool::start("shm://", 8);
    let rolex = pool.fails(&["create", "t", "--engine", "rolex"]);
    assert!(rolex.contains("rolex") && rolex.contains("--engine xstore"), "{rolex}");
    let flexkv = pool.fails(&["create", "t", "--engine", "flexkv", "--values", "blocks"]);
    assert!(flexkv.contains("flexkv") && flexkv.contains("xstore-d"), "{flexkv}");
    pool.ok(&["create", "t", "--engine", "xstore-d"]);
    pool.ok(&["put", "t", "1", "00000001"]);
    let refused = |pool: &DurablePool, node: usize, why: &str| {
        for arguments in [&["get", "t", "1"][..], &["put", "t", "1", "00000002"], &["tables"]] {
            let error = pool.fails(arguments);
            assert!(error.contains(&pool.socket(node)) && error.contains(why), "{arguments:?}: {error}");
        }
    };
    let (first, second) = (pool.data(1), pool.data(2));
    // Each other's.
    pool.nodes.iter_mut().for_each(Serve::kill);
    pool.come_back(0);
    pool.restart(1, Some(&second));
    pool.restart(2, Some(&first));
    // A node is who its directory says, wherever it stands.
    assert_eq!(pool.ok(&["get", "t", "1"]), "00000001\n");
    // A new one, and none.
    pool.restart(2, None);
    refused(&pool, 2, "in memory alone");
    pool.come_back(1);
    let new = pool.directories.path().join("new");
    pool.restart(2, Some(&new));
    refused(&pool, 2, "is not of this pool");
    // One of another node's, which runs.
    let twin = pool.directories.path().join("twin");
    copy(&first, &twin);
    pool.restart(2, Some(&twin));
    refused(&pool, 2, "copies of one directory");
    pool.come_back(2);
    assert_eq!(pool.ok(&["get", "t", "1"]), "00000001\n");
}

#[test]
fn an_old_copy_of_a_directory_is_refused_by_name() {
    let mut pool = DurablePool::start("shm://", 9);
    pool.ok(&["create", "t", "--engine", "xstore-d"]);
    pool.ok(&["put", "t", "1", "00000001"]);
    for node in 0..NODES {
        pool.nodes[node].kill();
        let old = pool.directories.path().join(format!("old-{node}"));
        copy(&pool.data(node), &old);
        pool.come_back(node);
        pool.ok(&["put", "t", "1", "00000002"]);
        // However often it is started: it has lives of its own then, but never that one.
        for _ in 0..3 {
            pool.restart(node, Some(&old));
            for arguments in [&["get", "t", "1"][..], &["put", "t", "1", "00000003"], &["create", "u"]] {
                let error = pool.fails(arguments);
                let words = [&pool.socket(node)[..], "an old copy of its directory"];
                assert!(words.iter().all(|word| error.contains(word)), "{arguments:?}: {error}");
                assert!(error.contains("with epoch ") && !error.contains("epoch epoch"), "{error}");
            }
        }
        pool.come_back(node);
        assert_eq!(pool.ok(&["get", "t", "1"]), "00000002\n");
    }
    // All nodes as they were at one time are a pool again.
    let copies: Vec<PathBuf> =
        (0..NODES).map(|node| pool.directories.path().join(format!("all-{node}"))).collect();
    pool.nodes.iter_mut().for_each(Serve::kill);
    for (node, to) in copies.iter().enumerate() {
        copy(&pool.data(node), to);
    }
    for node in 0..NODES {
        pool.come_back(node);
    }
    pool.ok(&["put", "t", "1", "00000004"]);
    for (node, copy) in copies.iter().enumerate() {
        pool.restart(node, Some(copy));
    }
    assert_eq!(pool.ok(&["get", "t", "1"]), "00000002\n");
}
