//! Ways in which no connection comes about: each error names the peer, the step that failed, and what to do.
//! The causes that TCP has, and RDMA too, which sets up its connections as TCP does.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use farsight::{Addresses, Client, ConnectOptions, Server, ServerUrl, Tls};
use farsight_conformance::fabric::harness::Running;
use farsight_fabric::Host;

use super::certificates::Authority;

/// What an error must say, wherever it stands.
pub(crate) struct Expected {
    pub(crate) peer: String,
    pub(crate) step: &'static str,
    pub(crate) remedy: &'static str,
}

/// A cause, provoked when it is its turn.
pub(crate) struct Cause {
    name: &'static str,
    provoke: Box<dyn FnOnce() -> (String, Expected) + Send>,
}

impl Cause {
    /// `provoke` says what the error was and what it must name.
    pub(crate) fn new(
        name: &'static str,
        provoke: impl FnOnce() -> (String, Expected) + Send + 'static,
    ) -> Self {
        Self { name, provoke: Box::new(provoke) }
    }
}

/// Provokes all of them, side by side because some are noticed by a time-out, and compares what is said.
pub(crate) fn check(causes: Vec<Cause>) {
    let asked: Vec<_> =
        causes.into_iter().map(|cause| (cause.name, std::thread::spawn(cause.provoke))).collect();
    let said: Vec<_> = asked
        .into_iter()
        .map(|(name, asked)| (name, asked.join().unwrap_or_else(|_| panic!("{name}"))))
        .collect();
    let mut missing = Vec::new();
    for (name, (error, expected)) in said {
        println!("{name}: {error}");
        let parts = [("peer", expected.peer.as_str()), ("step", expected.step), ("remedy", expected.remedy)];
        for (what, part) in parts.into_iter().filter(|(_, part)| !error.contains(part)) {
            missing.push(format!("{name}: no {what} {part:?} in {error:?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A client's way: where to, and with what.
pub(crate) struct Way {
    pub(crate) scheme: &'static str,
    pub(crate) peer: String,
    pub(crate) options: ConnectOptions,
}

impl Way {
    /// Why it leads nowhere.
    pub(crate) fn error(&self) -> String {
        let addresses: Addresses = format!("{}://{}", self.scheme, self.peer).parse().expect("a URL");
        match Client::connect_with(addresses, &self.options) {
            Ok(_) => panic!("{} was reached", self.peer),
            Err(error) => error.to_string(),
        }
    }

    /// Its error, with what that must name.
    pub(crate) fn fails(self, step: &'static str, remedy: &'static str) -> (String, Expected) {
        (self.error(), Expected { peer: self.peer, step, remedy })
    }
}

/// Why no server listens at `host_and_port`.
fn not_listening(
    scheme: &str,
    host_and_port: &str,
    step: &'static str,
    remedy: &'static str,
) -> (String, Expected) {
    let url: ServerUrl = format!("{scheme}://{host_and_port}").parse().expect("a URL");
    let allowed = host_and_port.starts_with("192.");
    let error = Server::builder().listen(url).allow_plaintext(allowed).start().err().expect("it cannot");
    (error.to_string(), Expected { peer: host_and_port.to_owned(), step, remedy })
}

/// Listens at `host`, and does `work` to the first connection. Returns the address.
fn listener(host: &str, work: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind((host, 0)).expect("an address of this machine");
    let peer = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || work(listener.accept().expect("a client").0));
    peer
}

/// Keeps a connection until the other side ends it.
fn outlast(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn server(url: &str, tls: Option<Tls>) -> (Server, String) {
    let mut builder = Server::builder().listen(url.parse().expect("a URL")).table_memory_bytes(4 << 20);
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.start().expect("a server");
    let peer = server.url().to_string().split_once("://").expect("a URL").1.to_owned();
    (server, peer)
}

/// Causes that lie in the program at the other end, or in that there is none.
pub(crate) fn strangers(scheme: &'static str, host: &'static str) -> Vec<Cause> {
    let to = move |peer: String| Way { scheme, peer, options: ConnectOptions::default() };
    let abroad = move |peer: &str| {
        let options = ConnectOptions { allow_plaintext: true, ..ConnectOptions::default() };
        Way { scheme, peer: peer.to_owned(), options }
    };
    vec![
        Cause::new("nobody listens", move || {
            let gone = TcpListener::bind((host, 0)).expect("an address of this machine");
            let peer = gone.local_addr().expect("its address").to_string();
            drop(gone);
            to(peer).fails("connecting to", "Start it with: farsight serve --listen")
        }),
        Cause::new("a name that leads nowhere", move || {
            to("no..where:7474".to_owned()).fails("looking up", "Write HOST:PORT")
        }),
        Cause::new("an address without a way to it", move || {
            abroad("255.255.255.255:7474").fails("connecting to", "Check the address")
        }),
        Cause::new("another machine, in the clear", move || {
            to("192.0.2.1:7474".to_owned()).fails("refused the connection", "--allow-plaintext")
        }),
        Cause::new("silence", move || {
            to(listener(host, outlast)).fails("the handshake", "Is it overloaded or stopped")
        }),
        Cause::new("somebody hangs up", move || {
            to(listener(host, drop)).fails("the handshake", "is it a farsight server")
        }),
        Cause::new("another protocol", move || {
            let peer = listener(host, |mut stream| {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it is sent");
                outlast(stream);
            });
            to(peer).fails("the handshake", "Is it a farsight server")
        }),
    ]
}

/// Another version of the bytes, which `other` listens with at `peer`.
pub(crate) fn other_version<H: Host + 'static>(scheme: &'static str, other: H, peer: String) -> Cause {
    Cause::new("another version", move || {
        let _running = Running::start(other, 1);
        let way = Way { scheme, peer, options: ConnectOptions::default() };
        way.fails("refused the connection", "use the same version of farsight on both sides")
    })
}

/// Causes that lie in certificates.
pub(crate) fn certificates(scheme: &'static str, host: &'static str) -> Vec<Cause> {
    const UNKNOWN: &str = "is the server's certificate signed by an authority that this client was given";
    let any = move || format!("{scheme}://{host}:0");
    let fails = move |of_server: Option<Tls>, of_client: Option<Tls>, step, remedy| {
        let (_server, peer) = server(&any(), of_server);
        let options = ConnectOptions { tls: of_client, ..ConnectOptions::default() };
        Way { scheme, peer, options }.fails(step, remedy)
    };
    let ours = || Authority::new();
    vec![
        Cause::new("a server with certificates, a client without", move || {
            fails(Some(ours().side(host)), None, "the handshake", "give or omit certificates on both sides")
        }),
        Cause::new("a client with certificates, a server without", move || {
            fails(None, Some(ours().side(host)), "TLS", "Give or omit certificates on both sides")
        }),
        Cause::new("a server of another authority", move || {
            let (ours, theirs) = (ours(), Authority::new());
            let stranger = theirs.certify(host, 2099).side(&ours.pem);
            fails(Some(stranger), Some(ours.side(host)), "TLS", UNKNOWN)
        }),
        Cause::new("a server with another's name", move || {
            let ours = ours();
            fails(Some(ours.side("other.example")), Some(ours.side(host)), "TLS", UNKNOWN)
        }),
        Cause::new("a server whose certificate has expired", move || {
            let ours = ours();
            let expired = ours.certify(host, 2001).side(&ours.pem);
            fails(Some(expired), Some(ours.side(host)), "TLS", "valid now")
        }),
        Cause::new("a client of another authority", move || {
            let (ours, theirs) = (ours(), Authority::new());
            let stranger = theirs.certify(host, 2099).side(&ours.pem);
            fails(Some(ours.side(host)), Some(stranger), "TLS", "refuses this client's certificate")
        }),
        Cause::new("a client whose certificate has expired", move || {
            let ours = ours();
            let expired = ours.certify(host, 2001).side(&ours.pem);
            fails(Some(ours.side(host)), Some(expired), "TLS", "valid now")
        }),
    ]
}

/// Causes for which nobody can listen.
pub(crate) fn listening(scheme: &'static str, host: &'static str) -> Vec<Cause> {
    vec![
        Cause::new("listening where somebody does", move || {
            let taken = TcpListener::bind((host, 0)).expect("an address of this machine");
            let peer = taken.local_addr().expect("its address").to_string();
            not_listening(scheme, &peer, "is in use", "choose another port")
        }),
        Cause::new("listening at another machine's address", move || {
            not_listening(scheme, "192.0.2.1:7474", "binding failed", "Is the address this machine's")
        }),
        Cause::new("listening for other machines in the clear", move || {
            not_listening(scheme, "0.0.0.0:7474", "can be reached from other machines", "--allow-plaintext")
        }),
        Cause::new("listening at a name that leads nowhere", move || {
            not_listening(scheme, "no..where:7474", "no address to listen at", "Write HOST:PORT")
        }),
    ]
}
