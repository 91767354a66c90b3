//! Commands that work.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Serve, program, start, url, wait};

#[test]
fn pairs_are_put_got_scanned_and_deleted() {
    let serve = Serve::start();
    assert_eq!(serve.ready, format!("ready url={} pid={}\n", url(&serve.socket()), serve.child.id()));
    assert_eq!(
        serve.ok(&["create", "prices", "--value-size", "16"]),
        "table prices of u64 keys with 16 B values\n"
    );
    serve.ok(&["create", "prices", "--value-size", "16"]);
    assert_eq!(serve.ok(&["put", "prices", "100", "hello"]), "inserted, version 1\n");
    assert_eq!(serve.ok(&["put", "prices", "0x64", "hello again"]), "replaced, version 2\n");
    assert_eq!(
        serve.ok(&["put", "prices", "7", "0x000102030405060708090a0b0c0d0e0f"]),
        "inserted, version 3\n"
    );
    assert_eq!(serve.ok(&["get", "prices", "100"]), "hello again\n");
    assert_eq!(
        serve.ok(&["get", "prices", "7", "100"]),
        "7\t0x000102030405060708090a0b0c0d0e0f\n100\thello again\n"
    );
    assert_eq!(
        serve.ok(&["get", "prices", "100", "--json"]),
        "{\"key\":\"100\",\"value\":\"hello again\",\"version\":2}\n"
    );
    assert_eq!(serve.ok(&["scan", "prices", "--from", "8"]), "100\thello again\n");
    assert_eq!(serve.ok(&["scan", "prices", "--reverse", "--limit", "1"]), "100\thello again\n");
    assert_eq!(
        serve.ok(&["floor", "prices", "100", "4711"]),
        "100\t100\thello again\n4711\t100\thello again\n"
    );
    assert!(serve.ok(&["lower", "prices", "100"]).starts_with("7\t0x00"));
    assert!(serve.ok(&["ceiling", "prices", "0"]).starts_with("7\t0x00"));
    assert_eq!(
        serve.ok(&["higher", "prices", "7", "--json"]),
        "{\"key\":\"100\",\"of\":\"7\",\"value\":\"hello again\",\"version\":2}\n"
    );
    let absent = serve.run(&["higher", "prices", "100"]);
    assert_eq!((absent.code, absent.out.as_str()), (Some(3), ""));
    assert_eq!(absent.error, "absent: higher of key 100 in table \"prices\"\n");
    assert_eq!(serve.ok(&["delete", "prices", "7"]), "removed 1 of 1\n");

    let absent = serve.run(&["get", "prices", "7"]);
    assert_eq!((absent.code, absent.out.as_str()), (Some(3), ""));
    assert_eq!(absent.error, "absent: key 7 in table \"prices\"\n");
    let absent = serve.run(&["delete", "prices", "7", "100"]);
    assert_eq!((absent.code, absent.out.as_str()), (Some(3), "removed 1 of 2\n"));
    assert_eq!(serve.ok(&["scan", "prices"]), "");
}

#[test]
fn a_table_says_its_memory_and_when_it_acknowledges() {
    let serve = Serve::start();
    serve.ok(&["create", "small", "--memory", "2M"]);
    serve.ok(&["create", "usual"]);
    let tables = serve.ok(&["tables"]);
    let small = tables.lines().find(|line| line.contains("small")).expect("its line");
    // Of leaves, and as much for published models: no region has less.
    assert!(small.contains("4.00 MiB"), "{tables}");
    let refused = serve.run(&["create", "vast", "--memory", "1000T"]);
    assert!(refused.error.contains("this node gives 2097152 to"), "{}", refused.error);
    serve.ok(&["create", "quick", "--ack", "memory"]);
    let no_disk = serve.run(&["create", "safe", "--ack", "durable"]);
    assert!(no_disk.error.contains("start it with --data DIR"), "{}", no_disk.error);
    let other = serve.run(&["create", "small", "--memory", "3M"]);
    assert!(other.error.contains("exists"), "{}", other.error);
}

