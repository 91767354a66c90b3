//! A client's link to its server: the control connection, the attached regions, and the word that says it
//! lives.
//!
//! Invariant: once the `life` word is not [`ALIVE`] it never is again, and every verb of every queue of the
//! link fails. The reason stands before the word changes.
//!
//! Protocol: one watcher thread reads the control connection. It hands answers to the thread that asked, and
//! ends the link when the server says so or hangs up. One question is under way at a time. Of withdrawn
//! regions the watcher takes note where every verb of every queue looks, and it notes the newest number that
//! is told.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::{Epoch, RegionId};
use farsight_fabric::{FabricError, RegionRights};
use farsight_fabric_host::os;
use farsight_fabric_net::packets::{Next, Packets};
use rustix::event::PollFlags;

use crate::control::{FromClient, FromServer};
use crate::ibv::memory::ProtectionDomain;

const ALIVE: u64 = 1;
const ENDED: u64 = 2;

/// How long the server may take to answer on the control connection.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take to register a region, which a client of another tenant may be the first to
/// attach: large ones take their time.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a queue whose card reports an error waits for the server's own reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(200);

const GONE: &str = "the peer closed the connection or died";

/// What the server told about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Welcome {
    pub(crate) epoch: Epoch,
    pub(crate) client: u64,
}

/// A region as a client knows it; by default one that is withdrawn.
#[derive(Clone, Debug)]
pub(crate) struct AttachedRegion {
    pub(crate) rights: RegionRights,
    pub(crate) length_bytes: u64,
    /// Where it begins in the server's memory.
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// What all queues that know the region share; none if it is withdrawn.
    withdrawn: Option<Arc<AtomicBool>>,
}

impl Default for AttachedRegion {
    fn default() -> Self {
        Self { rights: RegionRights::ReadOnly, length_bytes: 0, address: 0, key: 0, withdrawn: None }
    }
}

impl AttachedRegion {
    /// True once this client has heard that the server has withdrawn it.
    #[inline]
    pub(crate) fn is_withdrawn(&self) -> bool {
        // Relaxed: nothing comes with it. Its key opens nothing else in any case.
        self.withdrawn.as_ref().is_none_or(|withdrawn| withdrawn.load(Ordering::Relaxed))
    }

    fn withdraw(&self) {
        if let Some(withdrawn) = &self.withdrawn {
            // Relaxed: as above.
            withdrawn.store(true, Ordering::Relaxed);
        }
    }

    /// True if no queue knows it.
    fn is_alone(&self) -> bool {
        self.withdrawn.as_ref().is_none_or(|withdrawn| Arc::strong_count(withdrawn) == 1)
    }
}

/// What a connection has attached.
#[derive(Default, Debug)]
struct Attached {
    by_id: BTreeMap<RegionId, AttachedRegion>,
    /// The region in question at the server, and whether it was withdrawn meanwhile: the watcher, which hands
    /// over the answer, waits for nobody.
    wanted: Option<(RegionId, bool)>,
}

/// One connection's shared state.
#[derive(Debug)]
pub(crate) struct Link {
    peer: String,
    socket: Arc<OwnedFd>,
    /// Held for no longer than it takes to hand over what is there.
    control: Mutex<Packets>,
    welcome: Welcome,
    pub(crate) domain: Arc<ProtectionDomain>,
    process: u32,
    life: AtomicU64,
    /// Why it ended.
    ending: OnceLock<FabricError>,
    /// Held from a question to its answer.
    answers: Mutex<Receiver<FromServer>>,
    regions: Mutex<Attached>,
    /// Held while a region is requested.
    attaching: Mutex<()>,
    /// The newest number that the server told.
    notice: AtomicU64,
}

