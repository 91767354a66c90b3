//! A client's calls: requests into one ring, replies out of the other, and sleep in between.
//!
//! Invariant: every frame in the request ring yields exactly one reply frame, so `in_flight` counts both. A
//! reply is kept only if its sequence number is the one that its slot waits for. A slot may be posted to
//! again while an earlier call's reply is still on its way.
//!
//! Bounds: frames that find the ring full wait in `overflow`, at most one a slot; replies wait in their
//! slot's buffer, at most one a slot.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_fabric::RegionRights;
use rustix::event::PollFlags;

use crate::adaptive_spin::AdaptiveSpin;
use crate::mapping::SharedWords;
use crate::ring::{self, Consumer, Disorder, FrameHeader, Producer, Sleeper};
use crate::{SLOTS, memory, os, socket};

/// Both rings of one queue, from the client's side.
#[derive(Debug)]
pub(crate) struct Calls {
    requests: Producer,
    replies: Consumer,
    own_sleep: Sleeper,
    server_sleep: Sleeper,
    wakes: OwnedFd,
    overflow: VecDeque<(FrameHeader, Vec<u8>)>,
    in_flight: usize,
    /// The sequence number that each slot waits for; zero: none.
    awaited: Box<[u64; SLOTS]>,
    answers: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    last_sequence: u64,
    adaptive_spin: AdaptiveSpin,
}

/// Why a wait ended, when it was not for a reply or for time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// A reply may be there, or time has passed.
    Perhaps,
    /// The server ended this queue.
    QueueEnded,
    /// The connection's socket hung up.
    LinkEnded,
}

impl Calls {
    pub(crate) fn new(file: BorrowedFd<'_>, wakes: OwnedFd) -> io::Result<Self> {
        const PAGE_BYTES: usize = 4096;
        let mapping = memory::open(file, ring::FILE_BYTES, RegionRights::ReadWrite, PAGE_BYTES)?;
        let memory = SharedWords::new(Arc::new(mapping));
        Ok(Self {
            requests: Producer::new(memory.clone(), ring::REQUESTS),
            replies: Consumer::new(memory.clone(), ring::REPLIES),
            own_sleep: Sleeper::client(memory.clone()),
            server_sleep: Sleeper::server(memory),
            wakes,
            overflow: VecDeque::new(),
            in_flight: 0,
            awaited: Box::new([0; SLOTS]),
            answers: vec![Vec::new(); SLOTS],
            scratch: Vec::new(),
            last_sequence: 0,
            adaptive_spin: AdaptiveSpin::default(),
        })
    }

    /// Writes a request where the server does not see it yet.
    pub(crate) fn post(&mut self, slot: usize, request: &[u8]) -> Result<(), Disorder> {
        if self.awaited[slot] != 0 {
            self.overflow.retain(|(header, _)| header.slot as usize != slot);
        }
        self.last_sequence += 1;
        self.awaited[slot] = self.last_sequence;
        let header = FrameHeader { slot: slot as u32, sequence: self.last_sequence };
        if self.overflow.is_empty() && self.requests.try_push(header, request)? {
            self.in_flight += 1;
        } else {
            self.overflow.push_back((header, request.to_vec()));
        }
        Ok(())
    }

    /// Shows the server what was posted, as far as the ring holds it.
    pub(crate) fn send(&mut self) -> Result<(), Disorder> {
        while let Some((header, request)) = self.overflow.front() {
            if !self.requests.try_push(*header, request)? {
                break;
            }
            self.in_flight += 1;
            self.overflow.pop_front();
        }
        if self.requests.publish() {
            self.wake_server();
        }
        Ok(())
    }

    fn wake_server(&self) {
        ring::wake(&self.server_sleep, || socket::wake(&self.wakes));
    }

    /// Takes every reply that is there; calls `answered` with the slots whose calls are complete now.
    #[inline]
    pub(crate) fn collect(&mut self, answered: impl FnMut(usize)) -> Result<(), Disorder> {
        // Nothing in flight means that the ring was empty last time, so nothing overflowed either.
        if self.in_flight == 0 { Ok(()) } else { self.collect_replies(answered) }
    }

    fn collect_replies(&mut self, mut answered: impl FnMut(usize)) -> Result<(), Disorder> {
        while let Some(header) = self.replies.take(&mut self.scratch)? {
            self.in_flight = self.in_flight.saturating_sub(1);
            let slot = header.slot as usize;
            let awaited = self.awaited.get_mut(slot);
            if let Some(awaited) =
                awaited.filter(|awaited| **awaited == header.sequence && header.sequence != 0)
            {
                *awaited = 0;
                std::mem::swap(&mut self.scratch, &mut self.answers[slot]);
                answered(slot);
            }
        }
        // A server that found no room for replies sleeps until there is some.
        if self.replies.publish() && self.in_flight > 0 {
            self.wake_server();
        }
        if !self.overflow.is_empty() {
            self.send()?;
        }
        Ok(())
    }

    /// Moves the slot's reply into `into`.
    pub(crate) fn take(&mut self, slot: usize, into: &mut Vec<u8>) {
        std::mem::swap(&mut self.answers[slot], into);
    }

    /// Looks for a reply for a little while, then sleeps until one may be there.
    pub(crate) fn wait(&mut self, link: BorrowedFd<'_>, timeout: Duration) -> io::Result<Woken> {
        let started = Instant::now();
        if self.adaptive_spin.spin(timeout, || self.replies.is_ready()) {
            return Ok(Woken::Perhaps);
        }
        self.sleep(link, timeout.saturating_sub(started.elapsed()))
    }

    fn sleep(&mut self, link: BorrowedFd<'_>, timeout: Duration) -> io::Result<Woken> {
        let wakes = (self.wakes.as_fd(), PollFlags::IN | PollFlags::RDHUP);
        let block = || os::poll([wakes, (link, PollFlags::RDHUP)], timeout);
        let shown = ring::sleep(std::iter::once(&self.own_sleep), || self.replies.is_ready(), block);
        let Some(shown) = shown else { return Ok(Woken::Perhaps) };
        let [wakes, link] = shown?;
        if !link.is_empty() {
            return Ok(Woken::LinkEnded);
        }
        if !wakes.is_empty() && !socket::take_wakes(&self.wakes) {
            return Ok(Woken::QueueEnded);
        }
        Ok(Woken::Perhaps)
    }
}