#[test]
fn pairs_end_at_their_deadlines() {
    let serve = Serve::start();
    let refused = serve.run(&["create", "plain", "--ttl", "1s"]);
    assert!(refused.error.contains("add --values blocks"), "{}", refused.error);
    assert_eq!(
        serve.ok(&["create", "tokens", "--values", "blocks", "--ttl", "1d"]),
        "table tokens of u64 keys with up to 16777216 B values, staying 1d\n"
    );
    let other = serve.run(&["create", "tokens", "--values", "blocks"]);
    assert!(other.error.contains("values of up to 16777216 B that end after 86400000 ms"), "{}", other.error);
    serve.ok(&["put", "tokens", "1", "a day"]);
    serve.ok(&["put", "tokens", "2", "at once", "--ttl", "0s"]);
    serve.ok(&["put", "tokens", "3", "hours", "--ttl", "3h"]);
    assert_eq!(serve.ok(&["scan", "tokens"]), "1\ta day\n3\thours\n");
    assert_eq!(serve.run(&["get", "tokens", "2"]).code, Some(3));
    assert_eq!(serve.run(&["ttl", "tokens", "2"]).code, Some(3));
    assert!(serve.ok(&["ttl", "tokens", "1"]).starts_with("23h 5"));
    assert!(serve.ok(&["ttl", "tokens", "3"]).starts_with("2h 5"));
    assert_eq!(serve.ok(&["ttl", "tokens", "3", "--endless"]), "endless\n");
    assert_eq!(serve.ok(&["ttl", "tokens", "3"]), "endless\n");
    assert_eq!(serve.ok(&["ttl", "tokens", "3", "--set", "0ms"]), "0ms\n");
    assert_eq!(serve.ok(&["scan", "tokens"]), "1\ta day\n");
    serve.ok(&["create", "texts", "--values", "blocks"]);
    let refused = serve.run(&["put", "texts", "1", "x", "--ttl", "1s"]);
    assert!(refused.error.contains("pairs of table \"texts\" have no deadlines"), "{}", refused.error);
    let hashed =
        ["create", "names", "--engine", "flexkv", "--keys", "bytes", "--values", "blocks", "--ttl", "1d"];
    assert!(serve.ok(&hashed).ends_with("staying 1d\n"));
    serve.ok(&["put", "names", "a day", "x"]);
    serve.ok(&["put", "names", "at once", "x", "--ttl", "0s"]);
    assert!(serve.ok(&["ttl", "names", "a day"]).starts_with("23h 5"));
    assert_eq!(serve.run(&["get", "names", "at once"]).code, Some(3));
}

