//! Sending, receiving, and the waits in between; each has a bound.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farsight_fabric::lane::STALL_TIMEOUT;
use farsight_fabric::{FabricError, Slot};
use rustix::event::PollFlags;

use super::{Content, FRAMES_MAX, TcpQueue, UNSENT_BYTES_MAX};
use farsight_fabric_host::os;
use farsight_fabric_net::Received;

use crate::alive::BRIEF;

/// The longest single sleep of a wait whose end is a time-out.
const SLEEP_STEP: Duration = Duration::from_millis(100);

impl TcpQueue {
    pub(super) fn unsent_bytes(&self) -> usize {
        self.output.len() - self.output_sent
    }

    /// Sends what the kernel takes.
    pub(super) fn send(&mut self) -> Result<(), FabricError> {
        if self.unsent_bytes() == 0 && !self.stream.has_unsent() {
            return Ok(());
        }
        match self.stream.send(&self.output[self.output_sent..]) {
            Ok(length_bytes) => self.output_sent += length_bytes,
            Err(error) => return Err(self.lost(&error.to_string())),
        }
        if self.output_sent == self.output.len() {
            self.output.clear();
            self.output_sent = 0;
        } else if self.output_sent > UNSENT_BYTES_MAX {
            self.output.drain(..std::mem::take(&mut self.output_sent));
        }
        Ok(())
    }

    /// Sends, and receives once, without waiting. True if anything arrived.
    pub(super) fn advance(&mut self) -> Result<bool, FabricError> {
        self.send()?;
        if self.staged == 0 && self.inbox.is_cheaply_emptied() {
            self.inbox.make_room();
        } else if self.inbox.is_cramped() {
            self.copy_out();
            self.inbox.make_room();
        }
        match self.inbox.receive(&mut self.stream) {
            Ok(Received::Bytes(_)) => self.parse().map(|()| true),
            Ok(Received::Nothing) => Ok(false),
            Ok(Received::End) => Err(self.lost("its connection ended")),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Looks for an arrival for a little while, then sleeps until there may be one. `timeout` bounds both.
    fn await_arrival(&mut self, timeout: Duration) -> Result<bool, FabricError> {
        let started = Instant::now();
        let awake = self.waiting.awake(timeout, BRIEF);
        loop {
            if self.advance()? {
                return Ok(true);
            }
            let elapsed = started.elapsed();
            if elapsed >= timeout {
                return Ok(false);
            }
            if elapsed >= awake {
                self.sleep(timeout.saturating_sub(elapsed))?;
                return self.advance();
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self, timeout: Duration) -> Result<(), FabricError> {
        let is_writing = self.unsent_bytes() > 0 || self.stream.has_unsent();
        let wanted = if is_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let own = (self.stream.as_fd(), wanted | PollFlags::RDHUP);
        // The control connection shows how this queue's may end, and when this process closed both.
        let control = (self.link.socket().as_fd(), PollFlags::RDHUP);
        match os::poll([own, control], timeout) {
            Ok([_, control]) if !control.is_empty() => {
                self.link.await_farewell();
                self.link.check()
            }
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Waits until a slot is complete or `timeout` has passed.
    pub(super) fn await_completion(&mut self, timeout: Duration) -> Result<(), FabricError> {
        let started = Instant::now();
        loop {
            self.await_arrival(timeout.saturating_sub(started.elapsed()))?;
            if self.completed > 0 || self.refusals.is_broken() || started.elapsed() >= timeout {
                return Ok(());
            }
        }
    }

    /// Waits until no verb is under way.
    pub(super) fn await_verbs(&mut self) -> Result<(), FabricError> {
        self.await_until("a batch of verbs", |queue| queue.verbs_under_way == 0)
    }

    /// Waits until the verb in `slot` is no longer under way.
    pub(super) fn await_slot(&mut self, slot: Slot) -> Result<(), FabricError> {
        self.await_until("a verb", |queue| queue.slots[slot].content != Content::Awaited)
    }

    /// Waits until the server has taken and answered enough for another batch.
    #[cold]
    pub(super) fn await_room(&mut self) -> Result<(), FabricError> {
        let has_room =
            |queue: &Self| queue.under_way.len() <= FRAMES_MAX && queue.unsent_bytes() <= UNSENT_BYTES_MAX;
        self.await_until("batches sent earlier", has_room)
    }

    /// Waits until `is_reached`, as long as something arrives every now and then.
    fn await_until(
        &mut self,
        what: &'static str,
        is_reached: impl Fn(&Self) -> bool,
    ) -> Result<(), FabricError> {
        let mut progress_at = Instant::now();
        while !is_reached(self) {
            let unsent_bytes = self.unsent_bytes();
            if self.await_arrival(SLEEP_STEP)? || self.unsent_bytes() < unsent_bytes {
                progress_at = Instant::now();
                continue;
            }
            self.link.check()?;
            let waited = progress_at.elapsed();
            if waited > STALL_TIMEOUT {
                return Err(FabricError::TimedOut { peer: self.link.peer().to_owned(), what, waited });
            }
        }
        Ok(())
    }
}
