//! The server: its control socket, its regions and its clients.
//!
//! Invariant: a client has the number of its control connection, which is its token in epoll, too. With the
//! client go that connection and its queue pairs, and then no verb of it executes.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop. Everything there is non-blocking but for the
//! making of queue pairs, so a client that is silent, slow or hostile holds up nobody. Up to its hello a
//! connection is [`Admission`]'s, and takes the place of no client.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{Departure, FabricError, Host, Region, RegionRights, SetAside};
use farsight_fabric_host::{
    Clients, DisconnectReason, FENCE_TIMEOUT, Handshake, LISTENER_TOKEN, RegionTable, TURN, lock, os,
};
use farsight_fabric_net::{Admission, AdmissionOptions, Newcomer, Tls, Waiting};

use super::port::{PortShared, VerbsPort};
use super::queue::{QUEUE_BYTES, RECEIVE_BYTES, RECEIVES, Receives, ServerQueue};
use super::region::OwnRegion;
use super::session::{Asked, Session, check_hello};
use super::tenants::{Offer, Tenants};
use crate::call_frame::PAYLOAD_BYTES_MAX;
use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::ibv::completion::CompletionQueue;
use crate::ibv::device::Device;
use crate::ibv::ffi::access;
use crate::ibv::pair::{Endpoint, PairShape, RcPair};
use crate::{CALLS_MAX, CONTROL_ALIVE, INLINE_BYTES};

/// How long the keys of a withdrawn region are good. Clients hear of it within a second; what they have under
/// way then gets another.
const KEYS_LAST: Duration = Duration::from_secs(2);
/// Clients connected at a time.
const SESSIONS_MAX: usize = 1024;
/// Completions that a port holds, if its card does.
const COMPLETIONS_MAX: u32 = 32 << 10;

type Sessions = farsight_fabric_host::Sessions<Session>;

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// The RDMA device to use; by default the one with the address listened at.
    pub device: Option<String>,
    /// With it, only clients with a certificate are let in, and where regions lie and under which keys is
    /// told in secret. What the cards then send is in the clear all the same.
    pub tls: Option<Tls>,
    /// Listens beyond this machine without certificates: anyone who reaches the port is let in, and anyone on
    /// the way learns the keys.
    pub allow_plaintext: bool,
    /// How workers wait for calls.
    pub waiting: Waiting,
    /// It accepts clients when it is opened ([`Host::open`](farsight_fabric::Host::open)), and not before.
    pub opens_later: bool,
}

