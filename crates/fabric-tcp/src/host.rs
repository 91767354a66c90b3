//! The server: its listener, its regions, its clients, and which worker serves whom.
//!
//! Invariant: a client is in the table from its welcome to its end, whichever comes of it: its own close, a
//! dead network, a broken rule, a fence. With it go its control connection and, through their gates, its
//! queues. Once none of its requests executes any more, the server is told.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop; everything there is non-blocking, so a peer
//! that is silent, slow or hostile holds up nobody. Up to its hello a connection is [`Admission`]'s.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{FabricError, Held, Host, Region, RegionRights, Share};
use farsight_fabric_net::packets::Packets;
use farsight_fabric_net::{
    Admission, AdmissionOptions, DisconnectQueue, Ending, Handshake, LISTENER_TOKEN, ListenError, Newcomer,
    Tls, Waiting, bind, os,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::MESSAGE_BYTES_MAX;
use crate::alive::ALIVE;
use crate::control::{ClientMessage, FABRIC_VERSION, MAGIC, Purpose, ServerMessage};
use crate::grants::Token;
use crate::port::{PortShared, TcpPort};
use crate::served_regions::ServedRegions;
use crate::server_queue::{QueueHandle, ServerQueue};
use crate::session::{Client, check_address, purpose, refusal};

/// How long a fence waits for requests that execute.
const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a request that executes for a client which has ended is waited for at a time.
const LEAVING_PAUSE: Duration = Duration::from_millis(1);
/// Questions of one client answered before others have their turn.
const TURN: usize = 32;
/// Descriptors of a client besides its queue pairs': the control connection's.
const DESCRIPTORS_PER_CLIENT: usize = 1;

/// The wake descriptor among epoll's tokens, which are the listener's and those of connections.
const WAKE_TOKEN: u64 = 1;

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// With it, only clients with a certificate are let in, and everything is encrypted.
    pub tls: Option<Tls>,
    /// Serves in the clear beyond this machine: anyone on the way can read and change everything.
    pub allow_plaintext: bool,
    /// How workers wait for their clients.
    pub waiting: Waiting,
    /// It accepts clients when it is opened ([`Host::open`](farsight_fabric::Host::open)), and not before.
    pub opens_later: bool,
}

impl ListenOptions {
    /// In the clear, on this machine alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self {
            format_version,
            tls: None,
            allow_plaintext: false,
            waiting: Waiting::default(),
            opens_later: false,
        }
    }
}

/// A server of regions and calls over TCP.
pub struct TcpHost {
    address: SocketAddr,
    handshake: Handshake,
    waiting: Waiting,
    share: Share,
    epoll: OwnedFd,
    disconnects: Arc<DisconnectQueue>,
    sessions: Mutex<Sessions>,
    regions: Arc<ServedRegions>,
    ports: Mutex<Ports>,
}

struct Sessions {
    admission: Admission,
    clients: HashMap<ClientId, Client>,
    /// The client of each control connection.
    by_connection: HashMap<u64, ClientId>,
    /// Ended, and not yet told to the server.
    leaving: Vec<(ClientId, Vec<Arc<QueueHandle>>)>,
    next_client: u64,
}

#[derive(Default)]
struct Ports {
    open: Vec<Weak<PortShared>>,
    next: usize,
    /// Queues opened before there was a port.
    waiting: Vec<ServerQueue>,
}

