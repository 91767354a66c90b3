//! Connections up to their hello: who has connected and said nothing yet, and what becomes of a newcomer when
//! descriptors run out.
//!
//! Invariant: who has not said hello is no client, and holds nothing but a descriptor, for [`HELLO_TIMEOUT`]
//! at most. All such connections together have at most [`PENDING_MAX`] descriptors and a quarter of those
//! that this process may open; when there are more the oldest goes. A connection gets beyond its hello only
//! while a descriptor is in reserve.
//!
//! Protocol: the reserve is what a newcomer gets when no descriptors are left; behind it, the oldest
//! connection without a hello makes room. So a newcomer is always taken in, and its hello answered: with a
//! refusal that names the limit if there is no reserve by then.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use farsight_fabric::FabricError;
use farsight_fabric_host::{
    DisconnectReason, FIRST_CONNECTION, Farewell, LISTENER_TOKEN, Quota, TURN, descriptor_limit, os,
};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::keep_alive::{KeepAlive, prepare};
use crate::listen::{ListenError, bind};
use crate::packets::{Next, Packets};
use crate::{Stream, Tls};

/// How long a connection may take to say hello. A client looks for its device in between, which takes a busy
/// machine a while.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that have not said hello at any time.
const PENDING_MAX: usize = 512;
/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How connections are admitted.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// With it, only clients with a certificate are let in.
    pub tls: Option<Tls>,
    /// Takes in other machines in the clear.
    pub allow_plaintext: bool,
    /// Connections are refused until [`Admission::open`].
    pub opens_later: bool,
    /// When a silent peer counts as dead.
    pub alive: &'static KeepAlive,
    /// The packet of a farewell.
    pub encode: fn(Farewell) -> Vec<u8>,
}

/// A connection that has not said hello.
#[derive(Debug)]
struct Pending {
    packets: Packets,
    address: IpAddr,
    due: Instant,
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A connection that has said something, which may be a hello.
#[derive(Debug)]
pub struct Newcomer {
    /// Its number, and epoll's token of it.
    pub connection: u64,
    /// Where it comes from.
    pub address: IpAddr,
    /// The connection.
    pub packets: Packets,
    /// What it has said.
    pub hello: Vec<u8>,
}

/// A listener, and the connections that have not said hello.
#[derive(Debug)]
pub struct Admission {
    listener: TcpListener,
    local: SocketAddr,
    options: AdmissionOptions,
    /// By connection; numbers only grow, so the first is the oldest.
    pending: BTreeMap<u64, Pending>,
    pending_max: usize,
    next_connection: u64,
    /// Closed for a newcomer when no descriptors are left.
    reserve: Option<OwnedFd>,
    /// When to accept again, if that is held off.
    accept_at: Option<Instant>,
}

impl Admission {
    /// Listens at `address`, as in `127.0.0.1:7474`; port 0 is one of the system's choice. `epoll` watches
    /// the listener from now on as [`LISTENER_TOKEN`]. It watches every connection, too, until its host takes
    /// it for more than a newcomer.
    ///
    /// # Errors
    /// [`ListenError`], which names the address and what stands against it.
    pub fn listen(address: &str, options: AdmissionOptions, epoll: &OwnedFd) -> Result<Self, ListenError> {
        let listener = bind(address, options.tls.is_some(), options.allow_plaintext)?;
        let failed = |step| ListenError::of_step(address, step);
        os::watch(epoll, &listener, LISTENER_TOKEN).map_err(failed("epoll"))?;
        let admission = Self {
            local: listener.local_addr().map_err(failed("asking for the address"))?,
            listener,
            options,
            pending: BTreeMap::new(),
            pending_max: PENDING_MAX.min(Quota::of_limit(1).descriptors()),
            next_connection: FIRST_CONNECTION,
            reserve: Some(os::wake_descriptor().map_err(failed("eventfd"))?),
            accept_at: None,
        };
        if !admission.options.opens_later {
            admission.begin().map_err(failed("listening"))?;
        }
        Ok(admission)
    }

    /// The address at which it listens, with the port that it has.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Lets peers connect from now on.
    ///
    /// # Errors
    /// [`FabricError::System`]: another program may listen there by now.
    pub fn open(&self) -> Result<(), FabricError> {
        self.begin().map_err(|error| {
            let remedy = "Does another server listen there?";
            os::system_error(format!("listening at {}", self.local), &error, remedy)
        })
    }

    fn begin(&self) -> std::io::Result<()> {
        Ok(rustix::net::listen(&self.listener, BACKLOG)?)
    }

    /// When something is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.due).chain(self.accept_at).min()
    }

