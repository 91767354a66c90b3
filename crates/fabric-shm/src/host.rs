//! The server: its socket, its regions and its clients.
//!
//! Invariant: a client is in the table from its connection on. The server knows it from its hello on. With
//! the client go its socket, its pinned process and, through their gates, its queues and their memory.
//!
//! Protocol: one control thread calls [`Host::step`] in a loop; everything there is non-blocking, so a client
//! that is silent, slow or hostile holds up nobody. Both the client's socket and its process are watched: a
//! forked child of a dead client would keep the socket open.
//!
//! Quotas: a quota is a process's, not a connection's, because connections cost nothing. A user with many
//! processes can still have many quotas: against its own user a server has no defence anyway, for such
//! processes may kill it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{Departure, FabricError, Host, Lingering, Region, RegionRights, SetAside};
use farsight_fabric_host::{
    Clients, DisconnectReason, FENCE_TIMEOUT, FENCED, Gate, Handshake, Held, LISTENER_TOKEN, Quota,
    RegionTable, Session as _, TURN, fence_timed_out, lock,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::Signal;

use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::mapping::SharedWords;
use crate::news::Told;
use crate::path_lock::{ListenError, PathLock};
use crate::port::{ServerQueue, ShmPort};
use crate::region::MappedRegion;
use crate::session::Session;
use crate::write_protection::Protection;
use crate::{memory, os, ring, socket};

/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
/// How long a client that was told to leave has before what it writes is protected: most leave sooner.
const PROTECTED_AFTER: Duration = Duration::from_millis(50);
/// How long a fence rests between two dismissals.
const DISMISSAL_PAUSE: Duration = Duration::from_millis(1);
/// A connection's descriptors: its socket, the one for its news, its process, and the one by which what it
/// writes is protected.
const DESCRIPTORS_PER_CONNECTION: usize = 4;
/// Whose quota it is, in texts.
const HOLDER: &str = "this process";

/// Epoll's tokens of a client are three of so many. Those of the first are the host's.
const TOKENS_PER_CLIENT: u64 = 4;

type Sessions = farsight_fabric_host::Sessions<Session>;

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
    clients: Clients<Session, ServerQueue>,
    path_lock: PathLock,
    handshake: Handshake,
    allowed_uids: Vec<u32>,
    newcomers: Mutex<Newcomers>,
    regions: Mutex<RegionTable<Arc<MappedRegion>>>,
    quota: Quota,
}

#[derive(Debug)]
struct Newcomers {
    last_id: u64,
    /// Closed for a moment to refuse a connection when no descriptors are left.
    spare: Option<OwnedFd>,
}

