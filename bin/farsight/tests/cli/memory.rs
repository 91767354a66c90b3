//! A server that has all the memory that it may have.

use std::path::Path;

use farsight::{Options, Session};

use crate::process::{Serve, url};

/// Of the whole process; its program and rings take a part of it.
const LIMIT_BYTES: u64 = 48 << 20;
/// What a process takes beyond: steps of tables' growth, and what the system counts late.
const BEYOND_BYTES: u64 = 8 << 20;

/// More pairs than there is memory for, as lines of a file.
fn many(serve: &Serve) -> String {
    let keys: Vec<String> = (0..1_500_000).map(|key| format!("{key}\n")).collect();
    serve.file("many.txt", keys.concat().as_bytes())
}

/// What the server says of its memory.
fn stats(serve: &Serve) -> serde_json::Value {
    serde_json::from_str(&serve.ok(&["stats", "--json"])).expect("JSON")
}

fn assert_within_limit(serve: &Serve) {
    let node = stats(serve);
    assert_eq!(node["memory_limit_bytes"], LIMIT_BYTES, "{node}");
    let memory_bytes = node["memory_bytes"].as_u64().expect("Linux says it");
    assert!(memory_bytes <= LIMIT_BYTES + BEYOND_BYTES, "{memory_bytes} B");
    let text = serve.ok(&["stats"]);
    assert!(text.contains("of at most 48.00 MiB"), "{text}");
}

#[test]
fn what_is_beyond_the_limit_is_refused_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Serve::start_with(directory, &["--memory-limit", "48M"]);
    serve.ok(&["create", "t"]);
    serve.ok(&["put", "t", "5", "8 bytes."]);
    // There is a pair: this goes by puts.
    let refused = serve.run(&["load", "t", &many(&serve)]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.error.contains("as much memory as it may have"), "{}", refused.error);
    assert_within_limit(&serve);
    // Nothing needs more memory here.
    assert_eq!(serve.ok(&["get", "t", "5", "--format", "decimal"]), "5\n");
    serve.ok(&["put", "t", "5", "others.."]);
    assert_eq!(serve.ok(&["get", "t", "5"]), "others..\n");
    serve.ok(&["drop", "t"]);
    serve.ok(&["create", "u"]);
    serve.ok(&["put", "u", "6", "8 bytes."]);
}

#[test]
fn a_bulk_load_beyond_the_limit_says_what_to_do() {
    let limit = format!("the memory limit of this node is {LIMIT_BYTES} B: it has ");
    for (engine, words) in [("xstore", limit.as_str()), ("rolex", "no more blocks for leaves")] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let serve = Serve::start_with(directory, &["--memory-limit", "48M"]);
        serve.ok(&["create", "t", "--engine", engine]);
        let refused = serve.run(&["load", "t", &many(&serve)]);
        assert_eq!(refused.code, Some(1), "{engine}: {refused:?}");
        let said = &refused.error;
        assert!(said.contains(words) && said.contains("more memory"), "{engine}: {said}");
        assert_within_limit(&serve);
    }
}

/// Sessions until one is refused, and its error.
fn sessions_of(socket: &Path, most: usize) -> (Vec<Session<u64>>, String) {
    let client = farsight::connect(&url(socket)).expect("a connection");
    let table = client.table::<u64>("t").expect("a table");
    let mut sessions = Vec::new();
    while sessions.len() < most {
        match table.session(Options::default()) {
            Ok(session) => sessions.push(session),
            Err(error) => return (sessions, format!("{:#}", anyhow::Error::from(error))),
        }
    }
    panic!("{most} sessions are open, and none is refused");
}

#[test]
fn sessions_beyond_the_limit_are_refused_and_the_others_go_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Serve::start_with(directory, &["--memory-limit", "48M"]);
    serve.ok(&["create", "t"]);
    let before = stats(&serve)["memory"].clone();
    let (mut sessions, refused) = sessions_of(&serve.socket(), 200);
    assert!(refused.contains("the memory limit of this node is 50331648 B"), "{refused}");
    let (first, last) = (0, sessions.len() - 1);
    sessions[first].put(5, b"8 bytes.").expect("a put");
    assert!(sessions[last].get(5).expect("a GET").is_some());
    // Others come in: a client has a part of the limit, not all of it.
    assert_within_limit(&serve);
    let queues_bytes = |serve: &Serve| stats(serve)["memory"]["queues_bytes"].as_u64().expect("bytes");
    assert!(queues_bytes(&serve) as usize > sessions.len() * 500_000, "{}", queues_bytes(&serve));
    serve.ok(&["put", "t", "6", "8 bytes."]);
    drop(sessions);
    assert_eq!(stats(&serve)["memory"]["queues_bytes"], before["queues_bytes"]);
    let (sessions, _) = sessions_of(&serve.socket(), 200);
    assert!(sessions.len() > last / 2, "what was closed is free: {} sessions", sessions.len());
}

#[test]
fn tables_that_have_all_leave_room_for_who_drops_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let serve = Serve::start_with(directory, &["--memory-limit", "48M"]);
    serve.ok(&["create", "t"]);
    serve.ok(&["put", "t", "5", "8 bytes."]);
    assert_eq!(serve.run(&["load", "t", &many(&serve)]).code, Some(1));
    let (sessions, refused) = sessions_of(&serve.socket(), 200);
    assert!(sessions.len() >= 4, "{refused}");
    drop(sessions);
    serve.ok(&["drop", "t"]);
    serve.ok(&["create", "u"]);
}
