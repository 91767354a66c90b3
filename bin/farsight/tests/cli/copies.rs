//! Copies of tables: out of servers and pools, and into others, by commands over shared memory and TCP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use farsight::{Client, EngineKind, Lifetime, Options, TableOptions, ValueKind, WriteOutcome};

use crate::process::{Ended, Serve, program, start, wait};

/// Pairs of a table.
const PAIRS: i64 = 3_000;
const VALUE_BYTES: usize = 16;

type Pairs = BTreeMap<i64, Vec<u8>>;

/// Servers that listen over shared memory and TCP: one alone, or the memory nodes of a pool.
struct Servers(Vec<Serve>);

impl Servers {
    fn start(count: usize) -> Self {
        let command = if count == 1 { "serve" } else { "memory-node" };
        let directory = || tempfile::tempdir().expect("a temporary directory");
        let listen = ["--listen", "tcp://127.0.0.1:0"];
        Self((0..count).map(|_| Serve::start_as(command, directory(), &listen)).collect())
    }

    /// Their addresses over one fabric.
    fn urls(&self, over: &str) -> String {
        let of = |serve: &Serve| {
            let urls = serve.ready.split_whitespace().filter_map(|word| word.strip_prefix("url="));
            urls.flat_map(|urls| urls.split(',')).find(|url| url.starts_with(over)).expect(over).to_owned()
        };
        self.0.iter().map(of).collect::<Vec<_>>().join(",")
    }

    fn run(&self, over: &str, arguments: &[&str]) -> Ended {
        wait(start(program().env("FARSIGHT_URL", self.urls(over)).args(arguments)))
    }

    fn ok(&self, over: &str, arguments: &[&str]) -> String {
        let ended = self.run(over, arguments);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
        ended.out
    }

    fn fails(&self, over: &str, arguments: &[&str]) -> String {
        self.run(over, arguments).into_error(arguments)
    }

    fn connect(&self) -> Client {
        farsight::connect(&self.urls("shm://")).expect("a client")
    }

    /// The names of their tables.
    fn tables(&self) -> Vec<String> {
        let tables = self.connect().tables().expect("a list").into_iter();
        tables.map(|table| table.definition.name).collect()
    }

    /// A table of these pairs.
    fn fill(&self, name: &str, engine: &'static EngineKind, values: ValueKind, pairs: &Pairs) {
        let options =
            TableOptions { engine: Some(engine), memory_bytes: Some(32 << 20), ..Default::default() };
        let table = self.connect().create_table_of::<i64>(name, values, &options).expect("a table");
        let pairs: Vec<(i64, &[u8])> = pairs.iter().map(|(key, value)| (*key, &value[..])).collect();
        let mut session = table.session(Options::default()).expect("a session");
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("pairs");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))), "{outcomes:?}");
    }

    fn pairs(&self, name: &str) -> Pairs {
        let table = self.connect().table::<i64>(name).expect("the table");
        let mut session = table.session(Options::default()).expect("a session");
        let mut pairs = Pairs::new();
        for pair in session.pairs() {
            let (key, entry) = pair.expect("a pair");
            assert!(pairs.insert(key, entry.value.to_vec()).is_none(), "{key} comes twice");
        }
        pairs
    }
}

fn value(key: i64, round: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..].copy_from_slice(&round.to_le_bytes());
    value
}

fn some_pairs() -> Pairs {
    let key = |number: i64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    (0..PAIRS).map(|number| (key(number), value(key(number), 0))).collect()
}

/// A place for copies.
fn place() -> (tempfile::TempDir, impl Fn(&str) -> String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_owned();
    (directory, move |name: &str| path.join(name).to_str().expect("text").to_owned())
}

/// Engines of so many nodes.
fn engines(nodes: usize) -> Vec<&'static EngineKind> {
    EngineKind::all().into_iter().filter(|kind| kind.nodes.contains(&nodes)).collect()
}

