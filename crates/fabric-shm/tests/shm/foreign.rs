//! Servers of other users: who listens at a path is not for the path to say.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use farsight_fabric::{Connection as _, FabricError};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType};
use rustix::process::Uid;

use crate::harness::{Directory, FORMAT, Running, call, connect};

/// A user that nobody is.
const OTHER: u32 = 54_321;

/// A directory in which every user may listen, as in the system's shared temporary one. For a user who cannot
/// act as another one there is none, and a line says so. Under `FARSIGHT_CI` that fails.
fn shared_directory() -> Option<Directory> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: this needs root");
        println!("skipped: only root can act as another user");
        return None;
    }
    let directory = Directory::new();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("its owner");
    Some(directory)
}

/// What `act` makes as the other user. To the kernel a thread is a user of its own.
fn as_other<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let acting = || {
        let other = Uid::from_raw(OTHER);
        rustix::thread::set_thread_res_uid(other, other, other).expect("root may be anybody");
        act()
    };
    std::thread::scope(|scope| scope.spawn(acting).join().expect("the other user acts"))
}

fn other_users_server(socket: &Path) -> Running {
    let mut options = ListenOptions::new(FORMAT);
    options.allowed_uids.push(OTHER);
    Running::serve(as_other(|| ShmHost::listen(socket, options).expect("a server")))
}

fn trusting(server_uids: Vec<u32>) -> ConnectOptions {
    ConnectOptions { server_uids, ..ConnectOptions::new(FORMAT) }
}

#[test]
fn another_users_server_is_told_nothing() {
    let Some(directory) = shared_directory() else { return };
    let path = directory.socket();
    let listener: OwnedFd = as_other(|| {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a short path")).expect("a new path");
        rustix::net::listen(&socket, 8).expect("it listens");
        socket
    });
    let error = ShmConnection::connect(&path, ConnectOptions::new(FORMAT)).expect_err("another user's");
    let FabricError::UntrustedServer { peer, uid, trusted } = &error else { panic!("{error}") };
    assert_eq!((peer.as_str(), *uid, trusted.as_slice()), (path.to_str().unwrap(), OTHER, &[0][..]));
    let text = error.to_string();
    for word in [path.to_str().unwrap(), "uid 54321", "uid 0 alone", "--server-uid 54321"] {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
    let accepted = rustix::net::accept(&listener).expect("the client had connected");
    let (length_bytes, _) = rustix::net::recv(&accepted, &mut [0_u8; 64][..], RecvFlags::DONTWAIT).unwrap();
    assert_eq!(length_bytes, 0, "the client hung up and sent nothing");
}

#[test]
fn a_server_of_a_user_that_was_named_serves() {
    let Some(directory) = shared_directory() else { return };
    let _server = other_users_server(&directory.socket());
    let others = trusting(vec![OTHER + 1]);
    let error = ShmConnection::connect(directory.socket(), others).expect_err("yet another user's");
    assert!(error.to_string().contains("uid 0, 54322 alone"), "{error}");
    let connection = ShmConnection::connect(directory.socket(), trusting(vec![OTHER])).expect("a connection");
    assert_eq!(call(&mut connection.open_queue().expect("a queue"), b"hello"), b"hello");
}

#[test]
fn another_user_does_not_inherit_a_servers_clients() {
    let Some(directory) = shared_directory() else { return };
    let server = Running::start(&directory.socket());
    let connection = connect(&directory.socket());
    drop(server);
    let other = other_users_server(&directory.socket());
    let timeout = std::time::Duration::from_secs(5);
    let error = connection.reconnect(timeout).expect_err("another user's");
    assert!(matches!(error, FabricError::UntrustedServer { uid: OTHER, .. }), "{error}");
    assert_eq!(farsight_fabric::Host::client_count(&*other.host), 0);
    drop(other);
    let _server = Running::start(&directory.socket());
    let again = connection.reconnect(timeout).expect("the own user's");
    assert_eq!(call(&mut again.open_queue().expect("a queue"), b"again"), b"again");
}
