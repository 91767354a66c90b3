//! Commands that cannot work, and what they say.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::process::{Serve, program, start, url, wait};

/// Within which time a client must notice that its server is gone, on a machine that does nothing else.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// The same on a busy machine.
const BUSY_NOTICE_MAX: Duration = Duration::from_secs(10);
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);

fn serve_fails(socket: &std::path::Path) -> String {
    let mut command = program();
    command.args(["serve", "--socket"]).arg(socket);
    wait(start(&mut command)).into_error(command)
}

#[test]
fn wrong_tables_keys_and_values_are_named() {
    let serve = Serve::start();
    serve.ok(&["create", "prices", "--value-size", "16"]);
    let unknown = serve.fails(&["get", "price", "1"]);
    assert!(
        unknown.contains("\"price\"") && unknown.contains(&serve.socket().display().to_string()),
        "{unknown}"
    );
    assert!(serve.fails(&["put", "price", "1", "x"]).contains("\"price\""));
    assert!(serve.fails(&["stats", "price"]).contains("it has prices"));
    assert!(serve.fails(&["get", "prices", "one"]).contains("\"one\" is no u64"));
    assert!(serve.fails(&["get", "prices", "18446744073709551616"]).contains("no u64"));
    assert!(serve.fails(&["scan", "prices", "--from", "-1"]).contains("\"-1\" is no u64"));
    let long = serve.fails(&["put", "prices", "1", "seventeen bytes !"]);
    assert!(long.contains("17 B") && long.contains("16 B"), "{long}");
    assert!(serve.fails(&["put", "prices", "1", "0x00"]).contains("2 hexadecimal digits"));
    assert!(serve.fails(&["create", "x", "--value-size", "7"]).contains("8 to 256 B"));
    assert!(serve.fails(&["create", "x", "--value-size", "257"]).contains("8 to 256 B"));
    assert!(serve.fails(&["create", "a b"]).contains("' '"));
    let other = serve.fails(&["create", "prices", "--value-size", "8"]);
    assert!(other.contains("16 B") && other.contains("8 B"), "{other}");
    assert_eq!(serve.ok(&["scan", "prices"]), "", "nothing was stored");
}

#[test]
fn vectors_that_are_none_are_named() {
    let serve = Serve::start();
    let by = |vectors: &str| {
        let mut command = program();
        command.args(["stats", "--connect", &url(&serve.socket())]).env("FARSIGHT_VECTORS", vectors);
        (wait(start(&mut command)), command)
    };
    let (refused, command) = by("avx1024");
    let error = refused.into_error(command);
    assert!(error.contains("FARSIGHT_VECTORS is \"avx1024\"") && error.contains("portable, avx2"), "{error}");
    assert_eq!(by("portable").0.code, Some(0));
}

#[test]
fn sockets_that_are_none_are_named() {
    let serve = Serve::start();
    let directory = serve.directory.path();
    let fails = |socket: &std::path::Path| {
        let mut command = program();
        command.args(["get", "t", "1", "--connect", &url(socket)]);
        wait(start(&mut command)).into_error(command)
    };
    let missing = fails(&directory.join("missing.sock"));
    assert!(missing.contains("missing.sock") && missing.contains("farsight serve"), "{missing}");
    let nobody = fails(&directory.join("nowhere/test.sock"));
    assert!(nobody.contains("nowhere/test.sock"), "{nobody}");
    let long = fails(&directory.join("x".repeat(120)));
    assert!(long.contains("limit") && long.contains("107"), "{long}");
    let file = directory.join("file");
    std::fs::write(&file, "no socket").expect("a file can be written");
    assert!(fails(&file).contains(&file.display().to_string()));

    assert!(serve_fails(&directory.join("nowhere/test.sock")).contains("mkdir -p"));
    assert!(serve_fails(&directory.join("x".repeat(120))).contains("107"));
    assert!(serve_fails(&file).contains(&file.display().to_string()));
    assert_eq!(std::fs::read_to_string(&file).expect("it is still there"), "no socket");
}

#[test]
fn a_command_waits_for_a_server_only_if_it_is_asked_to_and_only_so_long() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = url(&directory.path().join("missing.sock"));
    let command = |wait: &str| {
        let mut command = program();
        command.args(["tables", "--connect", &missing, "--wait", wait]);
        start(&mut command)
    };
    let begun = Instant::now();
    assert!(wait(command("200ms")).into_error("tables").contains("missing.sock"));
    assert!(begun.elapsed() >= Duration::from_millis(200));
    for nonsense in ["-1s", "soon", "5"] {
        assert_eq!(wait(command(nonsense)).code, Some(2), "{nonsense}");
    }
    // One that begins to listen meanwhile is found.
    let waiting = command("60s");
    let server = directory.path().join("missing.sock");
    let mut server = start(program().args(["serve", "--memory", "64M", "--socket"]).arg(server));
    assert_eq!(wait(waiting).code, Some(0));
    server.kill().expect("the server can be killed");
    server.wait().expect("a killed server ends");
}