#[test]
fn tables_of_each_engine_come_back_in_each_other() {
    let (_directory, place) = place();
    let expected = some_pairs();
    let targets = [(1, Servers::start(1)), (2, Servers::start(2))];
    for (nodes, over, back_over) in [(1, "shm://", "tcp://"), (3, "tcp://", "shm://")] {
        let source = Servers::start(nodes);
        for engine in engines(nodes) {
            source.fill(engine.name, engine, ValueKind::Fixed(VALUE_BYTES as u16), &expected);
        }
        source.fill("empty", engines(nodes)[0], ValueKind::Fixed(8), &Pairs::new());
        let copy = place(&format!("of-{nodes}"));
        let said = source.ok(over, &["export", &copy]);
        assert!(said.contains("table rolex: 3,000 pairs"), "{said}");
        for (target_nodes, target) in &targets {
            for from in engines(nodes) {
                for to in engines(*target_nodes) {
                    let name = format!("{}-of-{}-{nodes}", to.name, from.name);
                    let import =
                        ["import", &copy, from.name, "--as", &name, "--engine", to.name, "--memory", "16M"];
                    let said = target.ok(back_over, &import);
                    assert_eq!(said, format!("table {name}: 3,000 pairs\n"));
                    let info = target.connect().describe_table(&name).expect("the table");
                    assert_eq!(info.engine.name, to.name);
                    assert!(target.pairs(&name) == expected, "{name} on {target_nodes} nodes");
                }
            }
            let name = format!("empty-{nodes}");
            target.ok(back_over, &["import", &copy, "empty", "--as", &name, "--memory", "16M"]);
            assert_eq!(target.pairs(&name), Pairs::new());
        }
    }
    for (_, target) in &targets {
        assert!(target.tables().iter().all(|name| !name.starts_with("importing-")), "{:?}", target.tables());
    }
}

#[test]
fn values_of_any_length_keep_their_deadlines() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (_directory, place) = place();
    let (source, target) = (Servers::start(1), Servers::start(2));
    let values = ValueKind::blocks(1 << 20).expiring(0);
    let lengths = [0, 1, 300, 20_000, 300_000];
    let pairs: Pairs = (0..200).map(|key| (key, vec![key as u8; lengths[key as usize % 5]])).collect();
    source.fill("long", EngineKind::XSTORE, values, &pairs);
    let table = source.connect().table::<i64>("long").expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    session.put_for(1_000, b"ended", Duration::ZERO).expect("a put");
    session.put_for(1_001, b"an hour", HOUR).expect("a put");
    let left = |session: &mut farsight::Session<i64>, key| session.time_to_live(key).expect("a look");
    let before = left(&mut session, 1_001);
    source.ok("tcp://", &["export", &place("long")]);
    let said = target.ok("shm://", &["import", &place("long")]);
    assert_eq!(said, "table long: 201 pairs\n", "what has ended is not copied");
    let mut expected = pairs;
    expected.insert(1_001, b"an hour".to_vec());
    assert!(target.pairs("long") == expected);
    let table = target.connect().table::<i64>("long").expect("the table");
    assert_eq!(table.engine(), EngineKind::XSTORE_D, "what XStore is called there");
    let mut session = table.session(Options::default()).expect("a session");
    let (Some(Lifetime::For(before)), Some(Lifetime::For(after))) = (before, left(&mut session, 1_001))
    else {
        panic!("the pair ends");
    };
    // The instant is the same, by clocks of one host.
    assert!(after <= before + Duration::from_secs(1) && after > HOUR / 2, "{before:?}, then {after:?}");
    assert_eq!(left(&mut session, 7), Some(Lifetime::Endless));
    // Values of FlexKV are shorter.
    let error = target.fails("shm://", &["import", &place("long"), "--engine", "flexkv", "--as", "other"]);
    assert!(error.contains("limit of 1 to 16216 B, not 300000 B"), "{error}");
    let ending = ValueKind::BLOCKS.expiring(HOUR.as_millis() as u64);
    source.fill("ending", EngineKind::XSTORE, ending, &Pairs::from([(7, vec![7; 99]), (8, vec![8; 99])]));
    let table = source.connect().table::<i64>("ending").expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    session.put_for(8, b"ended", Duration::ZERO).expect("a put");
    source.ok("shm://", &["export", &place("ending"), "ending"]);
    let said = target.ok("shm://", &["import", &place("ending"), "--engine", "flexkv"]);
    assert_eq!(said, "table ending: 1 pairs\n");
    let table = target.connect().table::<i64>("ending").expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    let stays = left(&mut session, 7);
    assert!(matches!(stays, Some(Lifetime::For(left)) if left <= HOUR && left > HOUR / 2), "{stays:?}");
    // Back from a table of FlexKV, by a walk.
    target.ok("tcp://", &["export", &place("hashed"), "ending"]);
    assert_eq!(
        source.ok("tcp://", &["import", &place("hashed"), "--as", "again", "--engine", "xstore"]),
        "table again: 1 pairs\n"
    );
    let table = source.connect().table::<i64>("again").expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    let again = left(&mut session, 7);
    assert!(matches!(again, Some(Lifetime::For(left)) if left <= HOUR && left > HOUR / 2), "{again:?}");
    source.fill(
        "short",
        EngineKind::XSTORE,
        ValueKind::BLOCKS,
        &(0..50).map(|key| (key, vec![7; 99])).collect(),
    );
    source.ok("shm://", &["export", &place("short"), "short"]);
    target.ok(
        "tcp://",
        &["import", &place("short"), "--engine", "flexkv", "--replicas", "2", "--memory", "32M"],
    );
    assert_eq!(target.pairs("short").len(), 50);
    let definition = target.connect().describe_table("short").expect("the table").definition;
    assert_eq!((definition.replicas, definition.values), (Some(2), EngineKind::FLEXKV.longest_values()));
    let error = target.fails("tcp://", &["import", &place("long"), "--engine", "rolex", "--as", "other"]);
    assert!(error.contains("rolex has values of one size alone"), "{error}");
}

