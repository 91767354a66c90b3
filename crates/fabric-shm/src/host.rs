//! The server: its socket, its regions, its clients, and which worker serves whom.
//!
//! Invariant: a client is in the table from its connection to its end, whichever comes of it: its own close,
//! its process's death, a broken rule, a fence. With it go its socket, its pinned process and, through their
//! gates, its queues and their memory. Once none of its requests executes any more, the server is told, which
//! may keep more of it.
//!
//! A region is in the table until it is withdrawn.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop; everything there is non-blocking, so a client
//! that is silent, slow or hostile holds up nobody. Both the client's socket and its process are watched: a
//! forked child of a dead client would keep the socket open.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{Departure, FabricError, Gate, Host, Lingering, Region, RegionRights, Share};
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::Signal;

use crate::claim::{Claim, ListenError};
use crate::control::{FromClient, FromServer};
use crate::mapping::SharedWords;
use crate::news::Told;
use crate::port::{DisconnectQueue, PortShared, ServerQueue, ShmPort};
use crate::served_regions::ServedRegions;
use crate::session::{Ending, Handshake, Session};
use crate::{memory, os, ring, share, socket};

/// How long a fence waits for a client to be gone.
const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a request that executes for a client which has ended is waited for at a time.
const LEAVING_PAUSE: Duration = Duration::from_millis(1);
const FENCED: &str = "the server fenced this client";
/// A client that has left and one of whose requests executes yet.
const LEAVING: Lingering = Lingering {
    pid: 0,
    uid: 0,
    told_for: Duration::ZERO,
    spared: Some("it has ended, but for a last request"),
};
/// Connections accepted, and questions of one client answered, before others have their turn.
const TURN: usize = 32;

/// Epoll's tokens: the listener, the wake descriptor, then three a client, of which there are
/// [`TOKENS_PER_CLIENT`].
const LISTENER_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;
const TOKENS_PER_CLIENT: u64 = 4;

fn socket_token(client: ClientId) -> u64 {
    client.0 * TOKENS_PER_CLIENT
}

fn process_token(client: ClientId) -> u64 {
    client.0 * TOKENS_PER_CLIENT + 1
}

fn news_token(client: ClientId) -> u64 {
    client.0 * TOKENS_PER_CLIENT + 2
}

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// The users that may connect. With others than the server's own in it, the socket file is open to all
    /// users and the kernel's word on who connects decides.
    pub allowed_uids: Vec<u32>,
    /// It accepts clients when it is opened ([`Host::open`](farsight_fabric::Host::open)), and not before.
    pub opens_later: bool,
}

impl ListenOptions {
    /// This process's user alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, allowed_uids: vec![os::own_uid()], opens_later: false }
    }
}

/// A server of regions and calls to the processes of this host.
#[derive(Debug)]
pub struct ShmHost {
    claim: Claim,
    handshake: Handshake,
    epoll: OwnedFd,
    disconnects: Arc<DisconnectQueue>,
    sessions: Mutex<Sessions>,
    regions: Mutex<ServedRegions>,
    ports: Mutex<Ports>,
    share: Share,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<ClientId, Session>,
    /// Ended, and not yet told to the server.
    leaving: Vec<(ClientId, Vec<Arc<Gate>>)>,
    last_id: u64,
    /// The newest number that all clients are told.
    notice: u64,
    /// Closed for a moment to refuse a connection when no descriptors are left.
    spare: Option<OwnedFd>,
}

