//! Servers with a directory of data, killed while clients write.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farsight::{Client, ConnectOptions, Options, ServerUrl, Table, TableOptions, ValueKind, WriteOutcome};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Serve, program, start, wait};

/// Kills of one server, one after the other: a hundred in the four tests.
const KILLS: u64 = 25;
pub(crate) const WRITERS: u64 = 4;
/// More than a writer takes for a write on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Backups of one server.
const BACKUPS: u64 = 3;
/// Keys of a writer that it writes again and again; all others are new ones.
const REWRITTEN: u64 = 50;
/// Where a writer's new keys begin.
const NEW: u64 = 1 << 31;

/// What each writer was told.
pub(crate) type Acknowledged = Mutex<Vec<u64>>;

fn client(serve: &Serve, over: &str) -> Client {
    let mut urls = serve.ready.split_whitespace().filter_map(|word| word.strip_prefix("url="));
    let url = urls.find(|url| url.starts_with(over)).expect("it listens there");
    let url: ServerUrl = url.parse().expect("as it says");
    // A client of a killed server need not wait for the next one.
    let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
    Client::connect_with(&url, &options).expect("a server")
}

/// The values of the table.
pub(crate) const FIXED: ValueKind = ValueKind::Fixed(16);
pub(crate) const BLOCKS: ValueKind = ValueKind::blocks(4_000);

/// What a writer writes: its count, and itself; in a table of blocks, as often as the count says.
fn value_of(count: u64, writer: u64, values: ValueKind) -> Vec<u8> {
    let times = if values.are_blocks() { 1 + count % 200 } else { 1 };
    [count, writer].map(u64::to_le_bytes).concat().repeat(times as usize)
}

/// Counts up until the server is gone or `is_done`, and notes what was acknowledged.
fn write_until(
    (client, values): (&Client, ValueKind),
    writer: u64,
    from: u64,
    acknowledged: &Acknowledged,
    is_done: impl Fn() -> bool,
) {
    let options = TableOptions::default();
    let table = client.create_table_of::<u64>("counted", values, &options).expect("a table");
    count_up(&table, writer, from, acknowledged, is_done);
}

/// Counts up in a table of this client.
pub(crate) fn count_up(
    table: &Table<u64>,
    writer: u64,
    from: u64,
    acknowledged: &Acknowledged,
    is_done: impl Fn() -> bool,
) {
    let values = table.info().definition.values;
    let mut session = table.session(Options::default()).expect("a session");
    for count in (from..).take_while(|_| !is_done()) {
        let value = value_of(count, writer, values);
        let (own, new) = ((writer << 32) + count % REWRITTEN, (writer << 32) + NEW + count);
        let put = session.put(own, &value).and_then(|_| session.put(new, &value));
        match put {
            // The last life may have written it, and not have said so.
            Ok(WriteOutcome::Replaced(_)) if count == from => {}
            Ok(WriteOutcome::Inserted(_)) => {}
            Ok(other) => panic!("key {new:#x} was there: {other:?}"),
            Err(_) => return,
        }
        acknowledged.lock().expect("no panic")[writer as usize] = count;
    }
}

/// Reads what the lives before have acknowledged, until the server is gone.
pub(crate) fn read(client: &Client, acknowledged: &[u64]) {
    let table = client.table::<u64>("counted").expect("it came back");
    let values = table.info().definition.values;
    let mut session = table.session(Options::default()).expect("a session");
    for round in 0_u64.. {
        let writer = round % WRITERS;
        let count = 1 + round * 7919 % acknowledged[writer as usize].max(1);
        match session.get((writer << 32) + NEW + count) {
            Ok(Some(found)) => assert_eq!(found.value[..], value_of(count, writer, values)),
            Ok(None) => panic!("write {count} of writer {writer} is lost"),
            Err(_) => return,
        }
    }
}

