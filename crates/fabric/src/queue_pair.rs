//! The client's side of a fabric: connections and their queue pairs.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::words::CopyMode;
use farsight_base::{Epoch, Line, RegionId, RemoteAddress};

use crate::filter::{Filter, Filtered};
use crate::mapped::{Mapped, Unmapped};
use crate::{FabricError, Guarantees, Meters};

/// A place in a queue pair's batch, below [`QueuePair::SLOTS`]. A slot holds one verb from its posting until
/// its result has been taken or the slot is posted to again.
pub type Slot = usize;

/// How a READ's lines are checked on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMode {
    /// Eight-byte words arrive whole; nothing else is promised.
    Plain,
    /// The first word of each line is a stamp: a line whose copy has an even version is a snapshot of that
    /// line.
    Stamped,
}

impl ReadMode {
    /// How a processor copies lines in this mode.
    #[inline(always)]
    #[must_use]
    pub fn copy_mode(self) -> CopyMode {
        match self {
            Self::Plain => CopyMode::Plain,
            Self::Stamped => CopyMode::Stamped,
        }
    }
}

/// A connection to one node, shared by the sessions of a process.
pub trait Connection: Send + Sync + 'static {
    /// What a session posts to.
    type Queue: QueuePair + Send;

    /// The peer, as the user named it.
    fn peer(&self) -> &str;

    /// The server's epoch at connection. A connection never outlives it.
    fn epoch(&self) -> Epoch;

    /// A queue pair of its own for one session.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`], or [`FabricError::System`] without descriptors left.
    fn open_queue(&self) -> Result<Self::Queue, FabricError>;

    /// Fails once the connection is lost.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`], [`FabricError::Dismissed`], [`FabricError::Forked`].
    fn check(&self) -> Result<(), FabricError>;

    /// Another connection to the same address, tried once: perhaps to another epoch of the server. This one
    /// stays as it is.
    ///
    /// # Errors
    /// As the provider's way to connect; [`FabricError::TimedOut`] after about `timeout`,
    /// [`FabricError::Forked`] in a process that did not make this connection.
    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError>
    where
        Self: Sized;

    /// A connection to another host of this fabric, by its URL, with this one's settings. `None` if that is
    /// none of this fabric's URLs, or the fabric has none.
    ///
    /// # Errors
    /// As [`Connection::reconnect`].
    fn connect_beside(&self, _url: &str, _timeout: Duration) -> Result<Option<Self>, FabricError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// True if the fabric knows hosts by URLs.
    fn has_urls(&self) -> bool {
        false
    }

    /// A clock for what its users wait for. Its zero is its own.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock::new())
    }
}

/// One session's queue of verbs to one node; single-threaded.
///
/// Bounds: a batch holds at most [`QueuePair::SLOTS`] verbs, a posted message at most
/// [`QueuePair::MESSAGE_BYTES_MAX`]; no wait exceeds its timeout.
pub trait QueuePair {
    /// Verbs that one batch holds.
    const SLOTS: usize;
    /// Bytes of the longest request or reply.
    const MESSAGE_BYTES_MAX: usize;
    /// What the provider promises.
    const GUARANTEES: Guarantees;

    /// The peer, as the user named it.
    fn peer(&self) -> &str;

    /// The time, on the clock that this fabric's waits and delays are counted by. Its zero means nothing. All
    /// queue pairs of a process have one clock: what one session reads there holds for the others.
    fn now(&self) -> MonotonicNs;

    /// Makes `region` addressable by this queue pair and returns its size in bytes. May take a round trip; a
    /// region already attached is free.
    ///
    /// # Errors
    /// [`FabricError::UnknownRegion`] if the server has no such region, or no longer.
    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError>;

    /// Forgets `region`: no verb reaches it until it is attached again. What was posted to it and is not
    /// taken yet may fail with [`FabricError::UnknownRegion`]. With the last queue pair that detaches it the
    /// connection forgets it, too. Free if it is not attached; never waits.
    fn detach(&mut self, region: RegionId);