#[test]
fn urls_that_are_none_are_usage_errors() {
    for (text, part) in [
        ("tcp://host", "names no port"),
        ("redis://host", "known are shm, tcp and rdma"),
        ("/run/farsight.sock", "needs a scheme"),
        ("shm://run/farsight.sock", "shm:///run/farsight.sock"),
    ] {
        let ended = wait(start(program().args(["get", "t", "1", "--connect", text])));
        assert_eq!(ended.code, Some(2));
        assert!(ended.error.contains(part), "no {part:?} in {:?}", ended.error);
    }
}

#[test]
fn two_servers_do_not_share_a_socket() {
    let mut serve = Serve::start();
    serve.ok(&["create", "t"]);
    let error = serve_fails(&serve.socket());
    assert!(error.contains(&format!("pid {}", serve.child.id())), "{error}");
    serve.ok(&["put", "t", "1", "kept"]);

    // A dead server's socket is no obstacle.
    serve.kill();
    assert!(serve.socket().exists());
    let directory =
        std::mem::replace(&mut serve.directory, tempfile::tempdir().expect("a temporary directory"));
    let serve = Serve::start_in(directory);
    assert!(serve.fails(&["get", "t", "1"]).contains("\"t\""), "another life has other tables");
}

#[test]
fn commands_against_a_killed_server_fail_at_once() {
    let mut serve = Serve::start();
    serve.ok(&["load", "t", "dense", "--keys", "300000"]);
    // A scan that is in the middle of the table: its output fills the pipe, and it waits for a reader.
    let mut scan = start(&mut serve.command(&["scan", "t"]));
    let mut out = scan.stdout.take().expect("stdout is piped");
    let mut first_bytes = [0; 1 << 10];
    out.read_exact(&mut first_bytes).expect("the scan has begun");
    serve.kill();

    let begun = Instant::now();
    let rest = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let error = wait(scan).into_error("a scan");
    assert!(begun.elapsed() < BUSY_NOTICE_MAX, "noticed after {:?}", begun.elapsed());
    assert!(error.contains("is lost"), "{error}");
    rest.join().expect("the reader ends").expect("the pipe can be read");

    for arguments in [&["get", "t", "1"][..], &["put", "t", "1", "x"], &["scan", "t"], &["stats"]] {
        // A busy machine only adds to it: the quickest of five counts.
        let attempts = (0..5).map(|_| {
            let begun = Instant::now();
            let error = serve.fails(arguments);
            assert!(error.contains("test.sock"), "{error}");
            begun.elapsed()
        });
        let quickest = attempts.min().expect("five attempts");
        assert!(quickest < NOTICE_MAX, "{arguments:?} took {quickest:?}");
    }
}

#[test]
fn a_killed_client_leaves_nothing_behind() {
    let serve = Serve::start();
    serve.ok(&["load", "t", "dense", "--keys", "300000"]);
    let mut scan = start(&mut serve.command(&["scan", "t"]));
    let mut first_bytes = [0; 1 << 10];
    scan.stdout.take().expect("stdout is piped").read_exact(&mut first_bytes).expect("the scan has begun");
    scan.kill().expect("the client can be killed");
    scan.wait().expect("a killed client ends");
    let begun = Instant::now();
    loop {
        let stats: serde_json::Value = serde_json::from_str(&serve.ok(&["stats", "--json"])).expect("JSON");
        // The command that asks is one itself.
        if stats["clients"] == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the server keeps {} clients", stats["clients"]);
    }
    serve.ok(&["put", "t", "1", "x"]);
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let serve = Serve::start();
    serve.ok(&["load", "t", "dense", "--keys", "300000"]);
    let mut scan = start(&mut serve.command(&["scan", "t"]));
    let mut first_bytes = [0; 1 << 10];
    scan.stdout.take().expect("stdout is piped").read_exact(&mut first_bytes).expect("the scan has begun");
    let ended = wait(scan);
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""));
}

/// Bytes of live blocks.
fn live_bytes(serve: &Serve) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&serve.ok(&["stats", "--json"])).expect("JSON");
    stats["tables"][0]["blocks"]["live_bytes"].as_u64().expect("a number")
}

/// A load of long values is killed wherever it is: between two pieces, most of the time. What it had sent
/// is given back, or all of it shows.
#[test]
fn a_process_that_is_killed_between_pieces_leaves_nothing() {
    const LENGTH: usize = 12 << 20;
    let serve = Serve::start();
    serve.ok(&["create", "t", "--values", "blocks"]);
    let lines: Vec<String> = (0..6).map(|key| format!("{key},{}\n", "long".repeat(LENGTH / 4))).collect();
    let file = serve.file("long.csv", lines.concat().as_bytes());
    let begun = Instant::now();
    let mut load = start(&mut serve.command(&["load", "t", &file]));
    while live_bytes(&serve) == 0 && load.try_wait().expect("a child").is_none() {
        assert!(begun.elapsed() < PATIENCE, "nothing came in {PATIENCE:?}");
    }
    load.kill().expect("a child can be killed");
    load.wait().expect("a killed child ends");
    let begun = Instant::now();
    loop {
        let pairs = serve.ok(&["scan", "t", "--print", "keys"]).lines().count();
        assert!([0, 6].contains(&pairs), "{pairs} pairs of a load of 6");
        let expected = pairs * (32 + LENGTH).next_multiple_of(64);
        let got = live_bytes(&serve);
        if got == expected as u64 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{got} B are live, {expected} B of {pairs} pairs");
        std::thread::sleep(Duration::from_millis(10));
    }
}
