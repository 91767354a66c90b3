//! Why no connection comes about over shared memory.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use farsight::{ConnectOptions, Server};
use farsight_conformance::engine::harness::Directory;
use farsight_fabric_shm::{ListenOptions, ShmHost};
use farsight_layout::FORMAT_VERSION;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::causes::{Cause, Expected, Way, check, other_version};

/// More than a socket's name may have.
const LONG: usize = 120;

fn to(path: &str) -> Way {
    Way { scheme: "shm", peer: path.to_owned(), options: ConnectOptions::default() }
}

/// A socket as servers have it, of which nobody accepts.
fn deaf(path: &str) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("a new path");
    rustix::net::listen(&socket, 8).expect("it listens");
    socket
}

fn not_listening(path: &str, step: &'static str, remedy: &'static str) -> (String, Expected) {
    let error = Server::builder().socket(Path::new(path)).start().err().expect("it cannot");
    (error.to_string(), Expected { peer: path.to_owned(), step, remedy })
}

#[test]
fn every_error_names_peer_step_and_remedy() {
    let directory = Directory::new();
    let file = |name: &str| directory.file(name).to_str().expect("temporary paths are text").to_owned();
    let (none, dead, plain, of_kind) = (file("none"), file("dead"), file("plain"), file("stream"));
    let (silent, other, taken) = (file("silent"), file("other"), file("taken"));
    let (long, nowhere) = (file(&"x".repeat(LONG)), file("nowhere/socket"));
    drop(deaf(&dead));
    std::fs::write(&plain, "").expect("a file");
    let (unheard, _stream) = (deaf(&silent), UnixListener::bind(&of_kind).expect("a socket"));
    let host = ShmHost::listen(Path::new(&other), ListenOptions::new(FORMAT_VERSION + 1)).expect("a host");
    let server = Server::builder().socket(&taken).start().expect("a server");
    check(vec![
        Cause::new("no socket", move || to(&none).fails("connecting to", "farsight serve")),
        Cause::new("a dead server's socket", move || to(&dead).fails("connecting to", "farsight serve")),
        Cause::new("a file that is no socket", move || to(&plain).fails("connecting to", "farsight serve")),
        Cause::new("another's socket", move || {
            to(&of_kind).fails("connecting to", "not a socket of this fabric")
        }),
        Cause::new("a name that is too long", move || to(&long).fails("connecting to", "use a shorter one")),
        Cause::new("silence", move || {
            let said = to(&silent).fails("the handshake", "Is it overloaded or stopped");
            drop(unheard);
            said
        }),
        other_version("shm", host, other),
        Cause::new("listening where somebody does", move || {
            let said = not_listening(&taken, "cannot listen at", "choose another path");
            drop(server);
            said
        }),
        Cause::new("listening in a directory that is not there", move || {
            not_listening(&nowhere, "cannot listen at", "mkdir -p")
        }),
    ]);
}
