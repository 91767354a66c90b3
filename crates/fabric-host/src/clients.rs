//! A host's clients: who they are, how they end, and when the server is told.
//!
//! Invariant: a client that ends has its gates closed before it is told. It is *leaving* until none of its
//! requests executes any more; then, once, it has departed.
//!
//! Protocol of a fence: the host ends the client, and waits until it is not leaving. A client that has ended
//! by itself meanwhile is waited for likewise.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use farsight_base::ClientId;
use farsight_fabric::{Departure, FabricError, Reserved, SetAside};
use rustix::event::epoll;

use crate::{DisconnectQueue, DisconnectReason, Gated, Ports, lock, os};

/// How long a fence waits.
pub const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// What a fenced client is told.
pub const FENCED: &str = "the server fenced this client";
/// Questions of one client answered, and connections accepted, before others have their turn.
pub const TURN: usize = 32;
/// How long the end of a request that executes for a leaving client is waited for at a time.
const LEAVING_PAUSE: Duration = Duration::from_millis(1);
/// The same, while a fence waits for it.
const FENCE_PAUSE: Duration = Duration::from_micros(100);
/// Epoll's token of the listener.
pub const LISTENER_TOKEN: u64 = 0;
/// That of the wake descriptor.
const WAKE_TOKEN: u64 = 1;
/// The least token of a connection.
pub const FIRST_CONNECTION: u64 = 2;

/// One connected client.
pub trait Session {
    /// What the host keeps of a queue of the client.
    type Queue: Gated;

    /// False while it has not said hello: then the server does not know it.
    fn is_client(&self) -> bool {
        true
    }

    /// Its queues: those that may be served, and perhaps some that have ended.
    fn queues(&self) -> &[Arc<Self::Queue>];

    /// Lets `epoll` forget its descriptors. A forked child of the client may hold them open.
    fn unwatch(&self, epoll: &OwnedFd);

    /// Says why, and hangs up. Its gates are closed.
    fn end(self, reason: DisconnectReason);
}

/// The clients of a host.
pub struct Sessions<S: Session> {
    /// Those that are connected.
    pub by_id: HashMap<ClientId, S>,
    /// The newest number that all clients are told.
    pub notice: u64,
    /// Ended, and not yet told to the server.
    leaving: Vec<(ClientId, Vec<Arc<S::Queue>>)>,
}

/// The clients of a host, with what the threads need that serve and end them. Dropped, it ends all.
pub struct Clients<S: Session, Q, D = ()> {
    /// Watches the host's descriptors.
    pub epoll: OwnedFd,
    /// The clients that ports want to have ended.
    pub disconnects: Arc<DisconnectQueue>,
    /// Where their queues are served.
    pub ports: Ports<Q, D>,
    /// What limits the memory of their queues, if anything does.
    set_aside: OnceLock<SetAside>,
    sessions: Mutex<Sessions<S>>,
}

impl<S: Session> Sessions<S> {
    /// True while a request executes of a client that has ended.
    #[must_use]
    pub fn is_leaving(&self, client: ClientId) -> bool {
        self.leaving.iter().any(|(id, queues)| *id == client && is_being_served(queues))
    }

    /// How far a client is that is not connected any more.
    #[must_use]
    pub fn departure(&self, client: ClientId) -> Departure {
        if self.is_leaving(client) { Departure::Leaving } else { Departure::Gone }
    }

    /// The clients that have ended and of whose requests none executes any more.
    pub fn take_departed(&mut self) -> Vec<ClientId> {
        let departed = self.leaving.extract_if(.., |(_, queues)| !is_being_served(queues));
        departed.map(|(id, _)| id).collect()
    }
}

fn is_being_served(queues: &[Arc<impl Gated>]) -> bool {
    queues.iter().any(|queue| queue.gate().is_being_served())
}