/// Every write that was acknowledged is there.
pub(crate) fn check(client: &Client, acknowledged: &[u64]) -> u64 {
    let table = client.table::<u64>("counted").expect("it came back");
    let values = table.info().definition.values;
    let mut session = table.session(Options::default()).expect("a session");
    let mut checked = 0;
    for (writer, last) in acknowledged.iter().enumerate() {
        let writer = writer as u64;
        for count in 1..=*last {
            let found = session.get((writer << 32) + NEW + count).expect("an answer");
            let found = found.unwrap_or_else(|| panic!("write {count} of {last} of writer {writer} is lost"));
            assert_eq!(found.value[..], value_of(count, writer, values));
            checked += 1;
        }
        for count in last.saturating_sub(REWRITTEN - 1).max(1)..=*last {
            let found =
                session.get((writer << 32) + count % REWRITTEN).expect("an answer").expect("rewritten");
            let found = u64::from_le_bytes(found.value[..8].try_into().expect("eight bytes"));
            assert!(found >= count, "writer {writer} was told of {count}, and finds {found}");
        }
    }
    checked
}

/// Whether each writer was told of a write since.
pub(crate) fn has_grown(acknowledged: &Acknowledged, before: &[u64]) -> bool {
    let now = acknowledged.lock().expect("no panic");
    now.iter().zip(before).all(|(now, before)| now > before)
}

fn kill_again_and_again(over: &str, ack: &str, values: ValueKind) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data").display().to_string();
    let arguments = ["--data", &data, "--ack", ack, "--listen", "tcp://127.0.0.1:0"];
    let mut serve = Serve::start_with(directory, &arguments);
    let acknowledged = Mutex::new(vec![0; WRITERS as usize]);
    for kill in 0..KILLS {
        let before = acknowledged.lock().expect("no panic").clone();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (serve, acknowledged, from) = (&serve, &acknowledged, before[writer as usize] + 1);
                scope.spawn(move || {
                    write_until((&client(serve, over), values), writer, from, acknowledged, || false);
                });
            }
            // The first life has no table until a writer has made it.
            if kill > 0 {
                scope.spawn(|| read(&client(&serve, over), &before));
            }
            // Every other life is killed while it makes snapshots, or behind them.
            if kill % 2 == 1 {
                let client = client(&serve, over);
                scope.spawn(move || while client.snapshot().is_ok() {});
            }
            std::thread::sleep(Duration::from_millis(100 + 40 * (kill % 5)));
            // On a loaded machine that is too short for some writer.
            let deadline = Instant::now() + PATIENCE;
            while !has_grown(&acknowledged, &before) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            kill_process(Pid::from_child(&serve.child), Signal::KILL).expect("the server is there");
        });
        assert!(has_grown(&acknowledged, &before), "writers came to nothing");
        let last = acknowledged.lock().expect("no panic").clone();
        serve = serve.kill_and_start(&arguments);
        let checked = check(&client(&serve, over), &last);
        println!("{over} {ack}: after kill {kill} {checked} acknowledged writes were found");
    }
}

#[test]
fn every_acknowledged_write_survives_kills_over_shared_memory() {
    kill_again_and_again("shm://", "durable", FIXED);
}

#[test]
fn every_acknowledged_write_survives_kills_over_tcp() {
    kill_again_and_again("tcp://", "durable", FIXED);
}

#[test]
fn values_of_any_length_survive_kills() {
    kill_again_and_again("shm://", "durable", BLOCKS);
}

#[test]
fn kills_lose_nothing_that_is_acknowledged_in_memory() {
    kill_again_and_again("shm://", "memory", BLOCKS);
}