#[test]
fn keys_of_any_length_come_back() {
    let (_directory, place) = place();
    let (source, target) = (Servers::start(2), Servers::start(1));
    let names = ["", "k", "ada@example.org", "0x00ff00", &"x".repeat(9_000)].map(str::to_owned);
    source.ok("shm://", &["create", "users", "--keys", "bytes", "--values", "blocks", "--memory", "16M"]);
    for (number, name) in names.iter().enumerate() {
        source.ok("tcp://", &["put", "users", name, &format!("value {number}")]);
    }
    source.ok("tcp://", &["export", &place("users")]);
    assert_eq!(
        target.ok("shm://", &["import", &place("users"), "--memory", "16M"]),
        "table users: 5 pairs\n"
    );
    let mut get = vec!["get", "users"];
    get.extend(names.iter().map(String::as_str));
    assert_eq!(target.ok("shm://", &get), source.ok("shm://", &get));
    let error = target.fails("tcp://", &["import", &place("users"), "--engine", "xstore", "--as", "other"]);
    assert!(error.contains("keys of xstore have eight bytes"), "{error}");
    let table = target.connect().table::<[u8]>("users").expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    let mut keys: Vec<usize> = session.pairs().map(|pair| pair.expect("a pair").0.len()).collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 3, 15, 9_000]);
}

/// Keys that nobody touches are in the copy with their value; others with one that they had, or not at all.
fn export_beside_writers(nodes: usize, engine: &'static EngineKind, over: &str) {
    let (_directory, place) = place();
    let (source, target) = (Servers::start(nodes), Servers::start(1));
    let all = some_pairs();
    let (quiet, busy): (Vec<i64>, Vec<i64>) = all.keys().partition(|key| *key % 3 == 0);
    let quiet: Pairs = quiet.into_iter().map(|key| (key, value(key, 0))).collect();
    source.fill("t", engine, ValueKind::Fixed(VALUE_BYTES as u16), &quiet);
    let is_over = Mutex::new(false);
    std::thread::scope(|scope| {
        let busy = &busy;
        for own in busy.chunks(busy.len().div_ceil(2)) {
            let (client, is_over) = (source.connect(), &is_over);
            scope.spawn(move || {
                let table = client.table::<i64>("t").expect("the table");
                let mut session = table.session(Options::default()).expect("a session");
                let mut round = 0;
                while !*is_over.lock().expect("no panic") {
                    round += 1;
                    for some in own.chunks(64) {
                        let pairs: Vec<_> = some.iter().map(|key| (*key, value(*key, round % 5))).collect();
                        session.put_many(&pairs, &mut Vec::new()).expect("puts");
                        let some: Vec<_> = some.iter().copied().step_by(3).collect();
                        session.remove_many(&some, &mut Vec::new()).expect("removals");
                    }
                }
            });
        }
        let export = |number: i32| source.run(over, &["export", &place(&number.to_string())]);
        let exports: Vec<Ended> = (0..4).map(export).collect();
        *is_over.lock().expect("no panic") = true;
        assert!(exports.iter().all(|ended| ended.code == Some(0)), "{exports:?}");
    });
    for number in 0..4 {
        let name = format!("t{number}");
        let import = ["import", &place(&number.to_string()), "--engine", "xstore", "--as", &name];
        target.ok("shm://", &import);
        let mut pairs = target.pairs(&name);
        for (key, value) in &quiet {
            assert_eq!(pairs.remove(key).as_ref(), Some(value), "{key}, which nobody touches");
        }
        for key in &busy {
            let had = |found: &Vec<u8>| (0..5).any(|round| *found == value(*key, round));
            assert!(pairs.remove(key).as_ref().is_none_or(had), "{key} has a value that nobody gave it");
        }
        assert_eq!(pairs, Pairs::new(), "keys that nobody wrote");
    }
}

#[test]
fn a_flexkv_table_is_copied_beside_writers() {
    export_beside_writers(2, EngineKind::FLEXKV, "tcp://");
}

#[test]
fn a_rolex_table_is_copied_beside_writers() {
    export_beside_writers(2, EngineKind::ROLEX, "shm://");
}

