//! The server: its control socket, its regions, its clients, and which worker serves whom.
//!
//! Invariant: a client is in the table from its hello to its end, whichever comes of it: its own close, its
//! machine's silence, a broken rule, a fence. With it go its queue pairs, and then nothing of it
//! executes. Once none of its requests executes either, the server is told, which may keep more of it.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop. Everything there is non-blocking but for the
//! making of queue pairs, so a client that is silent, slow or hostile holds up nobody. Up to its hello a
//! connection is [`Admission`]'s, and takes the place of no client.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{FabricError, Host, Region, RegionRights};
use farsight_fabric_net::{
    Admission, AdmissionOptions, DisconnectQueue, Ending, Handshake, LISTENER_TOKEN, Newcomer, Tls, Waiting,
    bind, os,
};
use rustix::event::epoll;
use rustix::io::Errno;

use super::port::{PortShared, VerbsPort};
use super::queue::{RECEIVES, Receives, ServerQueue};
use super::region::OwnRegion;
use super::session::{Asked, Session, check_hello, refusal};
use super::tenants::{Offer, Tenants};
use crate::call_frame::PAYLOAD_BYTES_MAX;
use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::ibv::device::Device;
use crate::ibv::ffi::access;
use crate::ibv::pair::{Endpoint, PairShape, RcPair};
use crate::{CALLS_MAX, CONTROL_ALIVE, INLINE_BYTES, REGIONS_MAX};

/// How long a fence waits for a request that executes.
const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a request that executes for a client which has ended is waited for at a time.
const LEAVING_PAUSE: Duration = Duration::from_millis(1);
const FENCED: &str = "the server fenced this client";
/// How long the keys of a withdrawn region are good. Clients hear of it within a second; what they have under
/// way then gets another.
const KEYS_LAST: Duration = Duration::from_secs(2);
/// Questions of one client answered before others have their turn.
const TURN: usize = 32;
/// Clients connected at a time.
const SESSIONS_MAX: usize = 1024;
/// Completions that a port holds, if its card does.
const COMPLETIONS_MAX: u32 = 32 << 10;

/// The wake descriptor among epoll's tokens, which are the listener's and those of connections. A client has
/// the number of its connection.
const WAKE_TOKEN: u64 = 1;

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
    address: SocketAddr,
    handshake: Handshake,
    waiting: Waiting,
    tenants: Tenants,
    epoll: OwnedFd,
    disconnects: Arc<DisconnectQueue>,
    sessions: Mutex<Sessions>,
    regions: Mutex<Offers>,
    ports: Mutex<Ports>,
}

#[derive(Debug)]
struct Sessions {
    admission: Admission,
    by_id: HashMap<ClientId, Session>,
    /// Ended, and not yet told to the server.
    leaving: Vec<(ClientId, Vec<Arc<ServerQueue>>)>,
    /// Withdrawn, and until when their keys are good, the first one's end first.
    withdrawn: VecDeque<(Instant, Offer)>,
    /// The newest number that all clients are told.
    notice: u64,
}

/// The regions that clients may attach.
#[derive(Debug, Default)]
struct Offers {
    by_id: BTreeMap<RegionId, Offer>,
    /// The greatest number that a region has had: none has one again.
    last: u32,
}

#[derive(Debug, Default)]
struct Ports {
    open: Vec<Weak<PortShared>>,
    next: usize,
}