impl Link {
    pub(crate) fn new(
        peer: String,
        packets: Packets,
        welcome: Welcome,
        domain: Arc<ProtectionDomain>,
        answers: Receiver<FromServer>,
    ) -> Self {
        Self {
            peer,
            socket: Arc::clone(packets.socket()),
            control: Mutex::new(packets),
            welcome,
            domain,
            process: std::process::id(),
            life: AtomicU64::new(ALIVE),
            ending: OnceLock::new(),
            answers: Mutex::new(answers),
            regions: Mutex::default(),
            attaching: Mutex::default(),
            notice: AtomicU64::new(0),
        }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn welcome(&self) -> Welcome {
        self.welcome
    }

    /// The control connection, to be seen hanging up.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Fails once the link has ended.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        // Acquire: the reason was written before. Partner: the Release store in `end_with`.
        if self.life.load(Ordering::Acquire) == ALIVE { Ok(()) } else { Err(self.ended_error()) }
    }

    /// Fails in a process that did not make the connection. The card would serve it, beside its parent.
    pub(crate) fn check_owner(&self) -> Result<(), FabricError> {
        if std::process::id() == self.process { Ok(()) } else { Err(FabricError::Forked) }
    }

    #[cold]
    fn ended_error(&self) -> FabricError {
        self.ending.get().cloned().unwrap_or_else(|| self.disconnected("it ended"))
    }

    /// The error that says so.
    pub(crate) fn disconnected(&self, reason: &str) -> FabricError {
        FabricError::Disconnected { peer: self.peer.clone(), reason: reason.to_owned() }
    }

    /// Ends the link; the first reason stays.
    pub(crate) fn end(&self, reason: &str) {
        self.end_with(self.disconnected(reason));
    }

    fn end_with(&self, ending: FabricError) {
        // The first reason wins; a later one is a consequence of it.
        let _ = self.ending.set(ending);
        // Release: the reason comes first. Partner: the Acquire load in `check`.
        self.life.store(ENDED, Ordering::Release);
        // A thread that sleeps beside the socket sees it hang up.
        os::hang_up(&self.socket);
    }

    /// Ends the link because its card reports an error, unless the server gives a reason of its own soon:
    /// what a card reports is often the consequence of that.
    pub(crate) fn end_after_farewell(&self, reason: &str) {
        self.await_farewell();
        self.end(reason);
    }