    /// The newest number of which the server told all clients ([`Host::notify`](crate::Host::notify)), as far
    /// as this queue pair has heard; zero if there is none. It only grows.
    fn notice(&self) -> u64;

    /// Posts a READ of `line_count` lines at the line-aligned `from`. Over shared memory this prefetches.
    /// A wrong address is reported when the slot is taken.
    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode);

    /// Posts a stamped READ of `line_count` lines at `from`, of which what `filter` picks by the word
    /// `wanted` is enough; the slot is taken by [`QueuePair::view_filtered`].
    ///
    /// # Panics
    /// Perhaps, if the filter's parts end beyond the READ.
    #[inline]
    fn post_filtered_read(
        &mut self,
        slot: Slot,
        from: RemoteAddress,
        line_count: usize,
        _wanted: u64,
        _filter: Filter,
    ) {
        self.post_read(slot, from, line_count, ReadMode::Stamped);
    }

    /// Posts a WRITE of `words` at the word-aligned `to`.
    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]);

    /// Posts a compare-and-swap of the word at `at`; the slot yields the word as it was.
    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64);

    /// Posts a fetch-and-add on the word at `at`; the slot yields the word as it was.
    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64);

    /// Posts a call to the peer's processor.
    ///
    /// # Errors
    /// [`FabricError::TooLarge`], before anything is posted.
    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError>;

    /// Sends everything posted since the last doorbell. The batch is empty afterwards, also if that failed.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`], [`FabricError::Forked`]: nothing of the batch was sent.
    fn doorbell(&mut self) -> Result<(), FabricError>;

    /// Collects completions without blocking. Returns how many slots became complete.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`].
    fn poll(&mut self) -> Result<usize, FabricError>;

    /// Sleeps until a completion may have come or `timeout` passes; spins a little first.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`].
    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError>;

    /// Waits until every READ, WRITE and atomic rung so far is complete; calls may still be under way. Free
    /// where a doorbell completes them.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`], [`FabricError::TimedOut`].
    fn drain(&mut self) -> Result<(), FabricError>;

    /// Waits until the READ, WRITE or atomic in `slot`, which has been rung, is complete. A caller who takes
    /// results in the order of posting need not wait for those behind. A provider may wait for them, too.
    ///
    /// # Errors
    /// As [`QueuePair::drain`].
    #[inline]
    fn drain_slot(&mut self, _slot: Slot) -> Result<(), FabricError> {
        self.drain()
    }

    /// True when the slot's result can be taken.
    fn is_complete(&self, slot: Slot) -> bool;

    /// This queue pair, if its regions lie in this process's memory.
    #[inline(always)]
    fn mapped(&mut self) -> Option<&mut impl Mapped> {
        None::<&mut Unmapped>
    }

    /// Copies the lines that the completed READ in `slot` fetched; as many as were posted. Without
    /// [`Guarantees::read_before_completion`] it may fetch them only now.
    ///
    /// # Errors
    /// [`FabricError::AccessDenied`], [`FabricError::UnknownRegion`], [`FabricError::RegionWithdrawn`].
    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError>;

    /// [`QueuePair::take_read`] without a copy where the provider has the lines in private memory already;
    /// `room`, as long as the READ, is for those that have not.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    #[inline]
    fn view_read<'a>(&'a mut self, slot: Slot, room: &'a mut [Line]) -> Result<&'a [Line], FabricError> {
        self.take_read(slot, room)?;
        Ok(room)
    }

    /// What the completed filtered READ in `slot` brought; `room` is as long as all of the READ.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    #[inline]
    fn view_filtered<'a>(
        &'a mut self,
        slot: Slot,
        room: &'a mut [Line],
    ) -> Result<Filtered<'a>, FabricError> {
        self.view_read(slot, room).map(Filtered::Whole)
    }

    /// The word that the completed atomic in `slot` found, or zero for a completed WRITE.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError>;

    /// Moves the completed call's reply into `into`, replacing what it held.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`] if the peer died before it answered: the outcome is unknown.
    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError>;

    /// Counters since the queue pair was opened; a batch is added at its doorbell.
    fn meters(&self) -> Meters;
}