impl Sessions {
    /// How long nothing is due.
    fn patience(&self) -> Duration {
        if !self.leaving.is_empty() {
            return LEAVING_PAUSE;
        }
        let keys_end = self.withdrawn.front().map(|(due, _)| *due);
        let due = self.admission.due().into_iter().chain(keys_end).min();
        due.map_or(os::SLEEP_MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// The clients that have ended and of whose requests none executes any more.
    fn take_departed(&mut self) -> Vec<ClientId> {
        let is_busy = |queues: &[Arc<ServerQueue>]| queues.iter().any(|queue| queue.gate.is_being_served());
        self.leaving.extract_if(.., |(_, queues)| !is_busy(queues)).map(|(id, _)| id).collect()
    }

    /// Completions that all clients together may cause at one port, at most.
    fn completions(&self) -> usize {
        let of = |session: &Session| {
            usize::from(session.receives.is_some()) * RECEIVES + session.queues.len() * CALLS_MAX
        };
        self.by_id.values().map(of).sum()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VerbsHost {
    /// Listens at `address`, `ip:port`, for clients' control connections.
    ///
    /// # Errors
    /// [`ListenError`]: an address that is taken, not this machine's, or reachable from others without
    /// certificates; no RDMA device.
    pub fn listen(address: &str, options: &ListenOptions) -> Result<Self, ListenError> {
        let failed = |remedy: &'static str| {
            let what = format!("listening at {address}");
            move |error: std::io::Error| os::system_error(what, &error, remedy)
        };
        let listener = bind(address, options.tls.is_some(), options.allow_plaintext)?;
        let bound = listener.local_addr().map_err(failed("A bug"))?;
        let listening = os::during(format!("listening at {address}"));
        let device = Device::choose(options.device.as_deref(), bound.ip()).map_err(&listening)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| failed("Are descriptors left (ulimit -n)?")(error.into()))?;
        let wake = os::wake_descriptor().map_err(failed("Are descriptors left (ulimit -n)?"))?;
        os::watch(&epoll, &wake, WAKE_TOKEN).map_err(failed("A bug"))?;
        let admission = AdmissionOptions { tls: options.tls.clone(), alive: &CONTROL_ALIVE, refusal };
        let admission = Admission::new(listener, admission, &epoll)
            .map_err(failed("Are descriptors left (ulimit -n)?"))?;
        if !options.opens_later {
            admission.open().map_err(failed("Does another server listen there?"))?;
        }
        let epoch = Epoch(u64::from_le_bytes(os::random().map_err(failed("A bug"))?));
        Ok(Self {
            address: bound,
            handshake: Handshake {
                epoch,
                magic: MAGIC,
                fabric_version: FABRIC_VERSION,
                format_version: options.format_version,
            },
            waiting: options.waiting,
            tenants: Tenants::new(device, options.tls.is_some()).map_err(&listening)?,
            epoll,
            disconnects: Arc::new(DisconnectQueue::new(wake)),
            sessions: Mutex::new(Sessions {
                admission,
                by_id: HashMap::new(),
                leaving: Vec::new(),
                withdrawn: VecDeque::new(),
                notice: 0,
            }),
            regions: Mutex::default(),
            ports: Mutex::default(),
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
        for queue in lock(&self.sessions).by_id.values().flat_map(|session| &session.queues) {
            // One that is gone needs no breaking.
            let _ = queue.with_pair(RcPair::break_off);
        }
    }

    fn completions_max(&self) -> u32 {
        COMPLETIONS_MAX.min(self.tenants.device().attributes.completions_max)
    }

    /// Listens to a connection that has not said hello.
    fn greet(&self, sessions: &mut Sessions, connection: u64) {
        let Some(Newcomer { packets, hello, .. }) = sessions.admission.hear(&self.epoll, connection) else {
            return;
        };
        let id = ClientId(connection);
        let tenant = check_hello(&hello, &self.handshake).and_then(|()| {
            if sessions.by_id.len() >= SESSIONS_MAX {
                let reason = format!("{SESSIONS_MAX} clients are connected already: let some of them end");
                return Err(Ending::Refused(reason));
            }
            let tenant = self.tenants.of(packets.peer_certificate());
            tenant.map_err(|error| Ending::Refused(error.to_string()))
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
            Err(ending) => sessions.admission.turn_away(&self.epoll, packets, ending),
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
                Err(ending) => Err(ending),
            };
            if let Err(ending) = outcome {
                return self.end(sessions, id, ending);
            }
        }
        if let Some(session) = sessions.by_id.get_mut(&id) {
            // What it said may have been taken from its socket already, which then stays silent.
            session.has_more = true;
            os::signal(&self.disconnects.wake);
        }
    }

    /// Answers what the client asked, if that can be done now.
    fn answer(&self, sessions: &mut Sessions, id: ClientId) -> Result<(), Ending> {
        let Some(session) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        match session.asked {
            None => Ok(()),
            Some(Asked::Queue(peer)) => self.open_queue(sessions, id, peer),
            Some(Asked::Region(region)) => self.attach(session, region),
        }
    }

    /// Tells where a region is, if it is registered for the client's tenant.
    fn attach(&self, session: &mut Session, id: RegionId) -> Result<(), Ending> {
        let offer = lock(&self.regions).by_id.get(&id).cloned();
        let Some(offer) = &offer else {
            session.asked = None;
            return session.tell(&FromServer::NoSuchRegion { region: id });
        };
        // The client is answered when the region is prepared, and registered for its tenant.
        let attached =
            if offer.is_prepared() { session.tenant.attach(offer, &self.disconnects) } else { None };
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
    fn open_queue(&self, sessions: &mut Sessions, id: ClientId, peer: Endpoint) -> Result<(), Ending> {
        let Some(port) = self.next_port() else { return Ok(()) };
        let planned = sessions.completions() + RECEIVES + CALLS_MAX;
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
        let domain = Arc::clone(&session.tenant.domain);
        let random = || match os::random() {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(error) => Err(os::system_error(WHAT, &error, "A bug")),
        };
        let receives = match &session.receives {
            Some(receives) => Arc::clone(receives),
            None => Receives::new(&domain, session.id)?,
        };
        session.receives = Some(Arc::clone(&receives));
        let shape = PairShape {
            sends_max: CALLS_MAX as u32,
            receives_max: 0,
            shared: Some(Arc::clone(&receives.shared)),
            rights: access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC,
            inline_bytes: INLINE_BYTES,
        };
        let pair = RcPair::new(&domain, &port.completions, shape, random()? as u32)?;
        let endpoint = pair.endpoint();
        let queue = Arc::new(ServerQueue::new(&domain, pair, random()?, receives)?);
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
            if regions.by_id.len() >= REGIONS_MAX {
                let error = std::io::Error::other(format!("there are {REGIONS_MAX} already"));
                return Err(os::system_error("serving a region", &error, "Make fewer, larger regions"));
            }
            if regions.by_id.contains_key(&id) {
                let error = std::io::Error::other("another region has that number");
                let remedy = "Create regions before others are exported here";
                return Err(os::system_error(format!("exporting {id}"), &error, remedy));
            }
            let offer = Offer::new(Arc::clone(region), rights);
            let preparing = self.tenants.prepare(&offer, take_memory, &self.disconnects)?;
            regions.by_id.insert(id, offer);
            regions.last = regions.last.max(id.0);
            preparing
        };
        preparing.wait().inspect_err(|_| drop(lock(&self.regions).by_id.remove(&id)))
    }

    fn next_port(&self) -> Option<Arc<PortShared>> {
        let mut ports = lock(&self.ports);
        ports.open.retain(|port| port.strong_count() > 0);
        ports.next = ports.next.wrapping_add(1);
        let count = ports.open.len();
        count.checked_sub(1).and_then(|_| ports.open[ports.next % count].upgrade())
    }

    /// Closes a queue that its client wants no more; its port does the rest.
    fn close_queue(&self, session: &mut Session, number: u64) {
        let of_number = |queue: &mut Arc<ServerQueue>| queue.number == number;
        for queue in session.queues.extract_if(.., of_number) {
            queue.gate.close();
        }
        self.notice_ports();
    }

    fn notice_ports(&self) {
        for port in lock(&self.ports).open.iter().filter_map(Weak::upgrade) {
            port.notice();
        }
    }

    /// Tells clients what was not asked. One that does not read what it is sent has to go.
    fn tell_all(&self, sessions: &mut Sessions, news: impl Fn(&mut Session) -> Option<FromServer>) {
        let tell = |session: &mut Session| {
            let told = news(session).map_or(Ok(()), |message| session.tell(&message));
            told.err().map(|ending| (session.id, ending))
        };
        let deaf: Vec<(ClientId, Ending)> = sessions.by_id.values_mut().filter_map(tell).collect();
        for (client, ending) in deaf {
            self.end(sessions, client, ending);
        }
    }

    /// Takes the keys of regions away that were withdrawn long enough ago.
    fn revoke_keys(&self, sessions: &mut Sessions) {
        let now = Instant::now();
        let due = sessions.withdrawn.partition_point(|(due, _)| *due <= now);
        for (_, offer) in sessions.withdrawn.drain(..due) {
            self.tenants.withdraw(offer);
        }
    }

    fn end(&self, sessions: &mut Sessions, id: ClientId, ending: Ending) {
        let Some(session) = sessions.by_id.remove(&id) else { return };
        // A forked child may hold the socket open; epoll must forget it all the same.
        let _ = epoll::delete(&self.epoll, session.packets.socket());
        sessions.leaving.push((id, session.queues.clone()));
        // A fence comes from another thread than the one that steps.
        os::signal(&self.disconnects.wake);
        session.end(ending);
        self.notice_ports();
    }

    fn attend_to_time_and_disconnects(&self, sessions: &mut Sessions) {
        for (client, ending) in self.disconnects.take() {
            self.end(sessions, client, ending);
        }
        sessions.admission.attend_to_time(&self.epoll);
        let unheard = sessions.by_id.values().filter(|session| session.has_more);
        let unheard: Vec<ClientId> = unheard.map(|session| session.id).collect();
        for client in unheard {
            self.attend(sessions, client);
        }
        let asked = sessions.by_id.values().filter(|session| session.asked.is_some());
        let asked: Vec<ClientId> = asked.map(|session| session.id).collect();
        for client in asked {
            if let Err(ending) = self.answer(sessions, client) {
                self.end(sessions, client, ending);
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
        let id = lock(&self.regions).last.checked_add(1).ok_or_else(|| {
            let error = std::io::Error::other("all numbers of regions have been used");
            os::system_error("creating a region", &error, "Start the server again")
        })?;
        let own = Arc::new(OwnRegion::create(RegionId(id), length_bytes)?);
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
        let offer = lock(&self.regions).by_id.remove(&region);
        let offer = offer.ok_or_else(|| FabricError::UnknownRegion { peer: Host::address(self), region })?;
        let mut sessions = lock(&self.sessions);
        sessions.withdrawn.push_back((Instant::now() + KEYS_LAST, offer));
        self.tell_all(&mut sessions, |session| {
            session.attached.remove(&region).then_some(FromServer::Withdrawn { region })
        });
        os::signal(&self.disconnects.wake);
        Ok(())
    }

    fn notify(&self, notice: u64) {
        let mut sessions = lock(&self.sessions);
        if notice > sessions.notice {
            sessions.notice = notice;
            self.tell_all(&mut sessions, |_| Some(FromServer::Notice { number: notice }));
        }
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

    fn open_port(&self) -> Result<VerbsPort, FabricError> {
        let disconnects = Arc::clone(&self.disconnects);
        let port = VerbsPort::new(self.tenants.device(), self.completions_max(), disconnects, self.waiting)?;
        lock(&self.ports).open.push(Arc::downgrade(port.shared()));
        // Clients may be waiting for it.
        os::signal(&self.disconnects.wake);
        Ok(port)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let timeout = os::timespec(timeout.min(lock(&self.sessions).patience()));
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(os::system_error("waiting for clients", &error.into(), "A bug")),
        }
        let mut sessions = lock(&self.sessions);
        let mut are_waiting = false;
        for event in events {
            match event.data.u64() {
                LISTENER_TOKEN => are_waiting = true,
                WAKE_TOKEN => os::drain(&self.disconnects.wake),
                connection if sessions.by_id.contains_key(&ClientId(connection)) => {
                    self.attend(&mut sessions, ClientId(connection));
                }
                connection => self.greet(&mut sessions, connection),
            }
        }
        // Behind those who have said something: newcomers may take their places.
        if are_waiting {
            sessions.admission.accept(&self.epoll)?;
        }
        self.attend_to_time_and_disconnects(&mut sessions);
        self.revoke_keys(&mut sessions);
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        lock(&self.sessions).by_id.len()
    }

    /// Destroys the client's queue pairs, after which no verb of it executes, waits until no request of it
    /// executes either, and tells it.
    ///
    /// Must not be called from a handler that executes a request of that same client: it would wait for
    /// itself, and end in [`FabricError::TimedOut`].
    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        let deadline = Instant::now() + FENCE_TIMEOUT;
        let queues = {
            let mut sessions = lock(&self.sessions);
            let Some(session) = sessions.by_id.get(&client) else { return Ok(()) };
            let queues = session.queues.clone();
            self.end(&mut sessions, client, Ending::Dismissed(FENCED.to_owned()));
            queues
        };
        for queue in queues {
            while queue.gate.is_being_served() {
                if Instant::now() >= deadline {
                    let peer = client.to_string();
                    return Err(FabricError::TimedOut { peer, what: "a fence", waited: FENCE_TIMEOUT });
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    fn wake(&self) {
        os::signal(&self.disconnects.wake);
        for port in lock(&self.ports).open.iter().filter_map(Weak::upgrade) {
            port.wake();
        }
    }
}

impl Drop for VerbsHost {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        let clients: Vec<ClientId> = sessions.by_id.keys().copied().collect();
        for client in clients {
            self.end(&mut sessions, client, Ending::Stopped);
        }
    }
}