/// Backups are made of a server under writers; each is a server that has all that was acknowledged before.
#[test]
fn a_backup_of_a_server_under_writers_has_all_that_was_acknowledged_before() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let data = path("data");
    let serve = Serve::start_with(tempfile::tempdir().expect("a temporary directory"), &["--data", &data]);
    let (acknowledged, is_done) = (Mutex::new(vec![0; WRITERS as usize]), Mutex::new(false));
    let backups: Vec<(String, Vec<u64>)> = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (serve, acknowledged, is_done) = (&serve, &acknowledged, &is_done);
            let stop = || *is_done.lock().expect("no panic");
            scope.spawn(move || {
                write_until((&client(serve, "shm://"), BLOCKS), writer, 1, acknowledged, stop);
            });
        }
        let backups = (0..BACKUPS).map(|number| {
            std::thread::sleep(Duration::from_millis(200));
            let before = acknowledged.lock().expect("no panic").clone();
            let place = path(&format!("backup-{number}"));
            let made = wait(start(program().args(["backup", &data, &place])));
            assert_eq!(made.code, Some(0), "{made:?}");
            assert!(made.out.contains("tables 1"), "{made:?}");
            (place, before)
        });
        let backups = backups.collect();
        *is_done.lock().expect("no panic") = true;
        backups
    });
    for (number, (place, before)) in backups.iter().enumerate() {
        let data = path(&format!("restored-{number}"));
        let restored = wait(start(program().args(["restore", place, &data])));
        assert_eq!(restored.code, Some(0), "{restored:?}");
        let serve =
            Serve::start_with(tempfile::tempdir().expect("a temporary directory"), &["--data", &data]);
        assert!(check(&client(&serve, "shm://"), before) > 0);
        let again = wait(start(program().args(["restore", place, &data]))).into_error("restore");
        assert!(again.contains("in use by another process"), "{again}");
    }
    let again = wait(start(program().args(["backup", &data, &backups[0].0]))).into_error("backup");
    assert!(again.contains("a place of its own"), "{again}");
    let none = wait(start(program().args(["restore", &path("none"), &path("new")]))).into_error("restore");
    assert!(none.contains("none"), "{none}");
}

#[test]
fn ages_of_pieces_are_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data").display().to_string();
    let mut serve = Serve::start_with(directory, &["--data", &data]);
    serve.ok(&["create", "prices", "--value-size", "16"]);
    serve.ok(&["put", "prices", "1", "one"]);
    serve.ok(&["snapshot"]);
    let stats = serve.ok(&["stats"]);
    assert!(stats.contains("that a restart reads") && stats.contains("left for damage 0"), "{stats}");
    assert!(stats.contains("pieces 1: the oldest"), "{stats}");
    let json: serde_json::Value = serde_json::from_str(&serve.ok(&["stats", "--json"])).expect("JSON");
    let snapshot = &json["tables"][0]["snapshot"];
    assert!(snapshot["pieces"] == 1 && snapshot["oldest_ms"] == snapshot["median_ms"], "{snapshot}");
    assert!(snapshot["oldest_ms"].as_u64().is_some_and(|written_ms| written_ms > 0), "{snapshot}");
    assert!(json["data"]["replay_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{}", json["data"]);
    // Other checks may warn of this machine.
    let doctor = serve.run(&["doctor"]).out;
    assert!(
        doctor.contains("ok    snapshots") && doctor.contains("pieces 1, of table \"prices\" the oldest"),
        "{doctor}"
    );
    serve.kill();
    let verified = wait(start(program().args(["verify", &data]))).out;
    assert!(verified.contains("the oldest") && verified.contains("that a start reads"), "{verified}");
}

