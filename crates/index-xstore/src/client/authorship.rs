//! Who sends a session's calls that write, so that they may be repeated (docs/protocol/repeats.md).
//!
//! Invariant: a call keeps its number and its entries, however often it is sent. It is repeated over a later
//! connection alone, in its turn, and nothing else of the session is under way then. So the node executes it
//! once, and in the order in which it was first sent.
//!
//! Where connections do not break, calls have no identity, and nothing here costs anything.

use std::collections::VecDeque;
use std::time::Duration;

use farsight_fabric::QueuePair;
use farsight_index::{Author, LostCall, OldValues, UnfinishedShare};
use farsight_protocol::{
    AuthorId, CallId, ControlRequest, ENVELOPE_BYTES, ErrorCode, Request, ServerError, WriteOutcome,
};

use super::fill::call;
use super::{XClient, XStoreError};

/// Times that a call which is being executed is sent again: about five seconds, as long as a lane waits
/// for a server that does nothing.
const ASKED_MAX: u32 = 110;
/// The pause before the first time. It doubles.
const ASKED_PAUSE_MIN: Duration = Duration::from_micros(100);
/// The longest pause.
const ASKED_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Times that one batch becomes another author's because the node forgot the one before. Beyond, its calls
/// are nobody's, and are not repeated.
const AUTHORS_PER_BATCH_MAX: u32 = 3;

/// Bytes of a call before its request.
pub(super) const fn envelope_bytes<Q: QueuePair>() -> usize {
    if Q::GUARANTEES.connections_break { ENVELOPE_BYTES } else { 0 }
}

/// As whom a session sends its calls to one node, and what it has to repeat.
#[derive(Default)]
pub(super) struct Authorship {
    author: Option<Author>,
    /// Calls to be repeated before anything else is sent.
    lost: VecDeque<LostCall>,
    /// Times that the first of them was sent again because it was being executed.
    asked: u32,
    /// Authors that the node has forgotten in this batch.
    forgotten: u32,
}

impl Authorship {
    /// The call that is to be repeated next.
    pub(super) fn next_lost(&self) -> Option<LostCall> {
        self.lost.front().copied()
    }

    /// True while calls are repeated.
    pub(super) fn is_repeating(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The call that was repeated is answered.
    pub(super) fn count_repeated(&mut self) {
        self.lost.pop_front();
        self.asked = 0;
    }

    /// The number of the next call, which is sent now.
    pub(super) fn next_number(&mut self) -> u64 {
        if let Some(lost) = self.next_lost() {
            return lost.sequence;
        }
        self.author.as_mut().map_or(0, |author| {
            author.numbered += 1;
            author.numbered
        })
    }

    /// Puts a request into its envelope. `first_unanswered` is the number of the oldest call under way.
    pub(super) fn enclose(&self, request: &mut Vec<u8>, sequence: u64, first_unanswered: u64) {
        if let Some(Author { id: author, connection, .. }) = self.author {
            let unanswered = (sequence + 1 - first_unanswered) as u16;
            CallId { author, connection, sequence, unanswered }.enclose(request);
        }
    }

    /// Takes what is left to be repeated after a loss. `under_way` are the calls that were. `None` if these
    /// were nobody's.
    pub(super) fn take_lost(
        &mut self,
        under_way: impl Iterator<Item = LostCall>,
    ) -> Option<VecDeque<LostCall>> {
        let lost = std::mem::take(&mut self.lost);
        self.asked = 0;
        let lost = if lost.is_empty() { under_way.collect() } else { lost };
        (lost.is_empty() || self.author.is_some()).then_some(lost)
    }

    /// Goes on where another engine's was cut off.
    pub(super) fn resume(&mut self, author: Option<Author>, lost: VecDeque<LostCall>) {
        let later = |author: Author| Author { connection: author.connection.saturating_add(1), ..author };
        *self = Self { author: author.map(later), lost, ..Self::default() };
    }

    /// After a node has forgotten the author: true if another one may send what was refused.
    pub(super) fn begin_anew(&mut self) -> bool {
        self.forgotten += 1;
        self.author = None;
        self.forgotten <= AUTHORS_PER_BATCH_MAX
    }
}

/// True for the refusal of a call whose author the node does not know.
pub(super) fn is_of_forgotten(done: &Result<(), XStoreError>) -> bool {
    matches!(done, Err(XStoreError::Server(ServerError { code: ErrorCode::Forgotten, .. })))
}

impl XClient {
    /// Becomes an author at the node, unless that has forgotten too many.
    pub(super) fn begin_author<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        if self.authorship.author.is_some() || self.authorship.forgotten >= AUTHORS_PER_BATCH_MAX {
            return Ok(());
        }
        Request::control(&mut self.request, &ControlRequest::BeginAuthor);
        let id: AuthorId = call(queue, &self.request, &mut self.reply)?.control()?;
        self.authorship.author = Some(Author { id, connection: 0, numbered: 0 });
        Ok(())
    }

    /// Says whether a repeated call that was refused so is to be sent again, after a pause.
    pub(super) fn asks_again<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        refusal: &XStoreError,
    ) -> Result<bool, XStoreError> {
        let is_executing =
            matches!(refusal, XStoreError::Server(ServerError { code: ErrorCode::Executing, .. }));
        let asked = &mut self.authorship.asked;
        if !is_executing || *asked == ASKED_MAX {
            return Ok(false);
        }
        let pause = ASKED_PAUSE_MIN * (1 << (*asked).min(u16::BITS));
        *asked += 1;
        queue.wait(pause.min(ASKED_PAUSE_MAX))?;
        Ok(true)
    }

    /// Begins a batch.
    pub(super) fn begin_batch(&mut self) {
        self.authorship.forgotten = 0;
    }

    /// What another engine needs to go on with a batch, if it can. `outcomes` and `old_values` are all that
    /// is known.
    pub(super) fn unfinished(
        &mut self,
        outcomes: Vec<WriteOutcome>,
        old_values: OldValues,
    ) -> Option<UnfinishedShare> {
        let lost = self.lost.replace(VecDeque::new())?;
        Some(UnfinishedShare { author: self.authorship.author, lost, outcomes, old_values })
    }

    /// The same at a node to which nothing of the batch went.
    pub(super) fn untouched(&self) -> UnfinishedShare {
        UnfinishedShare { author: self.authorship.author, ..UnfinishedShare::default() }
    }

    /// Goes on as the author of another engine's calls.
    pub(super) fn resume(&mut self, share: &mut UnfinishedShare) {
        self.authorship.resume(share.author, std::mem::take(&mut share.lost));
    }
}