#[test]
fn values_of_any_length_are_put_got_scanned_and_loaded() {
    let serve = Serve::start();
    assert_eq!(
        serve.ok(&["create", "texts", "--values", "blocks"]),
        "table texts of u64 keys with up to 16777216 B values\n"
    );
    let long = "long-".repeat(6_000);
    assert_eq!(serve.ok(&["put", "texts", "1", &long]), "inserted, version 1\n");
    assert_eq!(serve.ok(&["put", "texts", "2", ""]), "inserted, version 2\n");
    assert_eq!(serve.ok(&["put", "texts", "3", "0x0a00"]), "inserted, version 3\n");
    assert_eq!(serve.ok(&["get", "texts", "1"]), format!("{long}\n"));
    assert_eq!(serve.ok(&["scan", "texts", "--from", "2"]), "2\t\n3\t0x0a00\n");
    assert_eq!(serve.ok(&["scan", "texts", "--print", "keys"]), "1\n2\n3\n");
    assert_eq!(serve.ok(&["scan", "texts", "--print", "keys", "--reverse", "--limit", "2"]), "3\n2\n");
    assert_eq!(serve.ok(&["scan", "texts", "--print", "count", "--from", "2"]), "2\n");
    assert!(serve.fails(&["scan", "texts", "--print", "count", "--limit", "2"]).contains("no limit"));
    assert_eq!(serve.ok(&["put", "texts", "1", "short"]), "replaced, version 4\n");
    assert_eq!(serve.ok(&["floor", "texts", "1"]), "1\tshort\n");
    assert_eq!(serve.ok(&["delete", "texts", "2"]), "removed 1 of 1\n");
    serve.ok(&["create", "limited", "--values", "blocks", "--value-size", "32000"]);
    let refused = serve.run(&["put", "limited", "1", &"x".repeat(32_001)]);
    assert!(refused.error.contains("values of up to 32000 B"), "{}", refused.error);
    let stats = serve.ok(&["stats", "texts"]);
    assert!(
        stats.contains("up to 16777216 B values") && stats.contains("live") && stats.contains("quarantined")
    );
    let refused = serve.run(&["create", "far", "--values", "blocks", "--value-size", "16777217"]);
    assert!(refused.error.contains("16777216 B"), "{}", refused.error);
    let refused = serve.run(&["create", "pooled", "--values", "blocks", "--engine", "rolex"]);
    assert!(refused.error.contains("rolex has values of one size alone"), "{}", refused.error);

    // Longer than any message.
    let longest = "longest-".repeat(30_000);
    let file = serve.file("longest.csv", format!("1,{longest}\n2,short\n").as_bytes());
    serve.ok(&["load", "longest", &file, "--values", "blocks"]);
    assert_eq!(serve.ok(&["get", "longest", "1"]), format!("{longest}\n"));
    assert_eq!(serve.ok(&["scan", "longest"]), format!("1\t{longest}\n2\tshort\n"));

    let file = serve.file("texts.csv", format!("7,seven\n5,\n6,{long}\n7,7\n").as_bytes());
    let loaded = serve.ok(&["load", "loaded", &file, "--values", "blocks"]);
    assert!(loaded.starts_with("3 pairs into table loaded"), "{loaded}");
    assert_eq!(serve.ok(&["scan", "loaded"]), format!("5\t\n6\t{long}\n7\t7\n"));
    serve.ok(&["load", "loaded", &file]);
    let refused = serve.run(&["load", "loaded", &file, "--values", "fixed"]);
    assert!(refused.error.contains("exists with values of up to 16777216 B"), "{}", refused.error);
}

