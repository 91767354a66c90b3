//! A client's link to its server: the control connection, what is attached, and why it ended.
//!
//! Invariant: once ended a link never lives again, and every verb of every queue pair of it fails. The first
//! reason stays.
//!
//! Protocol: nobody watches the control connection all the time. A queue pair that sees its own connection
//! end looks there for the reason, which the server leaves before it ends queues. So does [`Link::look`],
//! whenever a caller asks whether the link lives. A process that did not make the link finds it forked.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{Epoch, RegionId};
use farsight_fabric::{FabricError, RegionRights};
use farsight_fabric_host::os;
use farsight_fabric_net::packets::{Next, Packets};
use rustix::event::PollFlags;

use crate::control::{ClientMessage, ServerMessage};
use crate::grants::Token;

/// How long the server may take to answer on the control connection.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the thread that saw a queue pair end waits for the server's reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(100);

/// What the server told about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Welcome {
    pub(crate) epoch: Epoch,
    pub(crate) client: u64,
    pub(crate) key: Token,
}

/// A region as a client knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachedRegion {
    pub(crate) token: Token,
    pub(crate) rights: RegionRights,
    pub(crate) length_bytes: u64,
    pub(crate) is_withdrawn: bool,
}

/// A region that the server has withdrawn.
impl Default for AttachedRegion {
    fn default() -> Self {
        let (rights, length_bytes) = (RegionRights::ReadOnly, 0);
        Self { token: Token::default(), rights, length_bytes, is_withdrawn: true }
    }
}

/// One connection's shared state.
#[derive(Debug)]
pub(crate) struct Link {
    peer: String,
    welcome: Welcome,
    /// The process that made it.
    process: u32,
    ended: AtomicBool,
    ending: OnceLock<FabricError>,
    socket: Arc<OwnedFd>,
    /// Held from a question to its answer.
    control: Mutex<Packets>,
    regions: Mutex<HashMap<RegionId, AttachedRegion>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new(peer: String, packets: Packets, welcome: Welcome) -> Self {
        Self {
            peer,
            welcome,
            process: std::process::id(),
            ended: AtomicBool::new(false),
            ending: OnceLock::new(),
            socket: Arc::clone(packets.socket()),
            control: Mutex::new(packets),
            regions: Mutex::default(),
        }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The control connection, to be seen hanging up.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Fails if the link is known to have ended.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        if self.is_forked() {
            return Err(FabricError::Forked);
        }
        // Relaxed: the flag orders nothing; the reason comes through a `OnceLock` of its own.
        if self.ended.load(Ordering::Relaxed) { Err(self.ended_error()) } else { Ok(()) }
    }

    fn ended_error(&self) -> FabricError {
        self.ending.get().cloned().unwrap_or_else(|| self.disconnected("it ended"))
    }

    /// The error that says so.
    pub(crate) fn disconnected(&self, reason: &str) -> FabricError {
        FabricError::Disconnected { peer: self.peer.clone(), reason: reason.to_owned() }
    }

    /// Ends the link. Not for a forked child, whose parent lives on.
    pub(crate) fn end(&self, ending: FabricError) -> FabricError {
        let _ = self.ending.set(ending);
        // Relaxed: as in `check`.
        self.ended.store(true, Ordering::Relaxed);
        os::hang_up(&self.socket);
        self.ended_error()
    }

    /// Looks whether the server has ended the link, without waiting.
    pub(crate) fn look(&self) -> Result<(), FabricError> {
        self.check()?;
        // The thread that holds the lock reads the same connection, and ends the link with what it finds.
        if let Ok(mut control) = self.control.try_lock() {
            self.take_farewell(&mut control)?;
        }
        self.check()
    }

    /// After a queue pair saw its connection end: waits a little for the server's reason.
    pub(crate) fn await_farewell(&self) {
        let noticed = Instant::now();
        while self.look().is_ok() {
            let left = FAREWELL_TIMEOUT.saturating_sub(noticed.elapsed());
            if left.is_zero() {
                return;
            }
            let hangs_up = (self.socket.as_fd(), PollFlags::IN | PollFlags::RDHUP);
            // A thread that asks a question meanwhile may take the bytes away: then the look finds nothing
            // yet.
            let _ = os::poll([hangs_up], left.min(Duration::from_millis(5)));
        }
    }

