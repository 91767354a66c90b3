//! How the program ends where something is wrong with itself, or with where it prints.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::process::{Serve, program, start, wait};

/// Breaks what a server listens with, from outside: accepting clients fails then, which is a bug to it.
fn break_listener(server: &Child) {
    let pid = Pid::from_child(server);
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", server.id())).expect("it lives");
    let descriptors = numbers.filter_map(|entry| {
        let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
        pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()
    });
    let is_listening = |socket: &OwnedFd| rustix::net::sockopt::socket_acceptconn(socket) == Ok(true);
    let listeners: Vec<OwnedFd> = descriptors.filter(is_listening).collect();
    assert_eq!(listeners.len(), 1, "a parent may take its child's descriptors");
    // Of a listener that does not block the kernel says nothing but that nobody connects.
    rustix::fs::fcntl_setfl(&listeners[0], rustix::fs::OFlags::empty()).expect("a socket");
    rustix::net::shutdown(&listeners[0], rustix::net::Shutdown::Both).expect("a socket");
}

#[test]
fn who_serves_and_meets_a_bug_says_so_and_ends_with_an_error() {
    for command in ["serve", "memory-node"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("test.sock");
        let mut server = program()
            .args([command, "--memory", "64M", "--socket"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut ready = String::new();
        BufReader::new(server.stdout.take().expect("it is piped")).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready url="), "{command} said {ready:?}");
        break_listener(&server);
        let ended = wait(server);
        assert_eq!(ended.code, Some(1), "{command}: {ended:?}");
        for line in [
            "farsight: this process stopped answering calls: accepting clients failed",
            "error: this process",
        ] {
            assert!(ended.error.lines().any(|said| said.starts_with(line)), "{command}: {ended:?}");
        }
        assert!(!socket.exists(), "{command} leaves no socket behind");
    }
}

/// A place that takes nothing.
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it").into()
}

#[test]
fn a_full_output_is_an_error_and_no_panic() {
    let server = Serve::start();
    server.ok(&["create", "prices", "--value-size", "8"]);
    server.ok(&["put", "prices", "1", "a value."]);
    let commands: &[&[&str]] = &[
        &["tables"],
        &["tables", "--json"],
        &["get", "prices", "1"],
        &["get", "prices", "1", "2", "--json"],
        &["scan", "prices"],
        &["scan", "prices", "--print", "keys"],
        &["scan", "prices", "--print", "count"],
        &["put", "prices", "2", "another."],
        &["delete", "prices", "2"],
        &["load", "loaded", "uniform", "--keys", "1000"],
        &["stats"],
        &["stats", "--json"],
        &["doctor"],
        &["--help"],
        &["--version"],
        &["get", "--help"],
        &["serve", "--memory", "64M", "--listen", "tcp://127.0.0.1:0"],
    ];
    for arguments in commands {
        let ended = wait(server.command(arguments).stdout(full()).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        let errors: Vec<&str> = ended.error.lines().filter(|line| line.starts_with("error: ")).collect();
        let says = |error: &str| error.contains("standard output") && error.contains("No space left");
        assert!(matches!(errors[..], [error] if says(error)), "{arguments:?}: {ended:?}");
        assert!(!ended.error.contains("panicked"), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_result_whose_reader_leaves_is_an_error_though_it_is_a_pipe() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, pipe) = (directory.path().join("model.json"), directory.path().join("pipe"));
    let mut model = program();
    model.args(["bench", "model", "--dataset", "lognormal", "--keys", "30000", "--json"]).arg(&json);
    assert_eq!(wait(start(&mut model)).code, Some(0));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let figure = start(program().arg("figure").arg(&json).arg("--out").arg(&pipe));
    let reader = std::fs::File::open(&pipe).expect("the command opens it, too");
    // Less than the picture, so that the command cannot end before nobody reads any more.
    rustix::pipe::fcntl_setpipe_size(&reader, 4_096).expect("a pipe");
    drop(reader);
    let error = wait(figure).into_error("a pipe that nobody reads");
    assert!(error.contains("pipe: Broken pipe"), "{error}");
}

#[test]
fn errors_that_nobody_can_be_told_leave_the_exit_code() {
    let server = Serve::start();
    server.ok(&["create", "prices", "--value-size", "8"]);
    let unheard = |command: &mut Command| {
        let ended = wait(command.stdout(Stdio::piped()).stderr(full()).spawn().expect("the program starts"));
        ended.code
    };
    assert_eq!(unheard(&mut server.command(&["get", "prices", "1"])), Some(3));
    assert_eq!(unheard(&mut server.command(&["delete", "prices", "1"])), Some(3));
    assert_eq!(unheard(&mut server.command(&["get", "none", "1"])), Some(1));
    assert_eq!(unheard(&mut server.command(&["no-such-command"])), Some(2));
}