#[test]
fn tables_are_dropped_renamed_and_swapped() {
    let serve = Serve::start();
    for (table, value) in [("old", "one"), ("new", "two")] {
        serve.ok(&["create", table]);
        serve.ok(&["put", table, "1", value]);
    }
    assert_eq!(serve.ok(&["rename", "--swap", "old", "new"]), "swapped old and new\n");
    assert_eq!(serve.ok(&["get", "old", "1"]), "two\n");
    assert_eq!(serve.ok(&["rename", "new", "older"]), "renamed new to older\n");
    assert_eq!(serve.ok(&["get", "older", "1"]), "one\n");
    let taken = serve.run(&["rename", "old", "older"]);
    assert_eq!(taken.code, Some(1));
    assert!(taken.error.contains("another table is. Drop it, or swap both"), "{}", taken.error);
    assert_eq!(serve.ok(&["drop", "older", "old"]), "dropped older\ndropped old\n");
    let gone = serve.run(&["drop", "old"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.error.contains("no table is called \"old\""), "{}", gone.error);
    assert_eq!(serve.ok(&["tables", "--json"]), "[]\n");
}

#[test]
fn each_kind_of_key_has_its_order_and_its_text() {
    let serve = Serve::start();
    let check = |kind: &str, keys: [&str; 4]| {
        serve.ok(&["create", kind, "--keys", kind]);
        // Backwards, so that the order is the table's.
        for key in keys.iter().rev() {
            serve.ok(&["put", kind, key, key]);
            assert_eq!(serve.ok(&["get", kind, key]), format!("{key}\n"));
        }
        let expected = keys.iter().map(|key| format!("{key}\t{key}\n")).collect::<Vec<_>>().concat();
        assert_eq!(serve.ok(&["scan", kind]), expected);
        let within = keys[1..3].iter().map(|key| format!("{key}\t{key}\n")).collect::<Vec<_>>().concat();
        assert_eq!(serve.ok(&["scan", kind, "--from", keys[1], "--to", keys[2]]), within);
    };
    check("u64", ["0", "9", "10", "9999999"]);
    check("i64", ["-10", "-9", "0", "7"]);
    check("f64", ["-1.5", "-0", "0", "0.25"]);
    check("bytes8", ["A", "B10", "B9", "a"]);
}

/// Readers of JSON that have floating point numbers alone get every key as it is.
#[test]
fn keys_are_strings_in_json_whatever_they_are() {
    let serve = Serve::start();
    for (kind, keys) in [
        ("u64", ["0", "9007199254740993", "18446744073709551615"]),
        ("i64", ["-9223372036854775808", "-9007199254740993", "0"]),
        ("f64", ["0.25", "inf", "NaN"]),
        ("bytes8", ["0x0000000000000000", "12345678", "abc"]),
    ] {
        serve.ok(&["create", kind, "--keys", kind]);
        for key in keys {
            serve.ok(&["put", kind, key, "x"]);
        }
        let found = |arguments: &[&str]| {
            let lines = serve.ok(arguments);
            let key =
                |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["key"].clone();
            lines.lines().map(key).collect::<Vec<_>>()
        };
        assert_eq!(found(&["scan", kind, "--json"]), keys, "{kind}");
        assert_eq!(found(&[&["get", kind, "--json"][..], &keys].concat()), keys, "{kind}");
    }
}

#[test]
fn the_ends_of_the_keys_are_ordinary() {
    let serve = Serve::start();
    serve.ok(&["create", "t"]);
    let last = u64::MAX.to_string();
    serve.ok(&["put", "t", "0", "least"]);
    serve.ok(&["put", "t", &last, "greatest"]);
    assert_eq!(serve.ok(&["get", "t", "0", &last]), format!("0\tleast\n{last}\tgreatest\n"));
    assert_eq!(serve.ok(&["scan", "t"]), format!("0\tleast\n{last}\tgreatest\n"));
    assert_eq!(serve.ok(&["scan", "t", "--from", &last]), format!("{last}\tgreatest\n"));
    assert_eq!(serve.ok(&["delete", "t", "0", &last]), "removed 2 of 2\n");
    assert_eq!(serve.run(&["get", "t", &last]).code, Some(3));
}

#[test]
fn scans_of_nothing_past_the_end_and_of_more_than_there_is() {
    let serve = Serve::start();
    let keys = (0..1000).map(|key| format!("{}\n", 10 * key)).collect::<Vec<_>>().concat();
    serve.ok(&["load", "t", &serve.file("keys.txt", keys.as_bytes())]);
    assert_eq!(serve.ok(&["scan", "t", "--limit", "0"]), "");
    assert_eq!(serve.ok(&["scan", "t", "--from", "9991"]), "");
    assert_eq!(serve.ok(&["scan", "t", "--from", "20", "--to", "10"]), "");
    assert_eq!(serve.ok(&["scan", "t", "--limit", "1000000"]).lines().count(), 1000);
    let page = serve.ok(&["scan", "t", "--from", "5", "--limit", "2", "--format", "decimal"]);
    assert_eq!(page, "10\t10\n20\t20\n");
}

#[test]
fn statistics_are_a_table_and_json() {
    let serve = Serve::start();
    serve.ok(&["load", "t", &serve.file("keys.txt", b"1\n2\n3\n")]);
    let stats: serde_json::Value = serde_json::from_str(&serve.ok(&["stats", "--json"])).expect("JSON");
    assert_eq!(stats["process_id"], serve.child.id());
    assert_eq!(stats["tables"][0]["part"]["tree"]["pairs"], 3);
    let leaves = &stats["tables"][0]["leaves"];
    let [capacity, bytes] = ["capacity", "block_bytes"].map(|what| leaves[what].as_u64().expect("a number"));
    // But for the rest that is no whole leaf.
    assert!(((256 << 20) - bytes..=256 << 20).contains(&(capacity * bytes)), "{leaves}");
    let text = serve.ok(&["stats", "t"]);
    for part in ["table t (u64 keys, 8 B values)", "pairs", "model", "client cache", "huge pages", "training"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let tables = serve.ok(&["tables"]);
    // Leaves, and an eighth of that for published models.
    assert!(tables.contains("288.00 MiB"), "{tables}");
    let tables: serde_json::Value = serde_json::from_str(&serve.ok(&["tables", "--json"])).expect("JSON");
    assert_eq!(tables[0]["definition"]["name"], "t");
}

#[test]
fn servers_say_what_ends_with_them() {
    for command in ["serve", "memory-node"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("test.sock");
        let mut node = program();
        node.args([command, "--memory", "64M", "--socket"]).arg(&socket);
        let node = start(&mut node);
        let url = url(&socket);
        let ok = |arguments: &[&str]| {
            let ended = wait(start(program().env("FARSIGHT_URL", &url).args(arguments)));
            assert_eq!(ended.code, Some(0), "{ended:?}");
        };
        ok(&["create", "t", "--wait", "60s"]);
        ok(&["put", "t", "1", "one"]);
        ok(&["put", "t", "2", "two"]);
        ok(&["create", "u", "--engine", "rolex"]);
        ok(&["put", "u", "3", "three"]);
        kill_process(Pid::from_child(&node), Signal::TERM).expect("it is there");
        let ended = wait(node);
        assert_eq!(ended.code, Some(0));
        let lines: Vec<&str> = ended.error.lines().collect();
        assert!(lines.iter().all(|line| line.starts_with("farsight: ")), "{lines:?}");
        let [before @ .., last] = &lines[..] else { panic!("it says nothing") };
        let begins = "tables live in the memory of this process and end with it";
        assert!(before.iter().any(|line| line.contains(begins)), "{lines:?}");
        let ends = "2 tables and 2 pairs, and those of 1 table that nobody counts, end with";
        assert!(last.contains(ends), "{last}");
    }
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_ends_no_server() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("test.sock");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_farsight"), "serve", "--socket"]);
    let server = start(shell.arg(&socket));
    let get = || wait(start(program().args(["tables", "--wait", "60s", "--connect", &url(&socket)])));
    assert_eq!(get().code, Some(0));
    kill_process(Pid::from_child(&server), Signal::HUP).expect("the server is there");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("it is there");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a mask");
    assert_eq!(u64::from_str_radix(mask, 16).expect("hexadecimal") & 1, 1, "a hangup is heard");
    assert_eq!(get().code, Some(0), "the hangup has ended the server");
    kill_process(Pid::from_child(&server), Signal::TERM).expect("the server is there");
    assert_eq!(wait(server).code, Some(0));
    assert!(!socket.exists(), "the socket is left behind");
}

#[test]
fn a_hangup_ends_a_server_cleanly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("test.sock");
    // The shell that runs this test may have it ignored.
    let mut default = std::process::Command::new("env");
    default.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_farsight"), "serve", "--socket"]);
    let server = start(default.arg(&socket));
    let created = wait(start(program().args(["create", "t", "--wait", "60s", "--connect", &url(&socket)])));
    assert_eq!(created.code, Some(0), "{created:?}");
    kill_process(Pid::from_child(&server), Signal::HUP).expect("the server is there");
    let ended = wait(server);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.error.ends_with("1 table and 0 pairs end with this process\n"), "{ended:?}");
    assert!(!socket.exists(), "the socket is left behind");
}