    fn take_farewell(&self, control: &mut Packets) -> Result<(), FabricError> {
        match control.receive() {
            Ok(Next::Nothing) => Ok(()),
            Ok(Next::Packet(packet)) => match ServerMessage::decode(&packet) {
                Ok(message) => Err(match self.ending_of(&message) {
                    Some(ending) => self.end(ending),
                    None => self.unintelligible("a farewell", format!("{message:?}")),
                }),
                Err(error) => Err(self.unintelligible("a farewell", error.to_string())),
            },
            Ok(Next::End) => Err(self.end(self.disconnected("the peer closed the connection or died"))),
            Ok(Next::Unintelligible(error)) => Err(self.unintelligible("a farewell", error.to_string())),
            Err(error) => Err(self.end(self.disconnected(&format!("the connection failed: {error}")))),
        }
    }

    /// The error that every call ends in after this message, if it is one's last.
    fn ending_of(&self, message: &ServerMessage) -> Option<FabricError> {
        match message {
            ServerMessage::Goodbye { text } => Some(self.disconnected(text)),
            ServerMessage::Dismissal { text } => {
                Some(FabricError::Dismissed { peer: self.peer.clone(), reason: text.clone() })
            }
            _ => None,
        }
    }

    /// Ends the link because of what the server sent.
    pub(crate) fn unintelligible(&self, what: &'static str, got: String) -> FabricError {
        self.end(self.disconnected(&format!("the server sent something unintelligible as {what}: {got}")));
        FabricError::Protocol { peer: self.peer.clone(), what, expected: "an answer to it".to_owned(), got }
    }

    /// Forgets a region: the server is asked once more if a queue pair attaches it.
    pub(crate) fn forget(&self, region: RegionId) {
        lock(&self.regions).remove(&region);
    }

    /// The region, requested once a connection.
    pub(crate) fn attach(&self, region: RegionId) -> Result<AttachedRegion, FabricError> {
        const WHAT: &str = "attaching a region";
        self.check()?;
        if let Some(attached) = lock(&self.regions).get(&region) {
            return Ok(*attached);
        }
        let mut control = lock(&self.control);
        self.check()?;
        let started = Instant::now();
        let question = ClientMessage::Attach { region }.encode();
        let answer = control.send(&question).and_then(|()| control.await_next(started + ANSWER_TIMEOUT));
        let packet = match answer {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => {
                // The late answer would be taken for that of the next question.
                self.end(self.disconnected("the server did not answer in time"));
                let waited = started.elapsed();
                return Err(FabricError::TimedOut { peer: self.peer.clone(), what: WHAT, waited });
            }
            Ok(Next::End) => {
                return Err(self.end(self.disconnected("the peer closed the connection or died")));
            }
            Ok(Next::Unintelligible(error)) => return Err(self.unintelligible(WHAT, error.to_string())),
            Err(error) => {
                // A server that has gone may have left its reason.
                self.take_farewell(&mut control)?;
                return Err(self.end(self.disconnected(&format!("the connection failed: {error}"))));
            }
        };
        let message = ServerMessage::decode(&packet);
        let message = message.map_err(|error| self.unintelligible(WHAT, error.to_string()))?;
        if let Some(ending) = self.ending_of(&message) {
            return Err(self.end(ending));
        }
        match message {
            ServerMessage::Attached { region: named, rights, length_bytes, token } if named == region => {
                let attached = AttachedRegion { token, rights, length_bytes, is_withdrawn: false };
                lock(&self.regions).insert(region, attached);
                Ok(attached)
            }
            ServerMessage::NoSuchRegion { region: named } if named == region => {
                Err(FabricError::UnknownRegion { peer: self.peer.clone(), region })
            }
            ServerMessage::Failed { text } => {
                let error = std::io::Error::other(text);
                Err(os::system_error(WHAT.to_owned(), &error, "Try again when the server has less to do"))
            }
            other => Err(self.unintelligible(WHAT, format!("{other:?}"))),
        }
    }
}
