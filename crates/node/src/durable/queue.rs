//! What waits for the sequencer: calls that write, and what goes with them.
//!
//! Invariant: work is handed over in the order in which it came. Calls wait only while they have
//! [`WAITING_MAX`] bytes together at most, or what a smaller memory limit leaves for them, and a request of
//! each worker more. Others are refused, and change nothing.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::ClientId;
use farsight_durability::LogPosition;
use farsight_protocol::{Ack, AuthorId, ErrorCode, Request, ServerError, TableId};

use crate::LateReply;
use crate::signal::Signal;

/// Bytes of requests that wait at most.
const WAITING_MAX: usize = 64 << 20;
/// Bytes of requests that are taken at once at most, or a little more.
const GROUP_BYTES: usize = 4 << 20;

/// One thing for the sequencer to do.
pub(super) enum Due {
    /// A call.
    Call(WaitingCall),
    /// Note that there is this author, then answer it.
    BeginAuthor(AuthorId, LateReply),
    /// A client has ended: none of its calls comes any more.
    Departed(ClientId),
    /// Tell when all that came before is applied and durable, and where the log ends then.
    Settle(SyncSender<LogPosition>),
    /// The same for a round of snapshots: authors are noted anew behind that.
    BeginRound(SyncSender<LogPosition>),
    /// Repair a damaged pair, and tell whether that was done.
    Repair(Repair),
}

/// The value of a damaged pair as files have it.
pub(super) struct Repair {
    pub(super) table: TableId,
    pub(super) key: u64,
    /// The version of the pair that is damaged, and of this value.
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
    pub(super) done: SyncSender<Result<bool, ServerError>>,
}

/// A call that writes, as it came.
pub(super) struct WaitingCall {
    pub(super) client: ClientId,
    /// It writes single pairs, and its request has all of it.
    pub(super) is_short: bool,
    /// When it is acknowledged, if its table says so; else as the node says.
    pub(super) ack: Option<Ack>,
    pub(super) request: Vec<u8>,
    pub(super) reply: LateReply,
}

/// The queue.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Bytes of requests that wait at most.
    bytes_max: usize,
    signal: Signal,
}

#[derive(Default)]
struct Waiting {
    /// Nobody takes work any more: what comes is dropped.
    is_closed: bool,
    work: VecDeque<Due>,
    bytes: usize,
}

impl Queue {
    /// An empty queue of so many bytes at most, up to [`WAITING_MAX`].
    pub(super) fn new(bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(WAITING_MAX);
        Self { waiting: Mutex::default(), bytes_max, signal: Signal::default() }
    }

    /// Refuses a request of so many bytes if too many wait.
    pub(super) fn check_room(&self, bytes: usize) -> Result<(), ServerError> {
        let (waiting, most) = (self.waiting_bytes(), self.bytes_max);
        if waiting == 0 || waiting + bytes <= most {
            return Ok(());
        }
        let text = format!(
            "{waiting} B of writes wait for the disk, at most {most} B do: it does not follow. Try again later"
        );
        Err(ServerError::new(ErrorCode::OutOfResources, text))
    }

    /// Bytes of requests that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Appends work, and wakes the sequencer.
    pub(super) fn push(&self, work: Due) {
        self.append(work);
        self.signal.raise();
    }

    /// Appends work. The caller sees to it that it is done.
    pub(super) fn append(&self, work: Due) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return;
        }
        waiting.bytes += work.bytes();
        waiting.work.push_back(work);
    }

    /// Drops what waits, and what comes from now on. Calls are refused by that.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        let dropped = std::mem::take(&mut waiting.work);
        waiting.bytes = 0;
        drop(waiting);
        drop(dropped);
    }

    /// Takes the oldest work, of about [`GROUP_BYTES`].
    pub(super) fn take(&self) -> Vec<Due> {
        self.take_while(GROUP_BYTES, |_| true)
    }

    /// Takes the oldest calls and authors, of about so many bytes, before the first that is not short.
    pub(super) fn take_short(&self, bytes_max: usize) -> Vec<Due> {
        self.take_while(bytes_max, |work| match work {
            Due::Call(call) => call.is_short,
            Due::BeginAuthor(..) => true,
            _ => false,
        })
    }

    fn take_while(&self, bytes_max: usize, is_wanted: impl Fn(&Due) -> bool) -> Vec<Due> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max
            && waiting.work.front().is_some_and(&is_wanted)
            && let Some(work) = waiting.work.pop_front()
        {
            waiting.bytes -= work.bytes();
            // A value that came in pieces may have as many bytes as a group, and more.
            bytes += if work.is_of_staged_value() { GROUP_BYTES } else { work.bytes() };
            taken.push(work);
        }
        taken
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Sleeps until work comes or a sync has ended, or for this long. False if neither did.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        self.signal.wait(timeout)
    }

    /// Wakes the sequencer.
    pub(super) fn wake(&self) {
        self.signal.raise();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A push or a take is never half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    /// True for the write of a value whose pieces came before: the request does not have it.
    fn is_of_staged_value(&self) -> bool {
        let Self::Call(call) = self else { return false };
        matches!(Request::decode(&call.request), Ok(Request::WriteStaged { .. }))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.request.len(),
            Self::BeginAuthor(..)
            | Self::Departed(_)
            | Self::Settle(_)
            | Self::BeginRound(_)
            | Self::Repair(_) => 0,
        }
    }
}