    /// Accepts what waits, up to a turn's worth.
    ///
    /// # Errors
    /// [`FabricError::System`] if the listener is broken.
    fn accept(&mut self, epoll: &OwnedFd) -> Result<(), FabricError> {
        self.refill_reserve();
        for _ in 0..TURN {
            match self.listener.accept() {
                // A socket that cannot be set up is one that has gone already.
                Ok((socket, from)) => {
                    if let Ok(socket) = prepare(socket, self.options.alive) {
                        self.take_in(epoll, socket, from.ip());
                    }
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => return Ok(()),
                    Some(Errno::MFILE | Errno::NFILE) if self.make_room(epoll) => {}
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                        // The listener stays readable: it is looked at again when there may be more.
                        self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                        let _ = epoll::delete(epoll, &self.listener);
                        return Ok(());
                    }
                    // Of one connection, not of the listener.
                    Some(Errno::INTR | Errno::CONNABORTED | Errno::PERM | Errno::NETDOWN | Errno::PROTO) => {}
                    _ => {
                        let what = format!("accepting at {}", self.local);
                        return Err(os::system_error(what, &error, "The server must be started again"));
                    }
                },
            }
        }
        Ok(())
    }

    fn take_in(&mut self, epoll: &OwnedFd, socket: OwnedFd, address: IpAddr) {
        if self.pending.len() >= self.pending_max {
            self.drop_oldest(epoll, "too many connections have not said hello".to_owned());
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        // A session fails to begin for want of memory alone, and then the client sees its connection end.
        let Ok(session) = self.options.tls.as_ref().map(Tls::accept).transpose() else { return };
        let packets = Packets::new(Stream::new(socket, session));
        match os::watch(epoll, packets.socket().as_ref(), connection) {
            Ok(()) => {
                let due = Instant::now() + HELLO_TIMEOUT;
                self.pending.insert(connection, Pending { packets, address, due });
            }
            Err(error) => {
                let text = format!("the server cannot watch one more connection: {error}");
                self.turn_away(epoll, packets, DisconnectReason::Refused(text));
            }
        }
    }

    /// Gives a descriptor up for a newcomer. False if there is none to give.
    fn make_room(&mut self, epoll: &OwnedFd) -> bool {
        self.reserve.take().is_some() || self.drop_oldest(epoll, no_descriptors())
    }

    fn drop_oldest(&mut self, epoll: &OwnedFd, text: String) -> bool {
        let oldest = self.pending.pop_first();
        let is_dropped = oldest.is_some();
        if let Some((_, oldest)) = oldest {
            self.turn_away(epoll, oldest.packets, DisconnectReason::Refused(text));
        }
        is_dropped
    }

    fn refill_reserve(&mut self) {
        if self.reserve.is_none() {
            self.reserve = os::wake_descriptor().ok();
        }
    }

    /// Listens to a connection that has not said hello. Returns it once it has said something and may stay.
    pub fn hear(&mut self, epoll: &OwnedFd, connection: u64) -> Option<Newcomer> {
        let found = match self.pending.get_mut(&connection)?.packets.receive() {
            Ok(Next::Nothing) => return None,
            Ok(Next::Packet(hello)) => Ok(hello),
            Ok(Next::Unintelligible(error)) => Err(DisconnectReason::Refused(error.to_string())),
            Ok(Next::End) => Err(DisconnectReason::Gone),
            // It may be a client without a certificate, which is to know.
            Err(error) => Err(DisconnectReason::Refused(format!("the connection failed: {error}"))),
        };
        let Pending { packets, address, .. } = self.pending.remove(&connection)?;
        self.refill_reserve();
        match found {
            Ok(hello) if self.reserve.is_some() => Some(Newcomer { connection, address, packets, hello }),
            Ok(_) => {
                self.turn_away(epoll, packets, DisconnectReason::Refused(no_descriptors()));
                None
            }
            Err(reason) => {
                self.turn_away(epoll, packets, reason);
                None
            }
        }
    }

    /// Says why, if there is something to say, and hangs up.
    pub fn turn_away(&self, epoll: &OwnedFd, mut packets: Packets, reason: DisconnectReason) {
        // A forked child may hold the socket open; epoll must forget it all the same.
        let _ = epoll::delete(epoll, packets.socket());
        packets.end(reason, self.options.encode);
    }

    /// The end of a step in which epoll told of `tokens`, behind those who have said something: newcomers may
    /// get their places. Takes newcomers in, ends what is late, and accepts again when it is time.
    ///
    /// # Errors
    /// [`FabricError::System`] if the listener is broken.
    pub fn end_step(&mut self, epoll: &OwnedFd, tokens: &[u64]) -> Result<(), FabricError> {
        if tokens.contains(&LISTENER_TOKEN) {
            self.accept(epoll)?;
        }
        self.attend_to_time(epoll);
        Ok(())
    }

    fn attend_to_time(&mut self, epoll: &OwnedFd) {
        let now = Instant::now();
        // In the order in which they came, and so in that in which they are due.
        while self.pending.first_key_value().is_some_and(|(_, oldest)| oldest.due <= now) {
            self.drop_oldest(epoll, "no hello came in time".to_owned());
        }
        self.refill_reserve();
        if self.accept_at.is_some_and(|at| at <= now) {
            // If even that fails it is tried again.
            let is_watched = os::watch(epoll, &self.listener, LISTENER_TOKEN).is_ok();
            self.accept_at = (!is_watched).then_some(now + ACCEPT_PAUSE);
        }
    }
}