impl Sessions {
    /// How long nothing is due.
    fn patience(&self) -> Duration {
        if !self.leaving.is_empty() {
            return LEAVING_PAUSE;
        }
        self.admission.due().map_or(os::SLEEP_MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// What all clients at `address` have open.
    fn held_at(&self, address: IpAddr) -> Held {
        let there = self.clients.values().filter(|client| client.address == address);
        there.map(Client::held).fold(Held::default(), |sum, held| Held {
            connections: sum.connections + held.connections,
            queues: sum.queues + held.queues,
        })
    }

    /// The clients that have ended and of whose requests none executes any more.
    fn take_departed(&mut self) -> Vec<ClientId> {
        let is_busy = |queues: &[Arc<QueueHandle>]| queues.iter().any(|queue| queue.gate.is_being_served());
        self.leaving.extract_if(.., |(_, queues)| !is_busy(queues)).map(|(id, _)| id).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpHost {
    /// Listens at `address`, as in `127.0.0.1:7474`; port 0 is one of the system's choice.
    ///
    /// # Errors
    /// [`ListenError`], which names the address and what stands against it.
    pub fn listen(address: &str, options: &ListenOptions) -> Result<Self, ListenError> {
        let listener = bind(address, options.tls.is_some(), options.allow_plaintext)?;
        let failed = |step: &'static str| {
            move |source: std::io::Error| ListenError::System { address: address.to_owned(), step, source }
        };
        let local = listener.local_addr().map_err(failed("asking for the address"))?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("epoll")(error.into()))?;
        let wake = os::wake_descriptor().map_err(failed("eventfd"))?;
        os::watch(&epoll, &wake, WAKE_TOKEN).map_err(failed("epoll"))?;
        let admission = AdmissionOptions { tls: options.tls.clone(), alive: &ALIVE, refusal };
        let admission = Admission::new(listener, admission, &epoll).map_err(failed("preparing"))?;
        if !options.opens_later {
            admission.open().map_err(failed("listening"))?;
        }
        let epoch = Epoch(u64::from_le_bytes(os::random().map_err(failed("getrandom"))?));
        Ok(Self {
            address: local,
            handshake: Handshake {
                epoch,
                magic: MAGIC,
                fabric_version: FABRIC_VERSION,
                format_version: options.format_version,
            },
            waiting: options.waiting,
            share: Share::new(getrlimit(Resource::Nofile).current, DESCRIPTORS_PER_CLIENT),
            epoll,
            disconnects: Arc::new(DisconnectQueue::new(wake)),
            sessions: Mutex::new(Sessions {
                admission,
                clients: HashMap::new(),
                by_connection: HashMap::new(),
                leaving: Vec::new(),
                next_client: 1,
            }),
            regions: Arc::default(),
            ports: Mutex::default(),
        })
    }

    /// The address at which it listens, with the port that it has.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Takes a region away from one client. When this returns no verb of the client touches it any more; the
    /// next that tries ends its queue.
    pub fn revoke(&self, client: ClientId, region: RegionId) {
        let grants = lock(&self.sessions).clients.get(&client).map(|client| Arc::clone(&client.grants));
        if let Some(grants) = grants {
            grants.revoke(region);
        }
    }

    /// Listens to a connection that has not said hello.
    fn greet(&self, sessions: &mut Sessions, connection: u64) {
        let Some(newcomer) = sessions.admission.hear(&self.epoll, connection) else { return };
        let outcome = match purpose(&newcomer.hello, &self.handshake) {
            Ok(Purpose::Client) => self.welcome(sessions, newcomer),
            Ok(Purpose::Queue { client, key }) => self.open_queue(sessions, ClientId(client), &key, newcomer),
            Err(ending) => Err((newcomer.packets, ending)),
        };
        if let Err((packets, ending)) = outcome {
            sessions.admission.turn_away(&self.epoll, packets, ending);
        }
    }

    fn welcome(&self, sessions: &mut Sessions, newcomer: Newcomer) -> Result<(), (Packets, Ending)> {
        let Newcomer { connection, address, packets, .. } = newcomer;
        if let Err(text) = check_address(self.share, address, || sessions.held_at(address)) {
            return Err((packets, Ending::Refused(text)));
        }
        let id = ClientId(sessions.next_client);
        sessions.next_client += 1;
        // A client that is gone before it was welcomed never was one.
        let Ok(client) = Client::welcome(id, address, packets, &self.handshake, &self.regions) else {
            return Ok(());
        };
        sessions.by_connection.insert(connection, id);
        sessions.clients.insert(id, client);
        Ok(())
    }

    /// Makes a connection a queue pair of `client`, or says why not.
    fn open_queue(
        &self,
        sessions: &mut Sessions,
        id: ClientId,
        key: &Token,
        newcomer: Newcomer,
    ) -> Result<(), (Packets, Ending)> {
        let Newcomer { mut packets, .. } = newcomer;
        let Some(client) = sessions.clients.get_mut(&id).filter(|client| client.is_proved_by(key)) else {
            let text = "no such client, or another key: connect again".to_owned();
            return Err((packets, Ending::Refused(text)));
        };
        client.queues.retain(|queue| queue.is_open());
        let (own, address) = (client.held(), client.address);
        let room = self.share.check_queue("this client", own);
        let room = room.and_then(|()| check_address(self.share, address, || sessions.held_at(address)));
        if let Err(text) = room {
            return Err((packets, Ending::Refused(text)));
        }
        let Some(client) = sessions.clients.get_mut(&id) else { return Ok(()) };
        // From here on the port watches it.
        let _ = epoll::delete(&self.epoll, packets.socket());
        if packets.send(&ServerMessage::Ready.encode()).is_err() {
            return Ok(());
        }
        // A client that does not wait for the answer to its hello is none of this fabric.
        let Some(stream) = packets.into_stream() else { return Ok(()) };
        let queue = ServerQueue::new(id, Arc::clone(&client.grants), stream);
        client.queues.push(Arc::clone(&queue.handle));
        self.assign(queue);
        Ok(())
    }

    /// Gives a queue to the port whose turn it is.
    fn assign(&self, queue: ServerQueue) {
        let mut ports = lock(&self.ports);
        ports.open.retain(|port| port.strong_count() > 0);
        ports.next = ports.next.wrapping_add(1);
        let turn = ports.next.checked_rem(ports.open.len());
        match turn.and_then(|turn| ports.open[turn].upgrade()) {
            Some(port) => port.give(queue),
            None => ports.waiting.push(queue),
        }
    }

    /// Answers what a client asks, up to a turn's worth.
    fn attend(&self, sessions: &mut Sessions, id: ClientId) {
        for _ in 0..TURN {
            let Some(client) = sessions.clients.get_mut(&id) else { return };
            let outcome = match client.listen() {
                Ok(None) => return,
                Ok(Some(ClientMessage::Attach { region })) => self.attach(client, region),
                Ok(Some(ClientMessage::Hello { .. })) => unreachable!("a client's second hello ends it"),
                Err(ending) => Err(ending),
            };
            if let Err(ending) = outcome {
                return self.end(sessions, id, ending);
            }
        }
    }

    fn attach(&self, client: &mut Client, region: RegionId) -> Result<(), Ending> {
        let Some(served) = self.regions.get(region) else {
            return client.tell(&ServerMessage::NoSuchRegion { region });
        };
        match client.grants.grant(&served) {
            Ok(token) => {
                let (rights, length_bytes) = (served.rights, served.region.words().len() as u64 * 8);
                client.tell(&ServerMessage::Attached { region, rights, length_bytes, token })
            }
            Err(error) => client.tell(&ServerMessage::Failed { text: error.to_string() }),
        }
    }

    fn end(&self, sessions: &mut Sessions, id: ClientId, ending: Ending) {
        let Some(client) = sessions.clients.remove(&id) else { return };
        // A forked child may hold the socket open; epoll must forget it all the same.
        let _ = epoll::delete(&self.epoll, client.packets.socket());
        sessions.by_connection.retain(|_, client| *client != id);
        sessions.leaving.push((id, client.end(ending)));
        // A fence comes from another thread than the one that steps.
        os::signal(&self.disconnects.wake);
        let mut ports = lock(&self.ports);
        ports.waiting.retain(|queue| !queue.is_closed());
        for port in ports.open.iter().filter_map(Weak::upgrade) {
            port.notice();
        }
    }

    fn attend_to_time_and_disconnects(&self, sessions: &mut Sessions) {
        for (client, ending) in self.disconnects.take() {
            self.end(sessions, client, ending);
        }
        sessions.admission.attend_to_time(&self.epoll);
    }
}

impl Host for TcpHost {
    type Port = TcpPort;

    fn address(&self) -> String {
        format!("tcp://{}", self.address)
    }

    fn epoch(&self) -> Epoch {
        self.handshake.epoch
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        self.regions.create(length_bytes, rights)
    }

    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        self.regions.export(region, rights)
    }

    /// Clients learn of it by the answer to the first batch that names it. When this returns no verb touches
    /// the region any more. A batch that names it and whose client is slow to take its results ends the
    /// queue.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let withdrawn = self.regions.withdraw(region);
        drop(withdrawn.ok_or_else(|| FabricError::UnknownRegion { peer: Host::address(self), region })?);
        // A client that attached it in between did so with the sessions locked: it is among these.
        let sessions = lock(&self.sessions);
        let grants: Vec<_> = sessions.clients.values().map(|client| Arc::clone(&client.grants)).collect();
        drop(sessions);
        for grants in &grants {
            grants.revoke(region);
        }
        Ok(())
    }

