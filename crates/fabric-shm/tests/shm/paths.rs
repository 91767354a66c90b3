//! Paths that cannot be served or reached, and what is said about them.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use farsight_fabric::FabricError;
use farsight_fabric_shm::{ConnectOptions, ListenError, ListenOptions, ShmConnection, ShmHost};

use crate::harness::{Directory, FORMAT, Running, connect, isolated, play};
use crate::roles::await_ready;

fn listen(path: impl AsRef<std::path::Path>) -> Result<ShmHost, ListenError> {
    ShmHost::listen(path, ListenOptions::new(FORMAT))
}

fn connect_error(path: impl AsRef<std::path::Path>) -> FabricError {
    ShmConnection::connect(path, ConnectOptions::new(FORMAT)).expect_err("nobody serves there")
}

#[test]
fn a_missing_directory_is_named() {
    let directory = Directory::new();
    let path = directory.path().join("missing/socket");
    let error = listen(&path).expect_err("no directory");
    assert!(matches!(error, ListenError::DirectoryMissing { .. }), "{error}");
    assert!(error.to_string().contains("mkdir -p"), "{error}");
}

#[test]
fn a_path_too_long_is_told_its_length_and_the_limit() {
    let path = format!("/tmp/{}", "x".repeat(103));
    let error = listen(&path).expect_err("too long");
    assert!(matches!(error, ListenError::PathTooLong { length_bytes: 108, limit_bytes: 107, .. }), "{error}");
    let error = connect_error(&path).to_string();
    assert!(error.contains("108") && error.contains("107"), "{error}");
}

#[test]
fn the_longest_path_works() {
    let directory = Directory::new();
    let room = 107 - directory.path().as_os_str().len() - 1;
    let path = directory.path().join("y".repeat(room));
    let server = Running::start(&path);
    drop(connect(&path));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_path_in_use_names_the_server_there() {
    let directory = Directory::new();
    let mut server = play("server", &directory.socket());
    await_ready(&mut server);
    let error = listen(directory.socket()).expect_err("another server is there");
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("pid {}", server.id())), "{error}");
    drop(connect(&directory.socket()));
    server.kill().expect("it can be killed");
    server.wait().expect("it ends");
    // Its socket and lock file are stale now.
    assert!(directory.socket().exists());
    let error = connect_error(directory.socket()).to_string();
    assert!(error.contains("stale") && error.contains("farsight serve --socket"), "{error}");
    drop(listen(directory.socket()).expect("a stale socket is replaced"));
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").collect();
    assert!(left.is_empty(), "a server leaves nothing behind: {left:?}");
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let directory = Directory::new();
    std::fs::write(directory.socket(), "precious").expect("a file");
    let error = listen(directory.socket()).expect_err("a file is there");
    assert!(matches!(error, ListenError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(directory.socket()).expect("it is still there"), "precious");
}

#[test]
fn who_connects_to_what_is_not_a_socket_is_told_so() {
    let directory = Directory::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").expect("a file");
    for path in [&*file, directory.path(), "/dev/null".as_ref()] {
        let error = connect_error(path).to_string();
        assert!(error.contains("is not a socket") && !error.contains("Start the server"), "{error}");
    }
}

#[test]
fn another_programs_socket_is_left_alone() {
    let directory = Directory::new();
    let _other = UnixListener::bind(directory.socket()).expect("a socket");
    let error = listen(directory.socket()).expect_err("it is in use");
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    let error = connect_error(directory.socket()).to_string();
    assert!(error.contains("not a socket of this fabric"), "{error}");
}

#[test]
fn nobody_there_says_how_to_start_a_server() {
    let directory = Directory::new();
    let error = connect_error(directory.socket()).to_string();
    let socket = directory.socket();
    let command = format!("farsight serve --socket {}", socket.display());
    assert!(error.contains("is the server running?") && error.contains(&command), "{error}");
}

#[test]
fn the_socket_belongs_to_its_user_alone() {
    let directory = Directory::new();
    let _server = Running::start(&directory.socket());
    for name in ["socket", "socket.lock"] {
        let metadata = std::fs::metadata(directory.path().join(name)).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_user_who_is_not_allowed_is_told_both_uids() {
    let directory = Directory::new();
    let own = rustix::process::geteuid().as_raw();
    let allowed = own + 1;
    let options = ListenOptions { format_version: FORMAT, allowed_uids: vec![allowed], opens_later: false };
    let host = ShmHost::listen(directory.socket(), options).expect("a server");
    let error = std::thread::scope(|scope| {
        let client = scope.spawn(|| connect_error(directory.socket()));
        while !client.is_finished() {
            farsight_fabric::Host::step(&host, std::time::Duration::from_millis(5)).expect("a step");
        }
        client.join().expect("a refusal")
    });
    assert!(matches!(error, FabricError::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("uid {allowed}")) && text.contains(&format!("uid {own}")), "{text}");
}

#[test]
fn another_users_directory_and_socket_are_named() {
    isolated("paths::another_users_directory_and_socket_are_named", || {
        let directory = Directory::new();
        let (path, foreign_socket) = if rustix::process::geteuid().is_root() {
            let host = listen(directory.socket()).expect("root's server");
            // SAFETY: it takes a number; the test runs in a process of its own.
            assert_eq!(unsafe { libc::seteuid(65_534) }, 0, "root may become nobody");
            (directory.path().join("mine"), Some(host))
        } else {
            (std::path::PathBuf::from("/farsight-test-socket"), None)
        };
        let error = listen(&path).expect_err("another user's directory");
        assert!(matches!(error, ListenError::PermissionDenied { .. }), "{error}");
        assert!(error.to_string().contains("uid 0"), "the owner is named: {error}");
        if let Some(host) = foreign_socket {
            let error = connect_error(directory.socket()).to_string();
            assert!(error.contains("belongs to uid 0") && error.contains("uid 65534"), "{error}");
            // SAFETY: as above; the directory is root's to remove.
            assert_eq!(unsafe { libc::seteuid(0) }, 0, "and root again");
            drop(host);
        }
    });
}
