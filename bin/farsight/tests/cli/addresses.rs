//! Servers at several addresses, and commands that use another than the socket.

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
    assert!(run(&url, &["doctor"]).out.contains(&format!("answers at {url}")));
}

#[test]
fn an_address_that_nobody_serves_is_named_with_what_to_do() {
    let (serve, url) = serve_tcp();
    drop(serve);
    let error = run(&url, &["stats"]).into_error("stats");
    assert!(error.contains(&url["tcp://".len()..]) && error.contains("farsight serve"), "{error}");
    let error = run("rdma://127.0.0.1:7474", &["stats"]).into_error("stats");
    assert!(error.contains("RDMA"), "{error}");
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