#[derive(Debug, Default)]
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
        let hello_due = self.by_id.values().filter_map(|session| session.hello_due).min();
        hello_due.map_or(os::SLEEP_MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// The clients that have ended and of whose requests none executes any more.
    fn take_departed(&mut self) -> Vec<ClientId> {
        let is_busy = |gates: &[Arc<Gate>]| gates.iter().any(|gate| gate.is_being_served());
        self.leaving.extract_if(.., |(_, gates)| !is_busy(gates)).map(|(id, _)| id).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShmHost {
    /// Listens at `path`, replacing the socket of a dead server.
    ///
    /// # Errors
    /// [`ListenError`], which names the path and what stands against it.
    pub fn listen(path: impl AsRef<Path>, options: ListenOptions) -> Result<Self, ListenError> {
        let path = path.as_ref();
        let shared = options.allowed_uids.iter().any(|uid| *uid != os::own_uid());
        let claim = Claim::take(path, shared, options.opens_later)?;
        let failed = |step: &'static str| {
            move |source: std::io::Error| ListenError::System {
                path: path.display().to_string(),
                step,
                source,
            }
        };
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("epoll")(error.into()))?;
        let wake = os::wake_descriptor().map_err(failed("eventfd"))?;
        watch(&epoll, claim.listener(), LISTENER_TOKEN).map_err(failed("epoll"))?;
        watch(&epoll, &wake, WAKE_TOKEN).map_err(failed("epoll"))?;
        let spare = os::wake_descriptor().map_err(failed("eventfd"))?;
        let epoch = random_epoch().map_err(failed("getrandom"))?;
        Ok(Self {
            claim,
            handshake: Handshake {
                epoch,
                format_version: options.format_version,
                allowed_uids: options.allowed_uids,
            },
            epoll,
            disconnects: Arc::new(DisconnectQueue::new(wake)),
            sessions: Mutex::new(Sessions { spare: Some(spare), ..Sessions::default() }),
            regions: Mutex::default(),
            ports: Mutex::default(),
            share: share::of_limit(),
        })
    }

    /// The path at which it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.claim.path()
    }

    fn accept(&self) -> Result<(), FabricError> {
        for _ in 0..TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(self.claim.listener(), flags) {
                Ok(socket) => self.take_in(socket),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PERM) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    if !self.refuse_for_want() {
                        // The listener stays readable: others have their turn before it is looked at again.
                        std::thread::sleep(LEAVING_PAUSE);
                        return Ok(());
                    }
                }
                Err(error) => {
                    let what = format!("accepting at {}", self.claim.path().display());
                    return Err(os::system_error(what, &error.into(), "The server must be started again"));
                }
            }
        }
        Ok(())
    }

    /// Refuses one connection although no descriptors are left. False if even that could not be done.
    fn refuse_for_want(&self) -> bool {
        let mut sessions = lock(&self.sessions);
        sessions.spare = None;
        let accepted = rustix::net::accept_with(self.claim.listener(), SocketFlags::CLOEXEC);
        if let Ok(socket) = &accepted {
            let text = "the server has no descriptors left: raise its limit (ulimit -n)".to_owned();
            let _ = socket::send(socket, &FromServer::Refusal { text }.encode(), &[]);
        }
        let served = accepted.is_ok();
        drop(accepted);
        sessions.spare = os::wake_descriptor().ok();
        served
    }

    fn take_in(&self, socket: OwnedFd) {
        let mut sessions = lock(&self.sessions);
        sessions.last_id += 1;
        let id = ClientId(sessions.last_id);
        let Some(session) = Session::accept(id, socket, &self.handshake) else { return };
        let pid = session.credentials.pid;
        let others = sessions.by_id.values().filter(|other| other.is_of(pid));
        if let Err(text) = self.share.check_connection(share::HOLDER, share::held(others)) {
            return session.end(Ending::Refused(text));
        }
        let watched = watch(&self.epoll, &session.socket, socket_token(id))
            .and_then(|()| watch(&self.epoll, &session.process, process_token(id)));
        match watched {
            Ok(()) => {
                sessions.by_id.insert(id, session);
            }
            Err(error) => {
                session.end(Ending::Refused(format!("the server cannot watch one more client: {error}")));
            }
        }
    }

    /// Answers what a client asks, up to a turn's worth.
    fn attend(&self, sessions: &mut Sessions, id: ClientId) {
        for _ in 0..TURN {
            let notice = sessions.notice;
            let Some(session) = sessions.by_id.get_mut(&id) else { return };
            let outcome = match session.listen(&self.handshake, notice) {
                Ok(None) => Ok(()),
                Ok(Some(FromClient::OpenQueue)) => self.open_queue(sessions, id),
                Ok(Some(FromClient::Attach { region })) => self.attach(session, region),
                Ok(Some(FromClient::Hello { .. })) => unreachable!("the session answers hellos"),
                Err(ending) => Err(ending),
            };
            let Some(session) = sessions.by_id.get(&id) else { return };
            match outcome {
                Ok(()) if os::is_readable(&session.socket) => {}
                Ok(()) => return,
                Err(ending) => return self.end(sessions, id, ending),
            }
        }
    }

    /// Gives a client a region. With the sessions locked: who withdraws the region meanwhile finds either it
    /// gone here, or this client among those to be told.
    fn attach(&self, session: &mut Session, id: RegionId) -> Result<(), Ending> {
        let regions = lock(&self.regions);
        let Some(region) = regions.get(id) else {
            return session.tell(&FromServer::NoSuchRegion { region: id });
        };
        if let Some(news) = &mut session.news {
            news.attached(id);
        }
        let answer =
            FromServer::Attached { region: id, rights: region.rights(), length_bytes: region.length_bytes() };
        socket::send(&session.socket, &answer.encode(), &[region.file()]).map_err(|_| Ending::Gone)
    }

    fn open_queue(&self, sessions: &mut Sessions, id: ClientId) -> Result<(), Ending> {
        for session in sessions.by_id.values_mut() {
            // Only the session still knows a gate whose queue is gone.
            session.gates.retain(|gate| Arc::strong_count(gate) > 1);
        }
        let pid = sessions.by_id.get(&id).map_or(0, |session| session.credentials.pid);
        let own = |session: &&Session| session.id == id || session.is_of(pid);
        let held = share::held(sessions.by_id.values().filter(own));
        let share = self.share.check_queue(share::HOLDER, held);
        let Some(session) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        if let Err(text) = share {
            return session.tell(&FromServer::Failed { text });
        }
        let parts = memory::create("farsight-queue", ring::FILE_BYTES, RegionRights::ReadWrite, 4096)
            .and_then(|(file, mapping)| Ok((file, mapping, socket::wake_pair()?)));
        let (file, mapping, (own_end, client_end)) = match parts {
            Ok(parts) => parts,
            Err(error) => return session.tell(&FromServer::Failed { text: error.to_string() }),
        };
        let gate = Arc::new(Gate::default());
        let memory = SharedWords::new(Arc::new(mapping));
        self.assign(ServerQueue::new(session.id, Arc::clone(&gate), &memory, own_end));
        session.gates.push(gate);
        let answer = FromServer::QueueOpened { file_bytes: ring::FILE_BYTES as u64 };
        let descriptors = [file.as_fd(), client_end.as_fd()];
        socket::send(&session.socket, &answer.encode(), &descriptors).map_err(|_| Ending::Gone)
    }

    /// Gives a queue to the port whose turn it is.
    fn assign(&self, queue: ServerQueue) {
        let mut ports = lock(&self.ports);
        ports.open.retain(|port| port.strong_count() > 0);
        ports.next = ports.next.wrapping_add(1);
        let count = ports.open.len();
        match count.checked_sub(1).and_then(|_| ports.open[ports.next % count].upgrade()) {
            Some(port) => port.give(queue),
            None => ports.waiting.push(queue),
        }
    }

    /// Tells a client what waits to be told; what finds no room waits on.
    fn tell_news(&self, session: &mut Session) {
        let token = news_token(session.id);
        let Some(news) = &mut session.news else { return };
        let waits = news.tell() == Told::InPart;
        if waits != news.is_awaited {
            news.is_awaited = waits;
            // Without room in epoll the rest is told with the next news.
            let _ = if waits {
                epoll::add(
                    &self.epoll,
                    news.socket(),
                    epoll::EventData::new_u64(token),
                    epoll::EventFlags::OUT,
                )
            } else {
                epoll::delete(&self.epoll, news.socket())
            };
        }
    }

    fn end(&self, sessions: &mut Sessions, id: ClientId, ending: Ending) {
        let Some(session) = sessions.by_id.remove(&id) else { return };
        // A forked child may hold the socket open; epoll must forget it all the same.
        let _ = epoll::delete(&self.epoll, &session.socket);
        let _ = epoll::delete(&self.epoll, &session.process);
        if let Some(news) = session.news.as_ref().filter(|news| news.is_awaited) {
            let _ = epoll::delete(&self.epoll, news.socket());
        }
        if session.hello_due.is_none() {
            sessions.leaving.push((id, session.gates.clone()));
            // A fence comes from another thread than the one that steps.
            os::signal(&self.disconnects.wake);
        }
        session.end(ending);
        let mut ports = lock(&self.ports);
        ports.waiting.retain(|queue| !queue.is_closed());
        for port in ports.open.iter().filter_map(Weak::upgrade) {
            port.notice();
        }
    }

    fn attend_to_time_and_disconnects(&self, sessions: &mut Sessions) {
        for (client, reason) in self.disconnects.take() {
            self.end(sessions, client, Ending::Dismissed(reason));
        }
        let now = Instant::now();
        let late = |session: &&Session| session.hello_due.is_some_and(|due| due <= now);
        let late: Vec<ClientId> = sessions.by_id.values().filter(late).map(|session| session.id).collect();
        for client in late {
            self.end(sessions, client, Ending::Refused("no hello came in time".to_owned()));
        }
    }

    /// Waits until nothing of the client executes on this side.
    fn shut_gates(client: ClientId, gates: &[Arc<Gate>], deadline: Instant) -> Result<(), FabricError> {
        for gate in gates {
            gate.close();
            while gate.is_being_served() {
                if Instant::now() >= deadline {
                    return Err(fence_timed_out(client));
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Kills a client's process and waits until none of its threads will ever run again.
    fn kill(client: ClientId, process: &OwnedFd, deadline: Instant) -> Result<(), FabricError> {
        let failed = |error: std::io::Error| fence_failed(client, &error);
        match rustix::process::pidfd_send_signal(process, Signal::KILL) {
            // A process that is already gone needs no signal.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(failed(error.into())),
        }
        while !os::has_exited(process.as_fd(), deadline.saturating_duration_since(Instant::now()))
            .map_err(failed)?
        {
            if Instant::now() >= deadline {
                return Err(fence_timed_out(client));
            }
        }
        Ok(())
    }

    /// Tells a client whose process must live that it is fenced, and waits until it has hung up: it does so
    /// when none of its doorbells changes memory any more.
    fn await_hanging_up(client: ClientId, socket: &OwnedFd, deadline: Instant) -> Result<(), FabricError> {
        Session::tell_to_leave(socket, FENCED);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let shown = os::poll([(socket.as_fd(), PollFlags::RDHUP)], Some(left));
            let [shown] = shown.map_err(|error| fence_failed(client, &error))?;
            if !shown.is_empty() {
                return Ok(());
            }
            if left.is_zero() {
                return Err(fence_timed_out(client));
            }
        }
    }
}

impl Host for ShmHost {
    type Port = ShmPort;

    fn address(&self) -> String {
        format!("shm://{}", self.path().display())
    }

    fn epoch(&self) -> Epoch {
        self.handshake.epoch
    }

    fn message_bytes_max(&self) -> usize {
        ring::PAYLOAD_BYTES_MAX
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        lock(&self.regions).create(length_bytes, rights).map(|region| region as Arc<dyn Region>)
    }

    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let withdrawn = lock(&self.regions).withdraw(region);
        // Its descriptor is closed, and perhaps its mapping undone, where nobody waits for it.
        drop(withdrawn.ok_or_else(|| FabricError::UnknownRegion { peer: Host::address(self), region })?);
        let mut sessions = lock(&self.sessions);
        let mut refused = Vec::new();
        for session in sessions.by_id.values_mut() {
            match session.news.as_mut().map_or(Ok(false), |news| news.withdrawn(region)) {
                Ok(false) => {}
                Ok(true) => self.tell_news(session),
                Err(reason) => refused.push((session.id, reason)),
            }
        }
        for (client, reason) in refused {
            self.end(&mut sessions, client, Ending::Dismissed(reason));
        }
        Ok(())
    }

    fn notify(&self, notice: u64) {
        let mut sessions = lock(&self.sessions);
        if notice <= sessions.notice {
            return;
        }
        sessions.notice = notice;
        for session in sessions.by_id.values_mut() {
            if let Some(news) = &mut session.news {
                news.notify(notice);
            }
            self.tell_news(session);
        }
    }

    fn open(&self) -> Result<(), FabricError> {
        self.claim.open().map_err(|error| {
            let what = format!("listening at {}", self.path().display());
            os::system_error(what, &error, "Is the socket still there?")
        })
    }

    fn open_port(&self) -> Result<ShmPort, FabricError> {
        let port = ShmPort::new(Arc::clone(&self.disconnects)).map_err(|error| {
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
        for event in events {
            match event.data.u64() {
                LISTENER_TOKEN => self.accept()?,
                WAKE_TOKEN => os::drain(&self.disconnects.wake),
                token => {
                    let client = ClientId(token / TOKENS_PER_CLIENT);
                    let mut sessions = lock(&self.sessions);
                    if token == process_token(client) {
                        self.end(&mut sessions, client, Ending::Gone);
                    } else if token == news_token(client) {
                        if let Some(session) = sessions.by_id.get_mut(&client) {
                            self.tell_news(session);
                        }
                    } else {
                        self.attend(&mut sessions, client);
                    }
                }
            }
        }
        let mut sessions = lock(&self.sessions);
        self.attend_to_time_and_disconnects(&mut sessions);
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        lock(&self.sessions).by_id.values().filter(|session| session.hello_due.is_none()).count()
    }

    /// Kills the client's process (SIGKILL, by the descriptor taken when it connected) and waits until it has
    /// ended and no request of it executes here. That ends the process's other connections too.
    ///
    /// A client in a thread of this very process is not killed, nor one in a process that serves memory
    /// itself: others' data would go with it. The host tells it and waits. It ends its connection after the
    /// doorbells that change memory at that moment. READs of a batch that was rung before may still be taken
    /// afterwards; they change nothing. If it does not end its connection, the fence fails.
    ///
    /// Must not be called from a handler that executes a request of that same client: it would wait for
    /// itself, and end in [`FabricError::TimedOut`].
    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        let deadline = Instant::now() + FENCE_TIMEOUT;
        let (descriptor, is_spared, gates) = {
            let sessions = lock(&self.sessions);
            let Some(session) = sessions.by_id.get(&client) else { return Ok(()) };
            let is_spared = session.spared().is_some();
            let descriptor = if is_spared { &session.socket } else { &session.process };
            (
                descriptor.try_clone().map_err(|error| fence_failed(client, &error))?,
                is_spared,
                session.gates.clone(),
            )
        };
        if is_spared {
            Self::await_hanging_up(client, &descriptor, deadline)?;
        } else {
            Self::kill(client, &descriptor, deadline)?;
        }
        Self::shut_gates(client, &gates, deadline)?;
        self.end(&mut lock(&self.sessions), client, Ending::Dismissed(FENCED.to_owned()));
        Ok(())
    }

    fn ends_processes(&self) -> bool {
        true
    }

    /// Tells the client, which hangs up when none of its doorbells changes memory any more: then it is gone.
    /// One whose process is stopped does not.
    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        let mut sessions = lock(&self.sessions);
        let Some(session) = sessions.by_id.get_mut(&client) else {
            let is_served = |(id, gates): &(ClientId, Vec<Arc<Gate>>)| {
                *id == client && gates.iter().any(|gate| gate.is_being_served())
            };
            let is_leaving = sessions.leaving.iter().any(is_served);
            return Ok(if is_leaving { Departure::Awaited(LEAVING) } else { Departure::Gone });
        };
        let now = Instant::now();
        if session.told.is_none() {
            Session::tell_to_leave(&session.socket, FENCED);
        }
        let told_for = now.saturating_duration_since(*session.told.get_or_insert(now));
        let os::Credentials { pid, uid, .. } = session.credentials;
        Ok(Departure::Awaited(Lingering { pid, uid, told_for, spared: session.spared() }))
    }

    fn wake(&self) {
        os::signal(&self.disconnects.wake);
        for port in lock(&self.ports).open.iter().filter_map(Weak::upgrade) {
            port.wake();
        }
    }
}

impl Drop for ShmHost {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        let clients: Vec<ClientId> = sessions.by_id.keys().copied().collect();
        for client in clients {
            self.end(&mut sessions, client, Ending::Stopped);
        }
    }
}

fn watch(epoll: &OwnedFd, descriptor: &OwnedFd, token: u64) -> std::io::Result<()> {
    let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Ok(epoll::add(epoll, descriptor, epoll::EventData::new_u64(token), events)?)
}

fn random_epoch() -> std::io::Result<Epoch> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    assert_eq!(filled, bytes.len(), "up to 256 bytes come whole");
    Ok(Epoch(u64::from_le_bytes(bytes)))
}

fn fence_failed(client: ClientId, error: &std::io::Error) -> FabricError {
    let remedy = "The server must run as the client's user, or root";
    os::system_error(format!("fencing {client}"), error, remedy)
}

fn fence_timed_out(client: ClientId) -> FabricError {
    FabricError::TimedOut { peer: client.to_string(), what: "a fence", waited: FENCE_TIMEOUT }
}