#[test]
fn data_are_verified_and_listed_while_no_server_uses_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data").display().to_string();
    let serve = Serve::start_with(directory, &["--data", &data]);
    serve.ok(&["create", "prices", "--value-size", "16"]);
    serve.ok(&["put", "prices", "1", "one"]);
    serve.ok(&["put", "prices", "2", "two"]);
    serve.ok(&["delete", "prices", "1"]);
    serve.ok(&["create", "texts", "--values", "blocks"]);
    serve.ok(&["put", "texts", "1", "a text of more than a fixed value holds"]);
    let stats = serve.ok(&["stats"]);
    assert!(
        stats.contains("acknowledged when durable") && stats.contains("rounds of snapshots 0"),
        "{stats}"
    );
    let online = serve.ok(&["verify"]);
    assert!(online.contains("prices") && online.matches("all right").count() == 2, "{online}");
    let json: serde_json::Value = serde_json::from_str(&serve.ok(&["verify", "--json"])).expect("JSON");
    let prices = serde_json::json!({ "name": "prices", "engine": "xstore", "pairs": 1, "failure": null });
    assert_eq!((&json["tables"][0], &json["repaired_leaves"]), (&prices, &0.into()), "{json}");
    let used = wait(start(program().args(["verify", &data]))).into_error("verify");
    assert!(used.contains("in use by another process"), "{used}");
    let second = program().args(["serve", "--data", &data, "--socket", "/tmp/never.sock"]).output();
    let second = String::from_utf8_lossy(&second.expect("it ends").stderr).into_owned();
    assert!(second.contains("in use by another process"), "{second}");
    let rolex = serve.fails(&["create", "pooled", "--engine", "rolex"]);
    assert!(rolex.contains("rolex") && rolex.contains("--data"), "{rolex}");

    let mut serve = serve;
    serve.kill();
    let offline = |arguments: &[&str]| wait(start(program().args(arguments)));
    let verified = offline(&["verify", &data]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains("prices") && verified.out.contains("none made"), "{}", verified.out);
    let json: serde_json::Value =
        serde_json::from_str(&offline(&["verify", &data, "--json"]).out).expect("JSON");
    let prices = serde_json::json!({
        "name": "prices", "id": 0, "snapshot_pairs": null, "oldest_piece_ms": null, "median_piece_ms": null,
        "records": 3
    });
    assert_eq!(
        (&json["tables"][0], &json["lives"], &json["cut"]),
        (&prices, &1.into(), &().into()),
        "{json}"
    );
    let log = offline(&["log", &data]).out;
    for words in [
        "prices version 1: 1 = one",
        "prices version 2: 2 = two",
        "prices version 3: 1 removed",
        "texts version 1: 1 = a text of",
    ] {
        assert!(log.contains(words), "{log}");
    }

    let segment = std::path::Path::new(&data).join("log-0000000000000001");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    bytes[512 + 60] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let damaged = offline(&["verify", &data]).into_error("verify");
    assert!(
        damaged.contains("log-0000000000000001 is damaged at byte 512, in records of table 0"),
        "{damaged}"
    );
    let refused = program().args(["serve", "--data", &data, "--socket", "/tmp/never.sock"]).output();
    let refused = String::from_utf8_lossy(&refused.expect("it ends").stderr).into_owned();
    assert!(refused.contains("is damaged at byte 512"), "{refused}");
}

#[test]
fn the_disk_of_a_directory_is_checked_and_left_as_it_was() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().display().to_string();
    let doctor = |data: &str| wait(start(program().args(["doctor", "--data", data]))).out;
    for data in [place.clone(), format!("{place}/not/yet")] {
        let found = doctor(&data);
        for words in ["file system", "free at", "fdatasync", "a single durable write takes as long"] {
            assert!(found.contains(words), "{data}: {found}");
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    let in_memory = doctor("/dev/shm/farsight");
    assert!(in_memory.contains("tmpfs") && in_memory.contains("ends with the machine"), "{in_memory}");
    let no_disk = doctor("/proc/farsight");
    assert!(no_disk.contains("warn  fdatasync") && no_disk.contains("ls -ld /proc"), "{no_disk}");
}

/// A disk that is looked at because it is suspect is mounted read-only.
#[test]
fn data_on_a_read_only_mount_are_verified() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data").display().to_string();
    let mut serve = Serve::start_with(directory, &["--data", &data]);
    serve.ok(&["create", "prices", "--value-size", "16"]);
    serve.ok(&["put", "prices", "1", "one"]);
    serve.kill();
    let mounted = |command: &str| {
        let mounts = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
        let script = format!("{mounts} || exit 77; exec {command}");
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--map-root-user", "sh", "-c", &script]);
        unshare.args([program().get_program(), OsStr::new(&data)]).env_remove("FARSIGHT_URL");
        wait(start(&mut unshare))
    };
    if mounted("true").code != Some(0) {
        println!("NOT RUN: this needs a mount namespace of its own");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "unshare --mount fails");
        return;
    }
    let verified = mounted("\"$0\" verify \"$1\"");
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.out.contains("prices"), "{}", verified.out);
    let lock = std::path::Path::new(&data).join("lock");
    std::fs::remove_file(lock).expect("a copy may have been made without it");
    assert_eq!(mounted("\"$0\" verify \"$1\"").code, Some(0));
}