impl ListenOptions {
    /// The device that fits, for clients on this machine.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self {
            format_version,
            device: None,
            tls: None,
            allow_plaintext: false,
            waiting: Waiting::default(),
            opens_later: false,
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Something stands against the address of the control connections.
    #[error(transparent)]
    Address(#[from] farsight_fabric_net::ListenError),
    /// There is no RDMA device, or it has too little of something.
    #[error(transparent)]
    Device(#[from] FabricError),
}

/// A server of regions and calls by RDMA.
#[derive(Debug)]
pub struct VerbsHost {
    clients: Clients<Session, Arc<ServerQueue>, Arc<CompletionQueue>>,
    admission: Mutex<Admission>,
    address: SocketAddr,
    handshake: Handshake,
    waiting: Waiting,
    tenants: Tenants,
    regions: Mutex<RegionTable<Offer>>,
    /// Withdrawn, and until when their keys are good, the first one's end first.
    withdrawn: Mutex<VecDeque<(Instant, Offer)>>,
}

/// Completions that all clients together may cause at one port, at most.
fn completions(sessions: &Sessions) -> usize {
    let of = |session: &Session| {
        usize::from(session.receives.is_some()) * RECEIVES + session.queues.len() * CALLS_MAX
    };
    sessions.by_id.values().map(of).sum()
}

impl VerbsHost {
    /// Listens at `address`, `ip:port`, for clients' control connections.
    ///
    /// # Errors
    /// [`ListenError`]: an address that is taken, not this machine's, or reachable from others without
    /// certificates; no RDMA device.
    pub fn listen(address: &str, options: &ListenOptions) -> Result<Self, ListenError> {
        let failed = |step| farsight_fabric_net::ListenError::of_step(address, step);
        let ListenOptions { format_version, ref device, ref tls, allow_plaintext, waiting, opens_later } =
            *options;
        let clients = Clients::new().map_err(failed("epoll"))?;
        let admission = AdmissionOptions {
            tls: tls.clone(),
            allow_plaintext,
            // Only once there is a device.
            opens_later: true,
            alive: &CONTROL_ALIVE,
            encode: FromServer::encode_farewell,
        };
        let admission = Admission::listen(address, admission, &clients.epoll)?;
        let listening = os::during(format!("listening at {address}"));
        let bound = admission.local_address();
        let device = Device::choose(device.as_deref(), bound.ip()).map_err(&listening)?;
        let tenants = Tenants::new(device, tls.is_some()).map_err(&listening)?;
        if !opens_later {
            admission.open()?;
        }
        let handshake = Handshake::begin(MAGIC, FABRIC_VERSION, format_version);
        Ok(Self {
            clients,
            admission: Mutex::new(admission),
            address: bound,
            handshake: handshake.map_err(failed("getrandom"))?,
            waiting,
            tenants,
            regions: Mutex::default(),
            withdrawn: Mutex::default(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket_address(&self) -> SocketAddr {
        self.address
    }

    /// The RDMA device in use.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.tenants.device().name
    }

    /// Puts every client's queue pairs into error, as a fault of the card does: nobody is told, and
    /// connections stand.
    #[cfg(feature = "hostile")]
    pub fn break_queue_pairs(&self) {
        for queue in self.clients.lock().by_id.values().flat_map(|session| &session.queues) {
            // One that is gone needs no breaking.
            let _ = queue.with_pair(RcPair::break_off);
        }
    }

    /// Queues that are kept, of all clients.
    #[cfg(test)]
    pub(crate) fn queue_count(&self) -> usize {
        self.clients.lock().by_id.values().map(|session| session.queues.len()).sum()
    }

    fn completions_max(&self) -> u32 {
        COMPLETIONS_MAX.min(self.tenants.device().attributes.completions_max)
    }

    /// Listens to a connection that has not said hello.
    fn greet(&self, sessions: &mut Sessions, connection: u64) {
        let Some(Newcomer { packets, hello, .. }) =
            lock(&self.admission).hear(&self.clients.epoll, connection)
        else {
            return;
        };
        let id = ClientId(connection);
        let tenant = check_hello(&hello, &self.handshake).and_then(|()| {
            if sessions.by_id.len() >= SESSIONS_MAX {
                let reason = format!("{SESSIONS_MAX} clients are connected already: let some of them end");
                return Err(DisconnectReason::Refused(reason));
            }
            let tenant = self.tenants.of(packets.peer_certificate());
            tenant.map_err(|error| DisconnectReason::Refused(error.to_string()))
        });
        match tenant {
            Ok(tenant) => {
                // A client that is gone before it was welcomed never was one.
                let notice = sessions.notice;
                let session = Session::welcome(id, packets, tenant, &self.handshake, notice);
                let Ok(session) = session else { return };
                sessions.by_id.insert(id, session);
                // A hello may have a question right behind it.
                self.attend(sessions, id);
            }
            Err(reason) => lock(&self.admission).turn_away(&self.clients.epoll, packets, reason),
        }
    }

    /// Answers what a client asks, up to a turn's worth; the rest has its turn after the others.
    fn attend(&self, sessions: &mut Sessions, id: ClientId) {
        for _ in 0..TURN {
            let Some(session) = sessions.by_id.get_mut(&id) else { return };
            session.has_more = false;
            let outcome = match session.listen() {
                Ok(None) => return,
                Ok(Some(FromClient::OpenQueue { endpoint })) => {
                    session.asked = Some(Asked::Queue(endpoint));
                    self.answer(sessions, id)
                }
                Ok(Some(FromClient::Attach { region })) => {
                    session.asked = Some(Asked::Region(region));
                    self.answer(sessions, id)
                }
                Ok(Some(FromClient::CloseQueue { queue })) => {
                    self.close_queue(session, queue);
                    Ok(())
                }
                Ok(Some(FromClient::Hello { .. })) => unreachable!("a client's second hello ends it"),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = outcome {
                return self.clients.end(sessions, id, reason);
            }
        }
        if let Some(session) = sessions.by_id.get_mut(&id) {
            // What it said may have been taken from its socket already, which then stays silent.
            session.has_more = true;
            os::signal(&self.clients.disconnects.wake);
        }
    }

    /// Answers what the client asked, if that can be done now.
    fn answer(&self, sessions: &mut Sessions, id: ClientId) -> Result<(), DisconnectReason> {
        let Some(session) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        match session.asked {
            None => Ok(()),
            Some(Asked::Queue(peer)) => self.open_queue(sessions, id, peer),
            Some(Asked::Region(region)) => self.attach(session, region),
        }
    }

    /// Tells where a region is, if it is registered for the client's tenant.
    fn attach(&self, session: &mut Session, id: RegionId) -> Result<(), DisconnectReason> {
        let offer = lock(&self.regions).get(id).cloned();
        let Some(offer) = &offer else {
            session.asked = None;
            return session.tell(&FromServer::NoSuchRegion { region: id });
        };
        // The client is answered when the region is prepared, and registered for its tenant.
        let attached =
            if offer.is_prepared() { session.tenant.attach(offer, &self.clients.disconnects) } else { None };
        let Some(attached) = attached else { return Ok(()) };
        session.asked = None;
        if attached.is_ok() {
            session.attached.insert(id);
        }
        session.tell(&match attached {
            Ok(region) => FromServer::Attached {
                region: id,
                rights: region.rights,
                length_bytes: region.length_bytes(),
                address: region.memory.address(),
                key: region.memory.remote_key,
            },
            Err(text) => FromServer::Failed { text },
        })
    }

    /// Opens the queue that the client requested, if there is a port.
    fn open_queue(
        &self,
        sessions: &mut Sessions,
        id: ClientId,
        peer: Endpoint,
    ) -> Result<(), DisconnectReason> {
        let Some(port) = self.clients.ports.next() else { return Ok(()) };
        let planned = completions(sessions) + RECEIVES + CALLS_MAX;
        let Some(session) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        session.asked = None;
        let made = if planned > self.completions_max() as usize {
            Err("too many queues are open".to_owned())
        } else {
            self.make_queue(session, &peer, &port).map_err(|error| error.to_string())
        };
        match made {
            Ok((queue, endpoint)) => session.tell(&FromServer::QueueOpened { queue, endpoint }),
            Err(text) => session.tell(&FromServer::Failed { text }),
        }
    }

    fn make_queue(
        &self,
        session: &mut Session,
        peer: &Endpoint,
        port: &PortShared,
    ) -> Result<(u64, Endpoint), FabricError> {
        const WHAT: &str = "opening a queue";
        let set_aside = |queues, bytes| {
            self.clients.set_aside(queues, bytes).map_err(|text| FabricError::System {
                what: WHAT.to_owned(),
                source_text: text,
                remedy: "It is the server's memory".to_owned(),
            })
        };
        let reserved = set_aside(session.queues.len(), QUEUE_BYTES)?;
        let domain = Arc::clone(&session.tenant.domain);
        let random = || match os::random() {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(error) => Err(os::system_error(WHAT, &error, "A bug")),
        };
        let receives = match &session.receives {
            Some(receives) => Arc::clone(receives),
            None => Receives::new(&domain, session.id, set_aside(0, RECEIVE_BYTES)?)?,
        };
        session.receives = Some(Arc::clone(&receives));
        let shape = PairShape {
            sends_max: CALLS_MAX as u32,
            receives_max: 0,
            shared: Some(Arc::clone(&receives.shared)),
            rights: access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC,
            inline_bytes: INLINE_BYTES,
        };
        let pair = RcPair::new(&domain, &port.device, shape, random()? as u32)?;
        let endpoint = pair.endpoint();
        let queue = Arc::new(ServerQueue::new(&domain, pair, random()?, (receives, reserved))?);
        session.queues.push(Arc::clone(&queue));
        let number = queue.number;
        // The port knows it before the first request can come.
        port.give(Arc::clone(&queue));
        let connected = queue.with_pair(|pair| pair.connect(peer)).unwrap_or(Ok(()));
        if let Err(error) = connected {
            self.close_queue(session, number);
            return Err(error);
        }
        Ok((number, endpoint))
    }

    /// Offers a region to clients, whose memory `take_memory` takes before it is registered.
    fn offer(
        &self,
        region: &Arc<dyn Region>,
        rights: RegionRights,
        take_memory: impl FnOnce() + Send + 'static,
    ) -> Result<(), FabricError> {
        let id = region.id();
        let preparing = {
            let mut regions = lock(&self.regions);
            regions.check_export(id)?;
            let offer = Offer::new(Arc::clone(region), rights);
            let preparing = self.tenants.prepare(&offer, take_memory, &self.clients.disconnects)?;
            regions.insert(id, offer);
            preparing
        };
        preparing.wait().inspect_err(|_| drop(lock(&self.regions).withdraw(id, String::new)))
    }

    /// Closes a queue that its client wants no more; its port does the rest. Until the queue pair is gone the
    /// client may use it all the same. So the session keeps it: the client's end must meet it.
    fn close_queue(&self, session: &mut Session, number: u64) {
        session.close_queue(number);
        self.clients.ports.notice(|queue| queue.gate.is_closed());
    }

    /// Takes the keys of regions away that were withdrawn long enough ago.
    fn revoke_keys(&self) {
        let now = Instant::now();
        let mut withdrawn = lock(&self.withdrawn);
        let due = withdrawn.partition_point(|(due, _)| *due <= now);
        for (_, offer) in withdrawn.drain(..due) {
            self.tenants.withdraw(offer);
        }
    }

    /// Hears and answers the clients that had to wait for their turn, or for something else.
    fn attend_to_waiting(&self, sessions: &mut Sessions) {
        let unheard = sessions.by_id.values().filter(|session| session.has_more);
        let unheard: Vec<ClientId> = unheard.map(|session| session.id).collect();
        for client in unheard {
            self.attend(sessions, client);
        }
        let asked = sessions.by_id.values().filter(|session| session.asked.is_some());
        let asked: Vec<ClientId> = asked.map(|session| session.id).collect();
        for client in asked {
            if let Err(reason) = self.answer(sessions, client) {
                self.clients.end(sessions, client, reason);
            }
        }
    }
}

impl Host for VerbsHost {
    type Port = VerbsPort;

    fn address(&self) -> String {
        format!("rdma://{}", self.address)
    }

    fn epoch(&self) -> Epoch {
        self.handshake.epoch
    }

    fn message_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        let id = lock(&self.regions).next_id()?;
        let own = Arc::new(OwnRegion::create(id, length_bytes)?);
        let region = Arc::clone(&own) as Arc<dyn Region>;
        self.offer(&region, rights, move || own.take_memory())?;
        Ok(region)
    }

    /// Registers all of the region, if that takes long in the background: its pages are in memory before a
    /// client attaches it, and stay what they are, small or huge.
    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        self.offer(region, rights, || ())
    }

    /// Clients are told by their control connections. The region's keys are good for [`KEYS_LAST`] more, so
    /// that what an honest client has under way ends well. After that the card refuses them, and a queue pair
    /// that uses one ends with its connection. [`Host::step`] sees to that.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let offer = lock(&self.regions).withdraw(region, || Host::address(self))?;
        let mut sessions = self.clients.lock();
        lock(&self.withdrawn).push_back((Instant::now() + KEYS_LAST, offer));
        self.clients.tell_all(&mut sessions, |session| {
            let is_attached = session.attached.remove(&region);
            if is_attached { session.tell(&FromServer::Withdrawn { region }) } else { Ok(()) }
        });
        os::signal(&self.clients.disconnects.wake);
        Ok(())
    }

    fn notify(&self, notice: u64) {
        self.clients.notify(notice, |session| session.tell(&FromServer::Notice { number: notice }));
    }

    fn limit_queues(&self, set_aside: SetAside) {
        self.clients.limit_queues(set_aside);
    }

    fn open(&self) -> Result<(), FabricError> {
        lock(&self.admission).open()
    }

    fn open_port(&self) -> Result<VerbsPort, FabricError> {
        let disconnects = Arc::clone(&self.clients.disconnects);
        let port = VerbsPort::new(self.tenants.device(), self.completions_max(), disconnects, self.waiting)?;
        self.clients.ports.open(port.shared());
        // Clients may be waiting for it.
        os::signal(&self.clients.disconnects.wake);
        Ok(port)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let keys_end = lock(&self.withdrawn).front().map(|(due, _)| *due);
        let due = lock(&self.admission).due().into_iter().chain(keys_end).min();
        let tokens = self.clients.events(timeout, due)?;
        let mut sessions = self.clients.lock();
        sessions.by_id.values_mut().for_each(Session::forget_closed);
        for token in tokens.iter().copied().filter(|token| *token != LISTENER_TOKEN) {
            if sessions.by_id.contains_key(&ClientId(token)) {
                self.attend(&mut sessions, ClientId(token));
            } else {
                self.greet(&mut sessions, token);
            }
        }
        lock(&self.admission).end_step(&self.clients.epoll, &tokens)?;
        self.clients.end_disconnected(&mut sessions);
        self.attend_to_waiting(&mut sessions);
        self.revoke_keys();
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        self.clients.count()
    }

    /// Destroys the client's queue pairs, after which no verb of it executes, tells it, and waits until no
    /// request of it executes either.
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
}