impl<S: Session, Q: Gated, D> Clients<S, Q, D> {
    /// No clients yet.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = os::wake_descriptor()?;
        os::watch(&epoll, &wake, WAKE_TOKEN)?;
        let sessions = Sessions { by_id: HashMap::new(), notice: 0, leaving: Vec::new() };
        Ok(Self {
            epoll,
            disconnects: Arc::new(DisconnectQueue::new(wake)),
            ports: Ports::default(),
            set_aside: OnceLock::new(),
            sessions: Mutex::new(sessions),
        })
    }

    /// The clients, locked.
    pub fn lock(&self) -> MutexGuard<'_, Sessions<S>> {
        lock(&self.sessions)
    }

    /// Clients that are connected and have said hello.
    pub fn count(&self) -> usize {
        self.lock().by_id.values().filter(|session| session.is_client()).count()
    }

    /// Limits the memory of queues that are opened from now on. The first limit stays.
    pub fn limit_queues(&self, set_aside: SetAside) {
        let _ = self.set_aside.set(set_aside);
    }

    /// Memory of a queue of `bytes`, of a client that has so many `queues` of them.
    ///
    /// # Errors
    /// Why there is none.
    pub fn set_aside(&self, queues: usize, bytes: usize) -> Result<Option<Reserved>, String> {
        let set_aside = self.set_aside.get();
        set_aside.map(|set_aside| set_aside((queues * bytes) as u64, bytes as u64)).transpose()
    }

    /// Waits up to `timeout` for something to do: for what epoll tells of, a wake, a client that is leaving,
    /// and what is due at `due`. Returns epoll's tokens, without the wake's.
    ///
    /// # Errors
    /// [`FabricError::System`]: a bug.
    pub fn events(&self, timeout: Duration, due: Option<Instant>) -> Result<Vec<u64>, FabricError> {
        let patience = if self.lock().leaving.is_empty() {
            due.map_or(os::SLEEP_MAX, |due| due.saturating_duration_since(Instant::now()))
        } else {
            LEAVING_PAUSE
        };
        let mut tokens = os::wait_events(&self.epoll, timeout.min(patience))?;
        for _ in tokens.extract_if(.., |token| *token == WAKE_TOKEN) {
            os::drain(&self.disconnects.wake);
        }
        Ok(tokens)
    }

    /// Ends a client, if it is connected.
    pub fn end(&self, sessions: &mut Sessions<S>, client: ClientId, reason: DisconnectReason) {
        let Some(session) = sessions.by_id.remove(&client) else { return };
        session.unwatch(&self.epoll);
        for queue in session.queues() {
            queue.gate().close();
        }
        if session.is_client() {
            sessions.leaving.push((client, session.queues().to_vec()));
            // A fence comes from another thread than the one that steps.
            os::signal(&self.disconnects.wake);
        }
        session.end(reason);
        self.ports.notice(|queue| queue.gate().is_closed());
    }

    /// Ends the clients that ports want to have ended.
    pub fn end_disconnected(&self, sessions: &mut Sessions<S>) {
        for (client, reason) in self.disconnects.take() {
            self.end(sessions, client, reason);
        }
    }

    /// Tells all clients something, and ends those to which `tell` finds a reason.
    pub fn tell_all(
        &self,
        sessions: &mut Sessions<S>,
        mut tell: impl FnMut(&mut S) -> Result<(), DisconnectReason>,
    ) {
        let told = sessions.by_id.iter_mut().map(|(client, session)| (*client, tell(session)));
        let deaf: Vec<_> = told.filter_map(|(client, told)| Some((client, told.err()?))).collect();
        for (client, reason) in deaf {
            self.end(sessions, client, reason);
        }
    }

    /// Tells all clients a number, unless they have been told a greater one.
    pub fn notify(&self, notice: u64, tell: impl FnMut(&mut S) -> Result<(), DisconnectReason>) {
        let mut sessions = self.lock();
        if notice > sessions.notice {
            sessions.notice = notice;
            self.tell_all(&mut sessions, tell);
        }
    }

    /// Ends a client, and says whether one of its requests executes yet.
    pub fn dismiss(&self, client: ClientId) -> Departure {
        let mut sessions = self.lock();
        self.end(&mut sessions, client, DisconnectReason::Dismissed(FENCED.to_owned()));
        sessions.departure(client)
    }

    /// Ends a client and waits until none of its requests executes any more.
    ///
    /// # Errors
    /// [`FabricError::TimedOut`] if one still executes at `deadline`.
    pub fn fence(&self, client: ClientId, deadline: Instant) -> Result<(), FabricError> {
        while self.dismiss(client) != Departure::Gone {
            if Instant::now() >= deadline {
                return Err(fence_timed_out(client));
            }
            std::thread::sleep(FENCE_PAUSE);
        }
        Ok(())
    }

    /// Ends the sleep of the control thread and of all ports.
    pub fn wake(&self) {
        os::signal(&self.disconnects.wake);
        self.wake_ports();
    }

    /// Ends the sleep of all ports.
    pub fn wake_ports(&self) {
        self.ports.wake();
    }
}

impl<S: Session, Q, D> fmt::Debug for Clients<S, Q, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("disconnects", &self.disconnects).finish_non_exhaustive()
    }
}

impl<S: Session, Q, D> Drop for Clients<S, Q, D> {
    fn drop(&mut self) {
        let sessions = self.sessions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, session) in sessions.by_id.drain() {
            session.unwatch(&self.epoll);
            for queue in session.queues() {
                queue.gate().close();
            }
            session.end(DisconnectReason::Stopped);
        }
        self.ports.notice(|_| true);
    }
}

