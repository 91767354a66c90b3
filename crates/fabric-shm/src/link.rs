//! A client's link to its server: the control socket, the attached regions, and the word that says it lives.
//!
//! Invariant: once the `life` word is [`FORKED`] or [`ENDED`] it stays so, and every verb of every queue pair
//! of the link fails. Memory files outlive a dead server, so nothing else would stop READs of frozen data.
//! Until then it is [`ALIVE`](crate::link_state::ALIVE) and grows by one with each attached region that the
//! server withdraws.
//!
//! Protocol of withdrawing: a queue pair compares the word with the one that it has seen. The same look tells
//! whether the link lives. If they differ it lets go of the regions that are withdrawn. The watcher
//! hears of these over a socket of their own, marks the region, and then changes the word. Beside the word
//! lies the newest notice.
//!
//! Protocol: the word lies on a page that the kernel wipes in a forked child, so there it reads [`FORKED`].
//! The watcher, a call that waits or the owner who closes may notice the end first. That thread
//! 1. writes the reason, then [`ENDED`],
//! 2. diverts what the server may have protected ([`write_guard`](crate::write_guard)),
//! 3. waits for the doorbells that change memory at that moment,
//! 4. and only then hangs up.
//!
//! So a server that sees this side hang up knows that none of its verbs changes anything any more.
//!
//! Protocol of giving memory back: when the link has ended, the watcher exchanges the pages of all regions
//! for zero pages and closes their files. It needs no call of anyone, so a dead server's memory is the
//! system's again although queue pairs idle. A reader may be inside meanwhile. It finds the file's lines or
//! zeros, and looks at the word after its last load ([`LinkState::is_unchanged_after_loads`]). A load of a
//! zero page comes after the page fault that brought it. That fault came after the exchange, and the exchange
//! after [`ENDED`]. So who has loaded a zero that was never in the region sees [`ENDED`], and its READ fails.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use farsight_base::sync::Ordering;
use farsight_base::{Epoch, RegionId};
use farsight_fabric::{FabricError, RegionRights};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::attachments::{AttachedRegion, Attachments};
use crate::control::{FromClient, FromServer, MESSAGE_BYTES_MAX};
use crate::extents::EXTENTS_MAX;
use crate::known_region::KnownRegion;
use crate::link_state::{ENDED, FORKED, LinkState};
use crate::mapping::{HUGE_PAGE_BYTES, Mapping, PAGE_BYTES};
use crate::os;
use crate::socket::{self, Packet, Parcel};
use crate::write_guard::WriteGuard;

/// How long the server may take to answer on the control socket.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the thread that saw the socket hang up lets a question under way read the server's reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(100);

const ATTACHING: &str = "attaching a region";
const COLLAPSING: &str = "requesting huge pages";
const GONE: &str = "the peer closed the connection or died";

/// What the server told about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Welcome {
    pub(crate) epoch: Epoch,
    pub(crate) client: u64,
    pub(crate) server_pid: u32,
    /// The newest notice at connection.
    pub(crate) notice: u64,
}

/// What the server says of a region, and the file that was requested, if there is one, with its length.
struct RegionFile {
    rights: RegionRights,
    length_bytes: u64,
    file: Option<(OwnedFd, u64)>,
}

/// One connection's shared state.
#[derive(Debug)]
pub(crate) struct Link {
    peer: String,
    socket: OwnedFd,
    welcome: Welcome,
    server_process: Option<OwnedFd>,
    stop: OwnedFd,
    life: LinkState,
    /// Why it ended.
    ending: OnceLock<FabricError>,
    /// Read while a doorbell changes memory.
    changing: RwLock<()>,
    /// Held from a question to its answer.
    talk: Mutex<()>,
    attachments: Attachments,
    /// `None` where stores are not guarded.
    guard: OnceLock<Option<WriteGuard>>,
    /// Where the server tells what was not asked.
    news: OwnedFd,
}