/// What is told who finds no descriptor left.
fn no_descriptors() -> String {
    let limit = descriptor_limit();
    let limit = limit.map_or_else(String::new, |limit| format!(", now {limit}"));
    format!("the server has no descriptors left: raise its limit (ulimit -n{limit}), or end other clients")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use farsight_fabric_host::message::Writer;

    use super::*;
    use crate::packets::packet;

    const ALIVE: KeepAlive = KeepAlive {
        idle: Duration::from_secs(1),
        pause: Duration::from_secs(1),
        probes: 4,
        unacknowledged_max: Duration::from_secs(5),
    };
    const PENDING: usize = 4;

    struct Scene {
        epoll: OwnedFd,
        admission: Admission,
    }

    impl Scene {
        fn new() -> Self {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
            let encode = |farewell| packet(Writer::new(130).text(&format!("{farewell:?}")));
            let (tls, allow_plaintext, opens_later) = (None, false, false);
            let options = AdmissionOptions { tls, allow_plaintext, opens_later, alive: &ALIVE, encode };
            let mut admission = Admission::listen("127.0.0.1:0", options, &epoll).expect("a free port");
            admission.pending_max = PENDING;
            Self { epoll, admission }
        }

        fn connect(&mut self) -> TcpStream {
            let before = self.admission.next_connection;
            let socket = TcpStream::connect(self.admission.local).expect("a connection");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
            while self.admission.next_connection == before {
                self.admission.accept(&self.epoll).expect("the listener stands");
            }
            socket
        }

        fn hear(&mut self, connection: u64) -> Option<Newcomer> {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(20)
                && self.admission.pending.contains_key(&connection)
            {
                if let Some(newcomer) = self.admission.hear(&self.epoll, connection) {
                    return Some(newcomer);
                }
            }
            None
        }
    }

    /// All that the server says until it hangs up.
    fn farewell(mut socket: TcpStream) -> String {
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }

    #[test]
    fn the_oldest_of_too_many_silent_connections_makes_room() {
        let mut scene = Scene::new();
        let mut silent: Vec<TcpStream> = (0..3 * PENDING).map(|_| scene.connect()).collect();
        assert_eq!(scene.admission.pending.len(), PENDING);
        let mut honest = scene.connect();
        honest.write_all(&packet(Writer::new(1).u64(7))).expect("a hello");
        let newcomer = scene.hear(scene.admission.next_connection - 1).expect("a hello");
        assert_eq!(newcomer.hello, Writer::new(1).u64(7).message());
        assert!(newcomer.address.is_loopback() && scene.admission.pending.len() == PENDING - 1);
        assert!(farewell(silent.remove(0)).contains("too many"));
    }

    #[test]
    fn who_is_late_goes() {
        let mut scene = Scene::new();
        let silent = scene.connect();
        scene.admission.attend_to_time(&scene.epoll);
        assert_eq!(scene.admission.pending.len(), 1, "it is not late yet");
        assert!(scene.admission.due().is_some_and(|due| due > Instant::now()));
        for pending in scene.admission.pending.values_mut() {
            pending.due = Instant::now();
        }
        scene.admission.attend_to_time(&scene.epoll);
        assert!(scene.admission.pending.is_empty() && scene.admission.due().is_none());
        assert!(farewell(silent).contains("no hello came in time"));
    }

    #[test]
    fn a_newcomer_gets_the_reserve_first_and_then_the_oldest_ones_place() {
        let mut scene = Scene::new();
        let silent = scene.connect();
        assert!(scene.admission.make_room(&scene.epoll) && scene.admission.reserve.is_none());
        assert_eq!(scene.admission.pending.len(), 1);
        assert!(scene.admission.make_room(&scene.epoll) && scene.admission.pending.is_empty());
        assert!(!scene.admission.make_room(&scene.epoll), "there is nothing more to give");
        assert!(farewell(silent).contains("no descriptors left"));
        scene.admission.attend_to_time(&scene.epoll);
        assert!(scene.admission.reserve.is_some());
    }
}