/// The error of a fence that took too long.
#[must_use]
pub fn fence_timed_out(client: ClientId) -> FabricError {
    FabricError::TimedOut { peer: client.to_string(), what: "a fence", waited: FENCE_TIMEOUT }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::{Farewell, Gate, PortHandle};

    struct Told {
        queues: Vec<Arc<Gate>>,
        is_client: bool,
        farewell: Sender<Option<Farewell>>,
    }

    impl Session for Told {
        type Queue = Gate;

        fn is_client(&self) -> bool {
            self.is_client
        }

        fn queues(&self) -> &[Arc<Gate>] {
            &self.queues
        }

        fn unwatch(&self, _: &OwnedFd) {}

        fn end(self, reason: DisconnectReason) {
            assert!(self.queues.iter().all(|gate| gate.is_closed()), "gates close before the client is told");
            self.farewell.send(reason.farewell()).expect("the test listens");
        }
    }

    type Host = Clients<Told, Arc<Gate>>;

    const CLIENT: ClientId = ClientId(7);

    /// Clients with one among them, its only gate, and what it is told at its end.
    fn with_one(is_client: bool) -> (Host, Arc<Gate>, Receiver<Option<Farewell>>) {
        let clients = Clients::new().expect("descriptors");
        let (gate, (farewell, told)) = (Arc::<Gate>::default(), channel());
        let session = Told { queues: vec![Arc::clone(&gate)], is_client, farewell };
        clients.lock().by_id.insert(CLIENT, session);
        (clients, gate, told)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    #[test]
    fn a_client_departs_once_and_not_while_its_request_executes() {
        let (clients, gate, told) = with_one(true);
        assert_eq!(clients.count(), 1);
        let serving = gate.enter().expect("an open gate");
        clients.end(&mut clients.lock(), CLIENT, DisconnectReason::Gone);
        assert_eq!((told.recv(), clients.count()), (Ok(None), 0));
        assert!(clients.lock().is_leaving(CLIENT) && clients.lock().take_departed().is_empty());
        drop(serving);
        assert!(!clients.lock().is_leaving(CLIENT));
        assert_eq!(clients.lock().take_departed(), [CLIENT]);
        assert!(clients.lock().take_departed().is_empty(), "it departs once");
    }

    #[test]
    fn a_client_that_said_no_hello_never_departs() {
        let (clients, _, told) = with_one(false);
        assert_eq!(clients.count(), 0);
        clients.end(&mut clients.lock(), CLIENT, DisconnectReason::Refused("no".to_owned()));
        assert_eq!(told.recv(), Ok(Some(Farewell::Refusal("no".to_owned()))));
        assert!(clients.lock().take_departed().is_empty());
    }

    #[test]
    fn a_fence_waits_for_requests_also_of_a_client_that_left_by_itself() {
        let (clients, gate, told) = with_one(true);
        let serving = gate.enter().expect("an open gate");
        for _ in 0..2 {
            let late = clients.fence(CLIENT, soon()).expect_err("a request executes");
            assert!(matches!(late, FabricError::TimedOut { what: "a fence", .. }), "{late}");
        }
        assert_eq!(told.recv(), Ok(Some(Farewell::Dismissal(FENCED.to_owned()))));
        drop(serving);
        clients.fence(CLIENT, soon()).expect("nothing executes");
        clients.fence(ClientId(8), soon()).expect("nobody to fence");
    }

    #[test]
    fn ports_disconnect_clients_and_learn_of_their_ends() {
        let (clients, gate, told) = with_one(true);
        clients.ports.assign(Arc::clone(&gate));
        clients.disconnects.push(CLIENT, DisconnectReason::Broken("the card".to_owned()));
        assert!(
            clients.events(Duration::from_secs(20), None).expect("epoll").is_empty(),
            "a wake is no token"
        );
        clients.end_disconnected(&mut clients.lock());
        assert_eq!(told.recv(), Ok(Some(Farewell::Goodbye("the card".to_owned()))));
        let port = PortHandle::new(()).expect("a descriptor");
        clients.ports.open(&port);
        assert!(port.take_arrived().is_empty(), "the queue is closed, and waits for no port");
    }

    #[test]
    fn a_notice_only_grows_and_who_cannot_be_told_goes() {
        let (clients, _, told) = with_one(true);
        let mut heard = Vec::new();
        for notice in [3, 3, 2, 4] {
            clients.notify(notice, |_| {
                heard.push(notice);
                if notice == 4 { Err(DisconnectReason::Gone) } else { Ok(()) }
            });
        }
        assert_eq!((heard, clients.count()), (vec![3, 4], 0));
        assert_eq!(told.recv(), Ok(None));
    }

    #[test]
    fn all_are_told_that_the_host_stops() {
        let (clients, gate, told) = with_one(true);
        drop(clients);
        assert_eq!(told.recv(), Ok(Some(Farewell::Goodbye("the peer stopped".to_owned()))));
        assert!(gate.is_closed());
    }
}