impl Link {
    pub(crate) fn new(
        peer: String,
        socket: OwnedFd,
        news: OwnedFd,
        welcome: Welcome,
    ) -> std::io::Result<Self> {
        let life = LinkState::new(welcome.notice)?;
        Ok(Self {
            server_process: server_process(&socket, welcome.server_pid)?,
            peer,
            socket,
            welcome,
            stop: os::wake_descriptor()?,
            life,
            ending: OnceLock::new(),
            changing: RwLock::new(()),
            talk: Mutex::new(()),
            attachments: Attachments::default(),
            guard: OnceLock::new(),
            news,
        })
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn welcome(&self) -> Welcome {
        self.welcome
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Its page, for queue pairs to look at.
    pub(crate) fn life(&self) -> &LinkState {
        &self.life
    }

    /// Fails unless the link lives.
    #[cold]
    #[inline(never)]
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        self.check_closely().map(drop)
    }

    /// The word, if the link lives: what it stands for can be seen.
    pub(crate) fn check_closely(&self) -> Result<u64, FabricError> {
        // Acquire: the marks of withdrawn regions are seen after it. Partner: the Release exchange in
        // `withdraw`. The peer's death has no store that a reader would have to see, and its reason comes
        // through a `OnceLock` of its own.
        let word = self.life.word().load(Ordering::Acquire);
        if word == FORKED || word == ENDED { Err(self.ended_error(word)) } else { Ok(word) }
    }

    #[cold]
    fn ended_error(&self, word: u64) -> FabricError {
        if word == FORKED {
            return FabricError::Forked;
        }
        self.ending.get().cloned().unwrap_or_else(|| self.disconnected("it ended"))
    }

    /// For a doorbell that changes memory: the link lives until the guard is dropped.
    pub(crate) fn begin_changes(&self) -> Result<RwLockReadGuard<'_, ()>, FabricError> {
        let guard = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        // The thread that ends the link writes the word before it takes this lock. Either it waits for the
        // guard, or this thread sees the word.
        self.check()?;
        Ok(guard)
    }

    /// The error that says so.
    pub(crate) fn disconnected(&self, reason: &str) -> FabricError {
        FabricError::Disconnected { peer: self.peer.clone(), reason: reason.to_owned() }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.life.word().load(Ordering::Relaxed) == FORKED
    }

    /// Ends the link; the first reason stays. Not for a forked child, whose parent lives on.
    pub(crate) fn end(&self, reason: &str) {
        self.end_with(self.disconnected(reason));
    }

