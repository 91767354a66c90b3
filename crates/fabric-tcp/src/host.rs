//! The server: its listener, its regions and its clients.
//!
//! Invariant: a client has the number of its control connection, which is its token in epoll, too. With the
//! client go that connection and, through their gates, its queues.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop; everything there is non-blocking, so a peer
//! that is silent, slow or hostile holds up nobody. Up to its hello a connection is [`Admission`]'s.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{Departure, FabricError, Host, Region, RegionRights, SetAside};
use farsight_fabric_host::{
    Clients, DisconnectReason, FENCE_TIMEOUT, Handshake, Held, LISTENER_TOKEN, Quota, TURN, lock, os,
};
use farsight_fabric_net::packets::Packets;
use farsight_fabric_net::{Admission, AdmissionOptions, ListenError, Newcomer, Tls, Waiting};
use rustix::event::epoll;

use crate::MESSAGE_BYTES_MAX;
use crate::alive::ALIVE;
use crate::control::{ClientMessage, FABRIC_VERSION, MAGIC, Purpose, ServerMessage};
use crate::grants::Token;
use crate::port::TcpPort;
use crate::served_regions::ServedRegions;
use crate::server_queue::{QUEUE_BYTES_MAX, ServerQueue};
use crate::session::{Client, check_address, purpose};

/// Descriptors of a client besides its queue pairs': the control connection's.
const DESCRIPTORS_PER_CLIENT: usize = 1;

type Sessions = farsight_fabric_host::Sessions<Client>;

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
    clients: Clients<Client, ServerQueue>,
    admission: Mutex<Admission>,
    address: SocketAddr,
    handshake: Handshake,
    waiting: Waiting,
    quota: Quota,
    regions: Arc<ServedRegions>,
}

/// What all clients at `address` have open.
fn held_at(sessions: &Sessions, address: IpAddr) -> Held {
    sessions.by_id.values().filter(|client| client.address == address).map(Client::held).sum()
}

