//! Servers at several addresses, and commands that use another than the socket.

use std::time::{Duration, Instant};

use crate::process::{Ended, Serve, program, start, wait};

/// A server that listens at its socket and at a port that the system chooses, and the latter's URL.
fn serve_tcp() -> (Serve, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Serve::start_with(directory, &["--listen", "tcp://127.0.0.1:0"]);
    let mut urls = serve.ready.split_whitespace().filter_map(|word| word.strip_prefix("url="));
    let url = urls.find(|url| url.starts_with("tcp://")).expect("each address is named").to_owned();
    (serve, url)
}

fn run(url: &str, arguments: &[&str]) -> Ended {
    wait(start(program().env("FARSIGHT_URL", url).args(arguments)))
}

#[test]
fn commands_reach_the_same_tables_over_tcp() {
    let (serve, url) = serve_tcp();
    let ok = |arguments: &[&str]| {
        let ended = run(&url, arguments);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
        ended.out
    };
    ok(&["create", "prices", "--value-size", "8"]);
    assert_eq!(serve.ok(&["put", "prices", "4711", "hello"]), "inserted, version 1\n");
    assert_eq!(ok(&["get", "prices", "4711"]), "hello\n");
    assert_eq!(ok(&["put", "prices", "4712", "again"]), "inserted, version 2\n");
    assert_eq!(serve.ok(&["scan", "prices"]), "4711\thello\n4712\tagain\n");
    assert!(ok(&["stats"]).contains(&format!("1 at {url}")));
    let doctor = run(&url, &["doctor"]).out;
    assert!(doctor.contains(&format!("answers at {url}")) && doctor.contains("  fences "), "{doctor}");
}

#[test]
fn an_address_that_nobody_serves_is_named_with_what_to_do() {
    let (serve, url) = serve_tcp();
    drop(serve);
    let error = run(&url, &["stats"]).into_error("stats");
    assert!(error.contains(&url["tcp://".len()..]) && error.contains("farsight serve"), "{error}");
    let error = run("rdma://127.0.0.1:7474", &["stats"]).into_error("stats");
    assert!(error.contains("127.0.0.1:7474") && error.contains("--listen rdma://127.0.0.1"), "{error}");
}

#[test]
fn certificates_come_together_and_are_named_when_they_are_not_there() {
    let files = ["--tls-certificate", "/nowhere/c.pem", "--tls-key", "/nowhere/k.pem"];
    let usage = run("tcp://127.0.0.1:1", &[&["stats"], &files[..]].concat());
    assert_eq!(usage.code, Some(2), "{usage:?}");
    assert!(usage.error.contains("--tls-authorities"), "{usage:?}");
    let all = [&["stats"], &files[..], &["--tls-authorities", "/nowhere/a.pem"]].concat();
    let error = run("tcp://127.0.0.1:1", &all).into_error("stats");
    assert!(error.contains("/nowhere/c.pem"), "{error}");
}

/// Processor time that a process has used, in ticks of the kernel's.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("its state").split(' ').collect();
    // In the kernel's list user and system time are the 14th and 15th; two stand before the bracket.
    [11, 12].iter().map(|index| fields[*index].parse::<u64>().expect("a number")).sum()
}

/// A server that is told never to sleep does not, though nobody asks it anything; whichever way the sides
/// wait they hear each other.
#[test]
fn sides_wait_as_they_are_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Serve::start_with(directory, &["--listen", "tcp://127.0.0.1:0", "--waiting", "spinning"]);
    let url = serve.ready.split_whitespace().find_map(|word| word.strip_prefix("url=tcp")).expect("its URL");
    let url = format!("tcp{url}");
    let (before, begun) = (ticks(serve.child.id()), Instant::now());
    while ticks(serve.child.id()) < before + 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the server sleeps");
        std::thread::sleep(Duration::from_millis(5));
    }
    for how in ["briefly", "asleep", "spinning"] {
        let ended = run(&url, &["stats", "--waiting", how]);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{how}");
    }
    let usage = run(&url, &["stats", "--waiting", "never"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    assert!(usage.error.contains("briefly, asleep, spinning"), "{usage:?}");
}

/// A password that was given as part of an address shows in no text: of a mistake, of an error, of help.
#[test]
fn passwords_show_nowhere() {
    let addresses = [
        "etcd://root:secret@127.0.0.1:1/users",
        "etcd://root:sec@secret@127.0.0.1:1/users",
        "etcd://root:secret@127.0.0.1:99999/users",
        "etcd://root:secret@127.0.0.1:1",
        "etcds://root:secret@127.0.0.1:1/users",
        "tcp://root:secret@127.0.0.1:1",
        "root:secret@127.0.0.1:1/users",
    ];
    for address in addresses {
        let commands: [&[&str]; 5] = [
            &["get", "t", "1", "--connect", address],
            &["get", "--help"],
            &["doctor"],
            &["tables", address],
            &["serve", "--socket", "none/s", "--cluster", address],
        ];
        for arguments in commands {
            let ended = wait(start(program().env("FARSIGHT_URL", address).args(arguments)));
            let said = format!("{}{}", ended.out, ended.error);
            assert!(!said.is_empty() && !said.contains("secret"), "{arguments:?}: {said}");
        }
    }
}