impl ShmHost {
    /// Listens at `path`, replacing the socket of a dead server.
    ///
    /// # Errors
    /// [`ListenError`], which names the path and what stands against it.
    pub fn listen(path: impl AsRef<Path>, options: ListenOptions) -> Result<Self, ListenError> {
        let path = path.as_ref();
        let shared = options.allowed_uids.iter().any(|uid| *uid != os::own_uid());
        let path_lock = PathLock::take(path, shared, options.opens_later)?;
        let failed = |step: &'static str| {
            move |source: std::io::Error| ListenError::System {
                path: path.display().to_string(),
                step,
                source,
            }
        };
        let clients = Clients::new().map_err(failed("epoll"))?;
        os::watch(&clients.epoll, path_lock.listener(), LISTENER_TOKEN).map_err(failed("epoll"))?;
        let spare = os::wake_descriptor().map_err(failed("eventfd"))?;
        let handshake = Handshake::begin(MAGIC, FABRIC_VERSION, options.format_version);
        Ok(Self {
            clients,
            path_lock,
            handshake: handshake.map_err(failed("getrandom"))?,
            allowed_uids: options.allowed_uids,
            newcomers: Mutex::new(Newcomers { last_id: 0, spare: Some(spare) }),
            regions: Mutex::default(),
            quota: Quota::of_limit(DESCRIPTORS_PER_CONNECTION),
        })
    }

    /// The path at which it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.path_lock.path()
    }

    /// A region of which the first `grown_bytes` can be written at once.
    fn create(
        &self,
        length_bytes: u64,
        rights: RegionRights,
        grown_bytes: u64,
    ) -> Result<Arc<dyn Region>, FabricError> {
        let mut regions = lock(&self.regions);
        let id = regions.next_id()?;
        let region = Arc::new(MappedRegion::create(id, length_bytes, rights, grown_bytes)?);
        regions.insert(id, Arc::clone(&region));
        Ok(region)
    }

    fn accept(&self) -> Result<(), FabricError> {
        for _ in 0..TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(self.path_lock.listener(), flags) {
                Ok(socket) => self.take_in(socket),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PERM) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    if !self.refuse_for_want() {
                        // The listener stays readable: others have their turn before it is looked at again.
                        std::thread::sleep(ACCEPT_PAUSE);
                        return Ok(());
                    }
                }
                Err(error) => {
                    let what = format!("accepting at {}", self.path_lock.path().display());
                    return Err(os::system_error(what, &error.into(), "The server must be started again"));
                }
            }
        }
        Ok(())
    }

    /// Refuses one connection although no descriptors are left. False if even that could not be done.
    fn refuse_for_want(&self) -> bool {
        let mut newcomers = lock(&self.newcomers);
        newcomers.spare = None;
        let accepted = rustix::net::accept_with(self.path_lock.listener(), SocketFlags::CLOEXEC);
        if let Ok(socket) = &accepted {
            let text = "the server has no descriptors left: raise its limit (ulimit -n)".to_owned();
            let _ = socket::send(socket, &FromServer::Refusal { text }.encode(), &[]);
        }
        let served = accepted.is_ok();
        drop(accepted);
        newcomers.spare = os::wake_descriptor().ok();
        served
    }

    fn take_in(&self, socket: OwnedFd) {
        let mut newcomers = lock(&self.newcomers);
        newcomers.last_id += 1;
        let id = ClientId(newcomers.last_id);
        drop(newcomers);
        let Some(session) = Session::accept(id, socket, &self.allowed_uids) else { return };
        let mut sessions = self.clients.lock();
        let pid = session.credentials.pid;
        let others = sessions.by_id.values().filter(|other| other.is_of(pid));
        if let Err(text) = self.quota.check_connection(HOLDER, others.map(Session::held).sum()) {
            return session.end(DisconnectReason::Refused(text));
        }
        let watched = os::watch(&self.clients.epoll, &session.socket, socket_token(id))
            .and_then(|()| os::watch(&self.clients.epoll, &session.process, process_token(id)));
        match watched {
            Ok(()) => {
                sessions.by_id.insert(id, session);
            }
            Err(error) => {
                let text = format!("the server cannot watch one more client: {error}");
                session.end(DisconnectReason::Refused(text));
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
                Ok(Some((FromClient::OpenQueue, _))) => self.open_queue(sessions, id),
                Ok(Some((FromClient::Attach { region, from_bytes }, _))) => {
                    self.attach(session, region, from_bytes)
                }
                Ok(Some((FromClient::Guarded { region, address }, descriptor))) => {
                    session.note_guarded(region, address, descriptor)
                }
                Ok(Some((FromClient::Unguarded { region }, _))) => {
                    session.writable.unguarded(region);
                    session.tell(&FromServer::Noted)
                }
                Ok(Some((FromClient::Unmapped { region }, _))) => {
                    session.writable.gone(region);
                    session.tell(&FromServer::Noted)
                }
                Ok(Some((FromClient::Hello { .. }, _))) => unreachable!("the session answers hellos"),
                Err(reason) => Err(reason),
            };
            let Some(session) = sessions.by_id.get(&id) else { return };
            match outcome {
                Ok(()) if os::is_readable(&session.socket) => {}
                Ok(()) => return,
                Err(reason) => return self.clients.end(sessions, id, reason),
            }
        }
    }

    /// Gives a client the file of a region behind the `from_bytes` that it has. With the sessions locked: who
    /// withdraws the region meanwhile finds either it gone here, or this client among those to be told.
    fn attach(&self, session: &mut Session, id: RegionId, from_bytes: u64) -> Result<(), DisconnectReason> {
        let regions = lock(&self.regions);
        let Some(region) = regions.get(id) else {
            return session.tell(&FromServer::NoSuchRegion { region: id });
        };
        if let Some(news) = &mut session.news {
            news.attached(id);
        }
        let file = region.file_at(from_bytes);
        if file.is_some() && region.rights() == RegionRights::ReadWrite {
            session.writable.attached(id, region.length_bytes());
        }
        let answer = FromServer::Attached {
            region: id,
            rights: region.rights(),
            length_bytes: region.length_bytes(),
            file_bytes: file.as_ref().map_or(0, |file| file.length_bytes()),
        };
        let files: Vec<_> = file.iter().map(|file| file.file()).collect();
        socket::send(&session.socket, &answer.encode(), &files).map_err(|_| DisconnectReason::Gone)
    }

    fn open_queue(&self, sessions: &mut Sessions, id: ClientId) -> Result<(), DisconnectReason> {
        for session in sessions.by_id.values_mut() {
            // Only the session still knows a gate whose queue is gone.
            session.gates.retain(|gate| Arc::strong_count(gate) > 1);
        }
        let pid = sessions.by_id.get(&id).map_or(0, |session| session.credentials.pid);
        let own = |session: &&Session| session.id == id || session.is_of(pid);
        let held: Held = sessions.by_id.values().filter(own).map(Session::held).sum();
        let room = self.quota.check_queue(HOLDER, held);
        let room = room.and_then(|()| self.clients.set_aside(held.queues, ring::FILE_BYTES));
        let Some(session) = sessions.by_id.get_mut(&id) else { return Ok(()) };
        let reserved = match room {
            Ok(reserved) => reserved,
            Err(text) => return session.tell(&FromServer::Failed { text }),
        };
        let parts = memory::create("farsight-queue", ring::FILE_BYTES, RegionRights::ReadWrite, 4096)
            .and_then(|(file, mapping)| Ok((file, mapping, socket::wake_pair()?)));
        let (file, mapping, (own_end, client_end)) = match parts {
            Ok(parts) => parts,
            Err(error) => return session.tell(&FromServer::Failed { text: error.to_string() }),
        };
        let gate = Arc::new(Gate::default());
        let memory = SharedWords::new(Arc::new(mapping));
        self.clients.ports.assign(ServerQueue::new(
            session.id,
            Arc::clone(&gate),
            &memory,
            (own_end, reserved),
        ));
        session.gates.push(gate);
        let answer = FromServer::QueueOpened { file_bytes: ring::FILE_BYTES as u64 };
        let descriptors = [file.as_fd(), client_end.as_fd()];
        socket::send(&session.socket, &answer.encode(), &descriptors).map_err(|_| DisconnectReason::Gone)
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
                    &self.clients.epoll,
                    news.socket(),
                    epoll::EventData::new_u64(token),
                    epoll::EventFlags::OUT,
                )
            } else {
                epoll::delete(&self.clients.epoll, news.socket())
            };
        }
    }

    fn end_late(&self, sessions: &mut Sessions) {
        let now = Instant::now();
        let late = |session: &&Session| session.hello_due.is_some_and(|due| due <= now);
        let late: Vec<ClientId> = sessions.by_id.values().filter(late).map(|session| session.id).collect();
        for client in late {
            let reason = DisconnectReason::Refused("no hello came in time".to_owned());
            self.clients.end(sessions, client, reason);
        }
    }

    /// Kills a client's process, and does not wait for its end.
    fn signal(client: ClientId, process: &OwnedFd) -> Result<(), FabricError> {
        match rustix::process::pidfd_send_signal(process, Signal::KILL) {
            // A process that is already gone needs no signal.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(fence_failed(client, &error.into())),
        }
    }

    /// Kills a client's process and waits until none of its threads will ever run again.
    fn kill(client: ClientId, process: &OwnedFd, deadline: Instant) -> Result<(), FabricError> {
        let failed = |error: std::io::Error| fence_failed(client, &error);
        Self::signal(client, process)?;
        while !os::has_exited(process.as_fd(), deadline.saturating_duration_since(Instant::now()))
            .map_err(failed)?
        {
            if Instant::now() >= deadline {
                return Err(fence_timed_out(client));
            }
        }
        Ok(())
    }

    /// Dismisses a client whose process lives on, again and again until it is gone.
    fn await_departure(&self, client: ClientId, deadline: Instant) -> Result<(), FabricError> {
        while Host::dismiss(self, client)? != Departure::Gone {
            if Instant::now() >= deadline {
                return Err(fence_timed_out(client));
            }
            std::thread::sleep(DISMISSAL_PAUSE);
        }
        Ok(())
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
        self.create(length_bytes, rights, u64::MAX)
    }

    fn create_growing_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, FabricError> {
        self.create(length_bytes, RegionRights::ReadOnly, 0)
    }

    fn serves_growing_regions(&self) -> bool {
        true
    }

    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let withdrawn = lock(&self.regions).withdraw(region, || Host::address(self));
        // Its descriptor is closed, and perhaps its mapping undone, where nobody waits for it.
        drop(withdrawn?);
        self.clients.tell_all(&mut self.clients.lock(), |session| {
            session.writable.gone(region);
            let told = session.news.as_mut().map_or(Ok(false), |news| news.withdrawn(region));
            if told.map_err(DisconnectReason::Dismissed)? {
                self.tell_news(session);
            }
            Ok(())
        });
        Ok(())
    }

    fn notify(&self, notice: u64) {
        self.clients.notify(notice, |session| {
            if let Some(news) = &mut session.news {
                news.notify(notice);
            }
            self.tell_news(session);
            Ok(())
        });
    }

    fn limit_queues(&self, set_aside: SetAside) {
        self.clients.limit_queues(set_aside);
    }

    fn open(&self) -> Result<(), FabricError> {
        self.path_lock.open().map_err(|error| {
            let what = format!("listening at {}", self.path().display());
            os::system_error(what, &error, "Is the socket still there?")
        })
    }

    fn open_port(&self) -> Result<ShmPort, FabricError> {
        let port = ShmPort::new(Arc::clone(&self.clients.disconnects)).map_err(|error| {
            os::system_error("opening a port", &error, "Are descriptors left (ulimit -n)?")
        })?;
        self.clients.ports.open(port.shared());
        Ok(port)
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let hello_due = self.clients.lock().by_id.values().filter_map(|session| session.hello_due).min();
        for token in self.clients.events(timeout, hello_due)? {
            if token == LISTENER_TOKEN {
                self.accept()?;
                continue;
            }
            let client = ClientId(token / TOKENS_PER_CLIENT);
            let mut sessions = self.clients.lock();
            if token == process_token(client) {
                self.clients.end(&mut sessions, client, DisconnectReason::Gone);
            } else if token == news_token(client) {
                if let Some(session) = sessions.by_id.get_mut(&client) {
                    self.tell_news(session);
                }
            } else {
                self.attend(&mut sessions, client);
            }
        }
        let mut sessions = self.clients.lock();
        self.clients.end_disconnected(&mut sessions);
        self.end_late(&mut sessions);
        Ok(sessions.take_departed())
    }

    fn client_count(&self) -> usize {
        self.clients.count()
    }

    /// Ends the client as [`Host::dismiss`] does, where that ends it for certain: it writes nothing here, or
    /// what it writes can be protected. Otherwise kills its process (SIGKILL, by the descriptor taken when it
    /// connected) and waits until that has ended. That ends the process's other connections too.
    ///
    /// A client in a thread of this very process is not killed, nor one in a process that serves memory
    /// itself: others' data would go with it. It ends its connection after the doorbells that change memory
    /// at that moment. READs of a batch that was rung before may still be taken afterwards; they change
    /// nothing. If it does not end its connection, the fence fails.
    ///
    /// Must not be called from a handler that executes a request of that same client: it would wait for
    /// itself, and end in [`FabricError::TimedOut`].
    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        let deadline = Instant::now() + FENCE_TIMEOUT;
        let killed = {
            let sessions = self.clients.lock();
            let session = sessions.by_id.get(&client);
            let session =
                session.filter(|session| session.spared().is_none() && !session.writable.is_possible());
            session.map(|session| session.process.try_clone())
        };
        match killed.transpose().map_err(|error| fence_failed(client, &error))? {
            Some(process) => Self::kill(client, &process, deadline)?,
            None => self.await_departure(client, deadline)?,
        }
        self.clients.fence(client, deadline)
    }

    fn ends_processes(&self) -> bool {
        true
    }

    /// Tells the client, which hangs up when none of its doorbells changes memory any more: then it is gone.
    /// One whose process is stopped does not. [`PROTECTED_AFTER`] later what it writes is protected, a part
    /// with each call, and it is ended when all is. Where that cannot be it is awaited.
    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        let mut sessions = self.clients.lock();
        let Some(session) = sessions.by_id.get_mut(&client) else { return Ok(sessions.departure(client)) };
        if session.is_killed {
            let has_exited = os::has_exited(session.process.as_fd(), Duration::ZERO);
            if !has_exited.map_err(|error| fence_failed(client, &error))? {
                return Ok(Departure::Leaving);
            }
            // It may have forked, and its child hold the socket open.
            self.clients.end(&mut sessions, client, DisconnectReason::Gone);
            return Ok(sessions.departure(client));
        }
        let now = Instant::now();
        if session.told.is_none() {
            Session::tell_to_leave(&session.socket, FENCED);
        }
        let told_for = now.saturating_duration_since(*session.told.get_or_insert(now));
        if told_for >= PROTECTED_AFTER {
            match session.writable.step() {
                Protection::Complete => {
                    let reason = DisconnectReason::Dismissed(FENCED.to_owned());
                    self.clients.end(&mut sessions, client, reason);
                    return Ok(sessions.departure(client));
                }
                Protection::UnderWay => return Ok(Departure::Leaving),
                Protection::Impossible => {}
            }
        }
        let os::Credentials { pid, uid, .. } = session.credentials;
        Ok(Departure::Awaited(Lingering { pid, uid, told_for, spared: session.spared() }))
    }

    fn end_process(&self, client: ClientId) -> Result<(), FabricError> {
        let mut sessions = self.clients.lock();
        let Some(session) = sessions.by_id.get_mut(&client).filter(|session| session.spared().is_none())
        else {
            return Ok(());
        };
        Self::signal(client, &session.process)?;
        session.is_killed = true;
        Ok(())
    }

    fn wake(&self) {
        self.clients.wake();
    }

    fn wake_ports(&self) {
        self.clients.wake_ports();
    }
}

fn fence_failed(client: ClientId, error: &std::io::Error) -> FabricError {
    let remedy = "The server must run as the client's user, or root";
    os::system_error(format!("fencing {client}"), error, remedy)
}