    fn end_with(&self, ending: FabricError) {
        // The first reason wins; a later one is a consequence of it.
        let _ = self.ending.set(ending);
        // Relaxed: the lock orders it for doorbells that change memory, and the kernel's change of mappings
        // for those whose stores go elsewhere; see `check` for the others.
        self.life.word().store(ENDED, Ordering::Relaxed);
        if let Some(guard) = self.guard.get().and_then(Option::as_ref) {
            guard.divert();
        }
        drop(self.changing.write().unwrap_or_else(PoisonError::into_inner));
        // A thread that sleeps beside the socket sees it hang up. It may be so already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends the link after its socket hung up, with the server's own reason if it left one.
    pub(crate) fn hung_up(&self) {
        let noticed = Instant::now();
        let farewell = loop {
            // The thread that holds the lock is reading the same socket and ends the link with what it finds
            // there.
            match self.talk.try_lock() {
                Ok(_talk) => break self.farewell(),
                Err(TryLockError::Poisoned(_)) => break None,
                Err(TryLockError::WouldBlock) if noticed.elapsed() > FAREWELL_TIMEOUT => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.end_with(farewell.unwrap_or_else(|| self.disconnected(GONE)));
    }

    /// The reason that the server left in the socket, if it did.
    fn farewell(&self) -> Option<FabricError> {
        let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
        while let Ok(Packet::Bytes(length_bytes)) = socket::receive_now(&self.socket, &mut buffer) {
            let message = FromServer::decode(&buffer[..length_bytes]);
            if let Some(ending) = message.ok().and_then(|message| self.ending_of(&message)) {
                return Some(ending);
            }
        }
        None
    }

    /// The error that every call ends in after this message, if it is one's last.
    fn ending_of(&self, message: &FromServer) -> Option<FabricError> {
        match message {
            FromServer::Goodbye { text } => Some(self.disconnected(text)),
            FromServer::Dismissal { text } => {
                Some(FabricError::Dismissed { peer: self.peer.clone(), reason: text.clone() })
            }
            _ => None,
        }
    }

    /// Asks the server for one thing and waits for its answer.
    ///
    /// An answer whose descriptors this process had no room for is that answer all the same: the question
    /// fails, and the connection goes on. The server notices by itself that nobody holds its end of a queue.
    pub(crate) fn ask(
        &self,
        question: FromClient,
        what: &'static str,
    ) -> Result<(FromServer, Vec<OwnedFd>), FabricError> {
        self.ask_with(question, None, what)
    }

    fn ask_with(
        &self,
        question: FromClient,
        descriptor: Option<BorrowedFd<'_>>,
        what: &'static str,
    ) -> Result<(FromServer, Vec<OwnedFd>), FabricError> {
        self.check()?;
        let _talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let started = Instant::now();
        let answer = socket::send(&self.socket, &question.encode(), descriptor.as_slice())
            .and_then(|()| socket::receive(&self.socket, started + ANSWER_TIMEOUT));
        match answer {
            Ok(Some(parcel)) => self.answered(what, parcel),
            Ok(None) => {
                self.end(GONE);
                Err(self.ended_error(ENDED))
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                // The late answer would be taken for that of the next question.
                self.end("the server did not answer in time");
                Err(FabricError::TimedOut { peer: self.peer.clone(), what, waited: started.elapsed() })
            }
            Err(error) => {
                // A server that died in between left its farewell, or nothing but a reset socket.
                let failed = || self.disconnected(&format!("the control socket failed: {error}"));
                self.end_with(self.farewell().unwrap_or_else(failed));
                Err(self.ended_error(ENDED))
            }
        }
    }

    fn answered(
        &self,
        what: &'static str,
        parcel: Parcel,
    ) -> Result<(FromServer, Vec<OwnedFd>), FabricError> {
        let message = FromServer::decode(&parcel.bytes)
            .map_err(|error| self.unintelligible(what, error.to_string()))?;
        if let Some(ending) = self.ending_of(&message) {
            self.end_with(ending);
            return Err(self.ended_error(ENDED));
        }
        if parcel.has_lost_descriptors {
            let error = std::io::Error::from(Errno::MFILE);
            return Err(os::system_error(what.to_owned(), &error, &os::descriptors_remedy()));
        }
        Ok((message, parcel.descriptors))
    }

    /// Ends the link because of what the server sent.
    pub(crate) fn unintelligible(&self, what: &'static str, got: String) -> FabricError {
        self.end(&format!("the server sent something unintelligible as {what}: {got}"));
        FabricError::Protocol { peer: self.peer.clone(), what, expected: "an answer to it".to_owned(), got }
    }

    /// The region, mapped once a connection.
    pub(crate) fn attach(&self, region: RegionId) -> Result<KnownRegion, FabricError> {
        self.check()?;
        self.attachments.attach(region, || self.map(region))
    }

    /// Takes back what a queue pair had.
    pub(crate) fn detach(&self, region: RegionId, known: KnownRegion) {
        self.attachments.detach(region, known, |last| {
            if !self.is_guarded(region) {
                return Some(last);
            }
            drop(last);
            // Without an answer the link has ended.
            let _ = self.note(FromClient::Unmapped { region }, "giving a region back");
            None
        });
    }

    /// The guard of this link's regions, if there can be one.
    fn guard(&self) -> Option<&WriteGuard> {
        let new = || {
            // Nobody stops a thread of this process but not the server's. Pids as the kernel tells them: two
            // containers' processes may have one number. Where it refuses, a fence takes the other way.
            let server = os::peer_credentials(self.socket.as_fd());
            let is_foreign = server.is_ok_and(|server| server.pid != os::own_pid());
            is_foreign.then(WriteGuard::new).and_then(Result::ok)
        };
        self.guard.get_or_init(new).as_ref()
    }

    fn is_guarded(&self, region: RegionId) -> bool {
        self.guard.get().and_then(Option::as_ref).is_some_and(|guard| guard.watches(region))
    }

    /// Lets the server protect a region that this side may write, before anybody stores there.
    fn guard_region(&self, region: RegionId, attached: &AttachedRegion) -> Result<(), FabricError> {
        let (Some(guard), Some(mapping)) = (self.guard(), attached.writable()) else { return Ok(()) };
        if guard.watch(region, mapping).is_err() {
            // The kernel refuses. If the link has ended, the next look at it says so.
            return Ok(());
        }
        let address = mapping.address_range().start as u64;
        let question = FromClient::Guarded { region, address };
        match self.ask_with(question, guard.unsent(), ATTACHING)?.0 {
            FromServer::Noted => guard.sent(),
            FromServer::Failed { .. } => guard.unwatch(region),
            other => return Err(self.unintelligible(ATTACHING, format!("{other:?}"))),
        }
        Ok(())
    }

    /// Runs `change` while the server protects nothing of the region: the kernel does not map it by huge
    /// pages otherwise.
    pub(crate) fn unguarded(
        &self,
        region: RegionId,
        attached: &AttachedRegion,
        change: impl FnOnce(),
    ) -> Result<(), FabricError> {
        let Some(guard) = self.guard.get().and_then(Option::as_ref).filter(|guard| guard.watches(region))
        else {
            change();
            return Ok(());
        };
        self.note(FromClient::Unguarded { region }, COLLAPSING)?;
        guard.unwatch(region);
        change();
        self.guard_region(region, attached)
    }

    /// Tells the server something that it notes.
    fn note(&self, message: FromClient, what: &'static str) -> Result<(), FabricError> {
        match self.ask(message, what)?.0 {
            FromServer::Noted => Ok(()),
            other => Err(self.unintelligible(what, format!("{other:?}"))),
        }
    }

    /// Bytes of an attached region that lie on files, after those that the server has made meanwhile are
    /// mapped, too.
    pub(crate) fn grow(&self, region: RegionId) -> Result<u64, FabricError> {
        self.check()?;
        let unknown = || FabricError::UnknownRegion { peer: self.peer.clone(), region };
        let grown =
            self.attachments.grow(region, |attached| self.map_rest(region, attached)).ok_or_else(unknown)?;
        if let Err(FabricError::UnknownRegion { .. }) = grown {
            // The server has withdrawn it. The news of that is on its way, and changes nothing then.
            self.withdraw(region);
        }
        grown
    }

    fn map(&self, region: RegionId) -> Result<AttachedRegion, FabricError> {
        let RegionFile { rights, length_bytes, file: first } = self.ask_for_file(region, 0)?;
        let most_bytes = usize::try_from(length_bytes).ok().filter(|bytes| bytes.is_multiple_of(PAGE_BYTES));
        let Some(most_bytes) = most_bytes.filter(|bytes| *bytes > 0) else {
            return Err(self.unintelligible(ATTACHING, format!("a region of {length_bytes} B")));
        };
        let mapping =
            Mapping::zeros(most_bytes, HUGE_PAGE_BYTES).map_err(|error| unmapped(region, &error))?;
        let attached = AttachedRegion::new(mapping, rights);
        if let Some((file, file_bytes)) = first {
            attached.map_next(file, file_bytes).map_err(|error| unmapped(region, &error))?;
            self.map_rest(region, &attached)?;
        }
        self.guard_region(region, &attached)?;
        Ok(attached)
    }

    /// Maps all files of a region behind those that are mapped.
    fn map_rest(&self, region: RegionId, attached: &AttachedRegion) -> Result<(), FabricError> {
        for _ in 0..EXTENTS_MAX {
            let grown_bytes = attached.grown_bytes();
            if grown_bytes == attached.length_bytes() {
                return Ok(());
            }
            let next = self.ask_for_file(region, grown_bytes)?;
            let Some((file, file_bytes)) = next.file else { return Ok(()) };
            attached.map_next(file, file_bytes).map_err(|error| unmapped(region, &error))?;
        }
        Err(self.unintelligible(ATTACHING, format!("more than {EXTENTS_MAX} files of {region}")))
    }

    /// A region's rights and length, and its file behind the first `from_bytes`, if there is one.
    fn ask_for_file(&self, region: RegionId, from_bytes: u64) -> Result<RegionFile, FabricError> {
        let (answer, mut descriptors) = self.ask(FromClient::Attach { region, from_bytes }, ATTACHING)?;
        let (rights, length_bytes, file_bytes) = match answer {
            FromServer::Attached { region: named, rights, length_bytes, file_bytes } if named == region => {
                (rights, length_bytes, file_bytes)
            }
            FromServer::NoSuchRegion { region: named } if named == region => {
                return Err(FabricError::UnknownRegion { peer: self.peer.clone(), region });
            }
            FromServer::Failed { text } => {
                return Err(os::system_error(ATTACHING.to_owned(), &std::io::Error::other(text), ""));
            }
            other => return Err(self.unintelligible(ATTACHING, format!("{other:?}"))),
        };
        if descriptors.len() != usize::from(file_bytes > 0) {
            let got = format!("{} descriptors with a file of {file_bytes} B", descriptors.len());
            return Err(self.unintelligible(ATTACHING, got));
        }
        Ok(RegionFile { rights, length_bytes, file: descriptors.pop().map(|file| (file, file_bytes)) })
    }

    pub(crate) fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Notes what the server tells unasked. False if it has closed the socket for it.
    fn hear_news(&self) -> bool {
        let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
        loop {
            let packet = match socket::receive_now(&self.news, &mut buffer) {
                Ok(Packet::None) => return true,
                Ok(Packet::Bytes(length_bytes)) => &buffer[..length_bytes],
                Ok(Packet::End) | Err(_) => return false,
            };
            match FromServer::decode(packet) {
                Ok(FromServer::Withdrawn { region }) => self.withdraw(region),
                Ok(FromServer::Notice { number }) => {
                    // Relaxed: a number that stands for itself.
                    self.life.notice().fetch_max(number, Ordering::Relaxed);
                }
                Ok(other) => drop(self.unintelligible("news", format!("{other:?}"))),
                Err(error) => drop(self.unintelligible("news", error.to_string())),
            }
        }
    }

    fn withdraw(&self, region: RegionId) {
        if !self.attachments.withdraw(region) {
            return;
        }
        let next = |word: u64| (word != FORKED && word != ENDED).then(|| word + 1);
        // Release: the mark comes before. Partner: the Acquire load in `check_closely`. A link that has ended
        // meanwhile stays so.
        let _ = self.life.word().fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }

    /// The watcher thread's whole life: until [`Link::stop_watching`] is called, or the server is gone and
    /// its memory given back.
    pub(crate) fn watch(&self) {
        if self.await_end() {
            self.vacate();
        }
    }

    /// Gives the memory of the regions back, after the end.
    pub(crate) fn vacate(&self) {
        debug_assert!(self.check().is_err(), "a link that lives keeps its regions");
        self.attachments.vacate();
    }

    /// Waits until the server is gone, and ends the link. False if [`Link::stop_watching`] is called first.
    fn await_end(&self) -> bool {
        loop {
            let socket = (self.socket.as_fd(), PollFlags::RDHUP);
            let stop = (self.stop.as_fd(), PollFlags::IN);
            // A second look at the stop descriptor stands in for a process that cannot be watched.
            let process = self.server_process.as_ref().unwrap_or(&self.stop);
            let process = (process.as_fd(), PollFlags::IN);
            let news = (self.news.as_fd(), PollFlags::IN);
            let Ok([socket, stop, process, news]) = os::poll([socket, stop, process, news], os::SLEEP_MAX)
            else {
                self.end("watching the control socket failed");
                return true;
            };
            if !stop.is_empty() {
                return false;
            }
            if !socket.is_empty() || !process.is_empty() || !news.is_empty() && !self.hear_news() {
                self.hung_up();
                return true;
            }
        }
    }

    pub(crate) fn stop_watching(&self) {
        os::signal(&self.stop);
    }
}

fn unmapped(region: RegionId, error: &std::io::Error) -> FabricError {
    os::system_error(format!("mapping {region}"), error, "")
}

/// The server's process, if what it says of itself is what the kernel says of the socket. Watched besides the
/// socket, because a forked child of the server would keep the socket open. Fails if it cannot be watched for
/// want of a descriptor.
fn server_process(socket: &OwnedFd, claimed_pid: u32) -> std::io::Result<Option<OwnedFd>> {
    let credentials = os::peer_credentials(socket.as_fd())?;
    if u32::try_from(credentials.pid) != Ok(claimed_pid) {
        return Ok(None);
    }
    match os::open_peer(socket.as_fd(), credentials.pid) {
        Ok(process) => Ok(Some(process)),
        Err(error) if os::is_out_of_descriptors(&error) => Err(error),
        Err(_) => Ok(None),
    }
}