    /// Waits a moment for the watcher to end the link.
    pub(crate) fn await_farewell(&self) {
        let noticed = Instant::now();
        while self.check().is_ok() && noticed.elapsed() < FAREWELL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads what the server sends until the link ends: the watcher thread's whole life.
    pub(crate) fn watch(&self, answers: &Sender<FromServer>) {
        loop {
            let found = lock(&self.control).receive();
            let message = match found {
                Ok(Next::Packet(packet)) => FromServer::decode(&packet).map_err(|error| error.to_string()),
                Ok(Next::Unintelligible(error)) => Err(error.to_string()),
                Ok(Next::Nothing) => match os::poll([(self.socket.as_fd(), PollFlags::IN)], os::SLEEP_MAX) {
                    Ok(_) => continue,
                    Err(error) => return self.end(&format!("waiting for the server failed: {error}")),
                },
                Ok(Next::End) => return self.end(GONE),
                Err(error) => return self.end(&format!("the control connection failed: {error}")),
            };
            match message {
                Ok(FromServer::Goodbye { text }) => return self.end(&text),
                Ok(FromServer::Dismissal { text }) => {
                    return self.end_with(FabricError::Dismissed { peer: self.peer.clone(), reason: text });
                }
                Ok(FromServer::Withdrawn { region }) => self.withdraw(region),
                Ok(FromServer::Notice { number }) => {
                    // Relaxed: a number that stands for itself.
                    self.notice.fetch_max(number, Ordering::Relaxed);
                }
                // Nobody asks any more once the receiver is gone.
                Ok(answer) => drop(answers.send(answer)),
                Err(error) => return self.end(&format!("the server said what is no message: {error}")),
            }
        }
    }

    /// Asks the server for one thing and waits for its answer.
    pub(crate) fn ask(
        &self,
        question: FromClient,
        what: &'static str,
        timeout: Duration,
    ) -> Result<FromServer, FabricError> {
        self.check()?;
        let answers = lock(&self.answers);
        let started = Instant::now();
        self.tell(question)?;
        match answers.recv_timeout(timeout) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended_error()),
            Err(RecvTimeoutError::Timeout) => {
                // The late answer would be taken for that of the next question.
                self.end("the server did not answer in time");
                Err(FabricError::TimedOut { peer: self.peer.clone(), what, waited: started.elapsed() })
            }
        }
    }

    /// Tells the server something.
    pub(crate) fn tell(&self, message: FromClient) -> Result<(), FabricError> {
        self.check()?;
        let sent = lock(&self.control).send(&message.encode());
        sent.map_err(|error| {
            // A server that died in between may have left its reason, which the watcher reads.
            self.end_after_farewell(&format!("the control connection failed: {error}"));
            self.ended_error()
        })
    }

    /// Ends the link because of what the server sent.
    pub(crate) fn unintelligible(&self, what: &'static str, got: String) -> FabricError {
        self.end(&format!("the server sent something unintelligible as {what}: {got}"));
        FabricError::Protocol { peer: self.peer.clone(), what, expected: "an answer to it".to_owned(), got }
    }

    /// The newest number that the server told.
    pub(crate) fn notice(&self) -> u64 {
        // Relaxed: as in `watch`.
        self.notice.load(Ordering::Relaxed)
    }

    /// The server has withdrawn a region.
    fn withdraw(&self, region: RegionId) {
        let mut regions = lock(&self.regions);
        match regions.by_id.remove(&region) {
            Some(attached) => attached.withdraw(),
            None => {
                if let Some((_, is_withdrawn)) = regions.wanted.as_mut().filter(|(id, _)| *id == region) {
                    *is_withdrawn = true;
                }
            }
        }
    }

    /// Takes back what a queue knew: with the last one's the connection forgets the region.
    pub(crate) fn detach(&self, region: RegionId, known: AttachedRegion) {
        let mut regions = lock(&self.regions);
        drop(known);
        if regions.by_id.get(&region).is_some_and(AttachedRegion::is_alone) {
            regions.by_id.remove(&region);
        }
    }

    /// Where the region lies and under which key, asked once a connection.
    pub(crate) fn attach(&self, region: RegionId) -> Result<AttachedRegion, FabricError> {
        self.check()?;
        let _attaching = lock(&self.attaching);
        {
            let mut regions = lock(&self.regions);
            if let Some(attached) = regions.by_id.get(&region) {
                return Ok(attached.clone());
            }
            regions.wanted = Some((region, false));
        }
        let asked = self.ask_for(region);
        let mut regions = lock(&self.regions);
        let is_withdrawn = regions.wanted.take().is_some_and(|(_, is_withdrawn)| is_withdrawn);
        let attached = asked?;
        if is_withdrawn {
            return Err(FabricError::UnknownRegion { peer: self.peer.clone(), region });
        }
        regions.by_id.insert(region, attached.clone());
        Ok(attached)
    }

    fn ask_for(&self, region: RegionId) -> Result<AttachedRegion, FabricError> {
        const WHAT: &str = "attaching a region";
        match self.ask(FromClient::Attach { region }, WHAT, ATTACH_TIMEOUT)? {
            FromServer::Attached { region: named, rights, length_bytes, address, key }
                if named == region && address.checked_add(length_bytes).is_some() =>
            {
                let withdrawn = Some(Arc::default());
                Ok(AttachedRegion { rights, length_bytes, address, key, withdrawn })
            }
            FromServer::NoSuchRegion { region: named } if named == region => {
                Err(FabricError::UnknownRegion { peer: self.peer.clone(), region })
            }
            FromServer::Failed { text } => Err(failed(&format!("attaching {region} of {}", self.peer), text)),
            other => Err(self.unintelligible(WHAT, format!("{other:?}"))),
        }
    }
}

/// The error of a question that the server could not fulfil, in its words.
pub(crate) fn failed(what: &str, text: String) -> FabricError {
    os::system_error(what, &io::Error::other(text), "See the server's side")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