#[test]
fn what_was_cut_or_changed_is_refused() {
    let (directory, place) = place();
    let servers = Servers::start(1);
    let pairs = some_pairs();
    servers.fill("t", EngineKind::FLEXKV, ValueKind::Fixed(VALUE_BYTES as u16), &pairs);
    servers.ok("shm://", &["export", &place("sound")]);
    let sound = directory.path().join("sound");
    let file = |name: &str| std::fs::read(sound.join(name)).expect("a file of the copy");
    let (manifest, table) = (file("copy"), file("table-t"));
    let with = |changed: &str, bytes: Option<&[u8]>| -> PathBuf {
        let copy = directory.path().join("changed");
        let _ = std::fs::remove_dir_all(&copy);
        std::fs::create_dir(&copy).expect("a directory");
        for (name, sound) in [("copy", &manifest), ("table-t", &table)] {
            let bytes = if name == changed { bytes } else { Some(&sound[..]) };
            if let Some(bytes) = bytes {
                std::fs::write(copy.join(name), bytes).expect("a file");
            }
        }
        copy
    };
    let refused = |copy: &Path| {
        let copy = copy.to_str().expect("text");
        let error = servers.fails("shm://", &["import", copy, "--as", "u"]);
        assert!(error.contains(copy), "{error}");
        assert_eq!(servers.tables(), ["t"], "nothing is left behind");
        error
    };
    let error = refused(&with("copy", None));
    assert!(error.contains("kept last, so there is no copy, or one that was cut"), "{error}");
    let error = refused(&with("table-t", None));
    assert!(error.contains("table-t is missing: the manifest names it"), "{error}");
    for cut in [0, 1, 15, 16, 30, table.len() / 2, table.len() - 1] {
        let error = refused(&with("table-t", Some(&table[..cut])));
        assert!(error.contains("damaged at byte"), "{error}");
        assert!(error.contains(&format!("{cut} B")), "{error}");
    }
    for at in (0..table.len()).step_by(table.len() / 12).chain([8, 16, 20, 32, table.len() - 1]) {
        let mut flipped = table.clone();
        flipped[at] ^= 1 << (at % 8);
        let error = refused(&with("table-t", Some(&flipped)));
        let is_told = error.contains("expected") && error.contains("got") || error.contains("of version");
        assert!(is_told, "byte {at}: {error}");
    }
    let error = refused(&with("table-t", Some(&[&table[..], b"more"].concat())));
    assert!(error.contains("bytes of the file: expected"), "{error}");
    for at in (0..manifest.len()).step_by(9) {
        let mut flipped = manifest.clone();
        flipped[at] ^= 1 << (at % 8);
        let error = refused(&with("copy", Some(&flipped)));
        assert!(error.contains("expected") || error.contains("version"), "byte {at}: {error}");
        refused(&with("copy", Some(&manifest[..at])));
    }
    servers.ok("shm://", &["import", &place("sound"), "--as", "u", "--engine", "rolex"]);
    assert!(servers.pairs("u") == pairs);
}

#[test]
fn what_is_there_is_left_alone() {
    let (_directory, place) = place();
    let servers = Servers::start(1);
    servers.fill("t", EngineKind::FLEXKV, ValueKind::Fixed(VALUE_BYTES as u16), &some_pairs());
    servers.ok("shm://", &["export", &place("copy"), "t"]);
    let error = servers.fails("shm://", &["export", &place("copy"), "t"]);
    assert!(error.contains("already: a copy gets a place of its own"), "{error}");
    let error = servers.fails("shm://", &["export", &place("other"), "t", "u"]);
    assert!(error.contains("no table is called \"u\""), "{error}");
    let error = servers.fails("shm://", &["import", &place("other")]);
    assert!(error.contains("no copy, or one that was cut"), "{error}");
    let error = servers.fails("shm://", &["import", &place("copy")]);
    assert!(error.contains("table \"t\" is there already"), "{error}");
    let error = servers.fails("shm://", &["import", &place("copy"), "v"]);
    assert!(error.contains("has no table \"v\"; it has t"), "{error}");
    let error = servers.fails("shm://", &["import", &place("copy"), "--as", "a name"]);
    assert!(error.contains("allowed are letters"), "{error}");
    servers.ok("shm://", &["create", "importing-new"]);
    let error = servers.fails("shm://", &["import", &place("copy"), "--as", "new"]);
    assert!(error.contains("an import that was cut has left it"), "{error}");
    // Its table is dropped when there is no room for all pairs.
    let long: Pairs = (0..2_000).map(|key| (key, vec![7; 2_000])).collect();
    servers.fill("long", EngineKind::FLEXKV, EngineKind::FLEXKV.longest_values(), &long);
    servers.ok("shm://", &["export", &place("long"), "long"]);
    let error = servers.fails("shm://", &["import", &place("long"), "--as", "w", "--memory", "2M"]);
    assert!(error.contains("table \"importing-w\"") && error.contains("region is full"), "{error}");
    assert_eq!(servers.tables().len(), 3, "{:?}", servers.tables());
}