impl TcpHost {
    /// Listens at `address`, as in `127.0.0.1:7474`; port 0 is one of the system's choice.
    ///
    /// # Errors
    /// [`ListenError`], which names the address and what stands against it.
    pub fn listen(address: &str, options: &ListenOptions) -> Result<Self, ListenError> {
        let clients = Clients::new().map_err(ListenError::of_step(address, "epoll"))?;
        let ListenOptions { format_version, ref tls, allow_plaintext, waiting, opens_later } = *options;
        let admission = AdmissionOptions {
            tls: tls.clone(),
            allow_plaintext,
            opens_later,
            alive: &ALIVE,
            encode: ServerMessage::encode_farewell,
        };
        let admission = Admission::listen(address, admission, &clients.epoll)?;
        let handshake = Handshake::begin(MAGIC, FABRIC_VERSION, format_version);
        Ok(Self {
            clients,
            address: admission.local_address(),
            admission: Mutex::new(admission),
            handshake: handshake.map_err(ListenError::of_step(address, "getrandom"))?,
            waiting,
            quota: Quota::of_limit(DESCRIPTORS_PER_CLIENT),
            regions: Arc::default(),
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
        let grants = self.clients.lock().by_id.get(&client).map(|client| Arc::clone(&client.grants));
        if let Some(grants) = grants {
            grants.revoke(region);
        }
    }

    /// Listens to a connection that has not said hello.
    fn greet(&self, sessions: &mut Sessions, connection: u64) {
        let Some(newcomer) = lock(&self.admission).hear(&self.clients.epoll, connection) else { return };
        let outcome = match purpose(&newcomer.hello, &self.handshake) {
            Ok(Purpose::Client) => self.welcome(sessions, newcomer),
            Ok(Purpose::Queue { client, key }) => self.open_queue(sessions, ClientId(client), &key, newcomer),
            Err(reason) => Err((newcomer.packets, reason)),
        };
        if let Err((packets, reason)) = outcome {
            lock(&self.admission).turn_away(&self.clients.epoll, packets, reason);
        }
    }

    fn welcome(
        &self,
        sessions: &mut Sessions,
        newcomer: Newcomer,
    ) -> Result<(), (Packets, DisconnectReason)> {
        let Newcomer { connection, address, packets, .. } = newcomer;
        if let Err(text) = check_address(self.quota, address, || held_at(sessions, address)) {
            return Err((packets, DisconnectReason::Refused(text)));
        }
        let id = ClientId(connection);
        // A client that is gone before it was welcomed never was one.
        let Ok(client) = Client::welcome(id, address, packets, &self.handshake, &self.regions) else {
            return Ok(());
        };
        sessions.by_id.insert(id, client);
        Ok(())
    }

    /// Makes a connection a queue pair of `client`, or says why not.
    fn open_queue(
        &self,
        sessions: &mut Sessions,
        id: ClientId,
        key: &Token,
        newcomer: Newcomer,
    ) -> Result<(), (Packets, DisconnectReason)> {
        let Newcomer { mut packets, .. } = newcomer;
        let Some(client) = sessions.by_id.get_mut(&id).filter(|client| client.is_proved_by(key)) else {
            let text = "no such client, or another key: connect again".to_owned();
            return Err((packets, DisconnectReason::Refused(text)));
        };
        client.queues.retain(|queue| queue.is_open());
        let (own, address) = (client.held(), client.address);
        let room = self.quota.check_queue("this client", own);
        let room = room.and_then(|()| check_address(self.quota, address, || held_at(sessions, address)));
        let reserved = match room.and_then(|()| self.clients.set_aside(own.queues, QUEUE_BYTES_MAX)) {
            Ok(reserved) => reserved,
            Err(text) => return Err((packets, DisconnectReason::Refused(text))),
        };
        let Some(client) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        // From here on the port watches it.
        let _ = epoll::delete(&self.clients.epoll, packets.socket());
        if packets.send(&ServerMessage::Ready.encode()).is_err() {
            return Ok(());
        }
        // A client that does not wait for the answer to its hello is none of this fabric.
        let Some(stream) = packets.into_stream() else { return Ok(()) };
        let queue = ServerQueue::new(id, Arc::clone(&client.grants), stream, reserved);
        client.queues.push(Arc::clone(&queue.handle));
        self.clients.ports.assign(queue);
        Ok(())
    }

    /// Answers what a client asks, up to a turn's worth.
    fn attend(&self, sessions: &mut Sessions, id: ClientId) {
        for _ in 0..TURN {
            let Some(client) = sessions.by_id.get_mut(&id) else { return };
            let outcome = match client.listen() {
                Ok(None) => return,
                Ok(Some(ClientMessage::Attach { region })) => self.attach(client, region),
                Ok(Some(ClientMessage::Hello { .. })) => unreachable!("a client's second hello ends it"),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = outcome {
                return self.clients.end(sessions, id, reason);
            }
        }
    }

    fn attach(&self, client: &mut Client, region: RegionId) -> Result<(), DisconnectReason> {
        let served = self.regions.lock().get(region).cloned();
        let Some(served) = served else {
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

    fn serves_growing_regions(&self) -> bool {
        true
    }

    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        self.regions.export(region, rights)
    }

    /// Clients learn of it by the answer to the first batch that names it. When this returns no verb touches
    /// the region any more. A batch that names it and whose client is slow to take its results ends the
    /// queue.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let withdrawn = self.regions.lock().withdraw(region, || Host::address(self));
        drop(withdrawn?);
        // A client that attached it in between did so with the sessions locked: it is among these.
        let sessions = self.clients.lock();
        let grants: Vec<_> = sessions.by_id.values().map(|client| Arc::clone(&client.grants)).collect();
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

    fn limit_queues(&self, set_aside: SetAside) {
        self.clients.limit_queues(set_aside);
    }

    fn open(&self) -> Result<(), FabricError> {
        lock(&self.admission).open()
    }

    fn open_port(&self) -> Result<TcpPort, FabricError> {
        let port = TcpPort::new(Arc::clone(&self.clients.disconnects), self.waiting).map_err(|error| {
            os::system_error("opening a port", &error, "Are descriptors left (ulimit -n)?")
        })?;
        self.clients.ports.open(port.shared());
        Ok(port)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let due = lock(&self.admission).due();
        let tokens = self.clients.events(timeout, due)?;
        let mut sessions = self.clients.lock();
        for token in tokens.iter().copied().filter(|token| *token != LISTENER_TOKEN) {
            if sessions.by_id.contains_key(&ClientId(token)) {
                self.attend(&mut sessions, ClientId(token));
            } else {
                self.greet(&mut sessions, token);
            }
        }
        lock(&self.admission).end_step(&self.clients.epoll, &tokens)?;
        self.clients.end_disconnected(&mut sessions);
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        self.clients.count()
    }

    /// Closes the client's gates, tells it, closes its connections, and waits until no request of it
    /// executes.
    ///
    /// Must not be called from a handler that executes a request of that same client: it would wait for
    /// itself, and end in [`FabricError::TimedOut`].
    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        self.clients.fence(client, Instant::now() + FENCE_TIMEOUT)
    }

    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        Ok(self.clients.dismiss(client))
    }

    fn wake(&self) {
        self.clients.wake();
    }

    fn wake_ports(&self) {
        self.clients.wake_ports();
    }
}