#[test]
fn signals_end_a_server_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut serve = Serve::start();
        serve.ok(&["create", "t"]);
        let pid = Pid::from_child(&serve.child);
        let begun = Instant::now();
        kill_process(pid, signal).expect("the server is there");
        let status = serve.child.wait().expect("the server ends");
        assert_eq!((status.code(), status.signal()), (Some(0), None));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(!serve.socket().exists(), "the socket is left behind");
    }
}

#[test]
fn doctor_finds_the_server_and_says_what_to_mend() {
    let serve = Serve::start();
    let ended = serve.run(&["doctor"]);
    let found =
        format!("ok    server        answers at {}, process {}\n", url(&serve.socket()), serve.child.id());
    assert!(ended.out.contains(&found), "{ended:?}");
    let warns = ended.out.lines().filter(|line| line.starts_with("warn")).count();
    assert_eq!(ended.out.matches("repair: ").count(), warns, "each warning says what repairs it");
    assert_eq!(ended.code, Some(i32::from(warns > 0)));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let absent = directory.path().join("absent");
    let missing = wait(start(program().args(["doctor", "--connect", &url(&absent.join("farsight.sock"))])));
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.out.contains(&format!("repair: mkdir -p {}\n", absent.display())), "{missing:?}");
}

#[test]
fn help_teaches_by_examples() {
    let commands = "serve get put delete drop rename scan create load stats dataset doctor simulate";
    for command in commands.split(' ') {
        let help = wait(start(program().args([command, "--help"])));
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains(&format!("  farsight {command}")), "no example in the help of {command}");
    }
}