    /// Clients read it in the heading of whatever they are answered.
    fn notify(&self, notice: u64) {
        self.regions.notify(notice);
    }

    fn open(&self) -> Result<(), FabricError> {
        lock(&self.sessions).admission.open().map_err(|error| {
            os::system_error(
                format!("listening at {}", self.address),
                &error,
                "Does another server listen there?",
            )
        })
    }

    fn open_port(&self) -> Result<TcpPort, FabricError> {
        let port = TcpPort::new(Arc::clone(&self.disconnects), self.waiting).map_err(|error| {
            os::system_error("opening a port".to_owned(), &error, "Are descriptors left (ulimit -n)?")
        })?;
        let mut ports = lock(&self.ports);
        for queue in ports.waiting.drain(..) {
            port.shared().give(queue);
        }
        ports.open.push(Arc::downgrade(port.shared()));
        Ok(port)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let timeout = os::timespec(timeout.min(lock(&self.sessions).patience()));
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(os::system_error("waiting for clients".to_owned(), &error.into(), "A bug"));
            }
        }
        let mut sessions = lock(&self.sessions);
        let mut are_waiting = false;
        for event in events {
            match event.data.u64() {
                LISTENER_TOKEN => are_waiting = true,
                WAKE_TOKEN => os::drain(&self.disconnects.wake),
                connection => match sessions.by_connection.get(&connection).copied() {
                    Some(client) => self.attend(&mut sessions, client),
                    None => self.greet(&mut sessions, connection),
                },
            }
        }
        // Behind those who have said something: newcomers may take their places.
        if are_waiting {
            sessions.admission.accept(&self.epoll)?;
        }
        self.attend_to_time_and_disconnects(&mut sessions);
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        lock(&self.sessions).clients.len()
    }

    /// Closes the client's gates, waits until no request of it executes, tells it, and closes its
    /// connections.
    ///
    /// Must not be called from a handler that executes a request of that same client: it would wait for
    /// itself, and end in [`FabricError::TimedOut`].
    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        let deadline = Instant::now() + FENCE_TIMEOUT;
        loop {
            let mut sessions = lock(&self.sessions);
            // Looked for again each time: it may end by itself meanwhile, and then it is leaving.
            let is_busy = match sessions.clients.get(&client) {
                Some(present) => {
                    present.close_gates();
                    present.is_being_served()
                }
                None => sessions.leaving.iter().any(|(id, queues)| {
                    *id == client && queues.iter().any(|queue| queue.gate.is_being_served())
                }),
            };
            if !is_busy {
                self.end(
                    &mut sessions,
                    client,
                    Ending::Dismissed("the server fenced this client".to_owned()),
                );
                return Ok(());
            }
            drop(sessions);
            if Instant::now() >= deadline {
                let peer = client.to_string();
                return Err(FabricError::TimedOut { peer, what: "a fence", waited: FENCE_TIMEOUT });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn wake(&self) {
        os::signal(&self.disconnects.wake);
        for port in lock(&self.ports).open.iter().filter_map(Weak::upgrade) {
            port.wake();
        }
    }
}

impl Drop for TcpHost {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        let clients: Vec<ClientId> = sessions.clients.keys().copied().collect();
        for client in clients {
            self.end(&mut sessions, client, Ending::Stopped);
        }
    }
}