#[test]
fn conditions_hold_or_are_explained() {
    let serve = Serve::start();
    serve.ok(&["create", "t", "--value-size", "8"]);
    let version = |text: &str| -> u64 {
        text.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a version comes last")
    };
    let first = serve.ok(&["put", "t", "7", "first", "--if-version", "0"]);
    assert!(first.starts_with("inserted, version "), "{first}");
    let taken = serve.run(&["put", "t", "7", "again", "--if-version", "0"]);
    assert_eq!(taken.code, Some(4));
    assert_eq!(taken.error, format!("differs: key 7 in table \"t\" has version {}\n", version(&first)));
    let text = version(&first).to_string();
    assert!(serve.ok(&["put", "t", "7", "second", "--if-version", &text]).starts_with("replaced, version "));
    assert!(serve.ok(&["put", "t", "7", "third", "--if-value", "second"]).starts_with("replaced, version "));
    assert_eq!(serve.run(&["put", "t", "7", "x", "--if-value", "second"]).code, Some(4));
    assert_eq!(serve.run(&["put", "t", "8", "x", "--if-value", "second"]).code, Some(3));
    let swapped = serve.ok(&["put", "t", "7", "fourth", "--return-old"]);
    assert!(swapped.ends_with(", before third\n"), "{swapped}");
    assert_eq!(serve.run(&["delete", "t", "7", "--if-version", &text]).code, Some(4));
    let several = serve.run(&["delete", "t", "7", "8", "--if-version", &text]);
    assert_eq!(several.code, Some(1));
    assert_eq!(serve.ok(&["get", "t", "7"]), "fourth\n");
    let now = version(&serve.ok(&["put", "t", "7", "fifth"])).to_string();
    assert_eq!(serve.ok(&["delete", "t", "7", "--if-version", &now]), "removed 1 of 1\n");

    assert!(serve.ok(&["add", "t", "9", "5"]).starts_with("5, before 0, version "));
    assert!(serve.ok(&["add", "t", "9", "-7", "--signed"]).starts_with("-2, before 5, version "));
    assert_eq!(serve.ok(&["get", "t", "9", "--format", "decimal"]), "18446744073709551614\n");
    serve.ok(&["create", "wide", "--value-size", "16"]);
    let refused = serve.run(&["add", "wide", "9", "1"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.error.contains("integers of 8 B"), "{}", refused.error);
}
