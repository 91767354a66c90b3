//! What the driver executes between two looks at the queue: single GETs in one staged batch, writes in one
//! call a kind, and a piece of each long request.
//!
//! Invariant: a round is bounded (the constants here). So no request waits longer for its turn than a few
//! rounds of that size, however long others are. Requests that it holds are *taken* in the queue; those whose
//! future is gone leave it before the next piece. All pieces of an answer are of one epoch of the server: a
//! request that meets the next epoch begins again.

use std::collections::VecDeque;
use std::task::Waker;

use farsight_client::{Direction, Lifetime, Origin, ReadError, ScanRequest, Session, WriteError};
use farsight_index::{Answers, Pairs};
use farsight_protocol::{ValueKind, WriteOperation, WriteOutcome};

use super::held_key::HeldKey;
use super::queue::{Completion, Lane, Request, RequestQueue, SlotIndex};
use crate::Exchanges;

/// Requests of one key, reads and writes together.
const SHORT_MAX: usize = 256;
/// Requests that are taken or answered before the queue is left to futures for a moment.
const AT_ONCE: usize = 16;
/// Long requests that the driver holds.
const LONG_MAX: usize = 64;
/// Long requests of which a round executes a piece.
const PIECES_MAX: usize = 8;
/// Keys of a piece of a multi-GET.
const PIECE_KEYS: usize = 256;
/// Pairs of the first and of the largest piece of a scan.
const PIECE_PAIRS: usize = 64;
const PIECE_PAIRS_MAX: usize = 1024;

/// Attempts at a request, which begins again because the server was started again.
const ATTEMPTS_MAX: usize = 8;

/// The requests in the driver's hands.
#[derive(Debug)]
pub(super) struct Round<H> {
    table: String,
    value_kind: ValueKind,
    /// Requests of one key that were taken.
    short: usize,
    gets: Vec<SlotIndex>,
    /// Those whose answers have been handed in.
    delivered: usize,
    /// Keys of `gets`, then those of the multi-GETs' pieces.
    keys: Vec<H>,
    answers: Answers,
    read_error: Option<ReadError>,
    writes: [Writes<H>; WriteOperation::ALL.len()],
    /// Writes of pairs that do not stay as long as the table says: a group for each operation and lifetime.
    lasting_writes: Vec<Writes<H>>,
    long: VecDeque<Long<H>>,
    /// How many of `long`, from the front, this round executes a piece of.
    pieces: usize,
    /// Of the scans' pieces.
    scans: Vec<ScanRequest>,
    pairs: Pairs,
}

/// Writes of one kind.
#[derive(Debug)]
struct Writes<H> {
    operation: WriteOperation,
    lifetime: Lifetime,
    slots: Vec<SlotIndex>,
    /// Those whose answers have been handed in.
    delivered: usize,
    keys: Vec<H>,
    /// Their operands.
    values: Vec<u8>,
    /// Where each operand ends.
    ends: Vec<usize>,
    exchanges: Exchanges,
    /// What became of those without an outcome.
    error: Option<WriteError>,
}

/// A request that takes several rounds.
#[derive(Debug)]
struct Long<H> {
    slot: SlotIndex,
    request: LongRequest<H>,
    value_kind: ValueKind,
    work: Work,
    /// The server's epoch that its pieces are of; `None` before the first.
    origin: Option<Origin>,
    attempts: usize,
    error: Option<ReadError>,
}

/// What a long request asks for.
#[derive(Debug)]
enum LongRequest<H> {
    MultiGet(Vec<H>),
    Scan { direction: Direction, first: u64, last: u64, limit: usize },
}

#[derive(Debug)]
enum Work {
    MultiGet { done: usize, answers: Answers },
    Scan(ScanWork),
}

#[derive(Debug)]
struct ScanWork {
    direction: Direction,
    /// The next key, in that direction, that has not been fetched; `None` at the end.
    next_from: Option<u64>,
    last: u64,
    /// Pairs still wanted.
    left: usize,
    piece_pairs: usize,
    pairs: Pairs,
}

impl<H: HeldKey> Round<H> {
    pub(super) fn new(table: String, value_kind: ValueKind) -> Self {
        Self {
            table,
            value_kind,
            short: 0,
            gets: Vec::new(),
            delivered: 0,
            keys: Vec::new(),
            answers: Answers::default(),
            read_error: None,
            writes: WriteOperation::ALL.map(|operation| Writes::new(operation, Lifetime::OfTable)),
            lasting_writes: Vec::new(),
            long: VecDeque::new(),
            pieces: 0,
            scans: Vec::new(),
            pairs: Pairs::default(),
        }
    }

    /// Requests held.
    pub(super) fn len(&self) -> usize {
        self.short + self.long.len()
    }

    /// True without anything to execute.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes some of what waits, as far as the bounds allow. True if there may be more to take.
    pub(super) fn take_some(&mut self, queue: &mut RequestQueue<H>) -> bool {
        let mut left = AT_ONCE;
        while left > 0 && self.short < SHORT_MAX {
            let Some((slot, request, value)) = queue.take(Lane::Short) else { break };
            match request {
                Request::Get(key) => {
                    self.gets.push(slot);
                    self.keys.push(key);
                }
                Request::Write(operation, key, lifetime) => {
                    self.writes_of(operation, lifetime).push(slot, key, value);
                }
                Request::MultiGet(_) | Request::Scan { .. } => {
                    unreachable!("a long request in the short lane")
                }
            }
            self.short += 1;
            left -= 1;
        }
        while left > 0 && self.long.len() < LONG_MAX {
            let Some((slot, request, _)) = queue.take(Lane::Long) else { return false };
            let request = match request {
                Request::MultiGet(keys) => LongRequest::MultiGet(keys),
                Request::Scan { direction, first, last, limit } => {
                    LongRequest::Scan { direction, first, last, limit }
                }
                Request::Get(_) | Request::Write(..) => unreachable!("a short request in the long lane"),
            };
            self.long.push_back(Long::new(slot, request, self.value_kind));
            left -= 1;
        }
        left == 0
    }

    /// The group to which such a write belongs.
    fn writes_of(&mut self, operation: WriteOperation, lifetime: Lifetime) -> &mut Writes<H> {
        if lifetime == Lifetime::OfTable {
            return &mut self.writes[operation as usize];
        }
        let is_its = |writes: &Writes<H>| (writes.operation, writes.lifetime) == (operation, lifetime);
        let at = self.lasting_writes.iter().position(is_its).unwrap_or_else(|| {
            self.lasting_writes.push(Writes::new(operation, lifetime));
            self.lasting_writes.len() - 1
        });
        &mut self.lasting_writes[at]
    }

    /// Lets go of long requests whose futures are gone.
    pub(super) fn forget_abandoned(&mut self, queue: &mut RequestQueue<H>) {
        self.long.retain(|long| {
            let is_abandoned = queue.is_abandoned(long.slot);
            if is_abandoned {
                let waker = queue.complete(long.slot, long.nothing(), &[]);
                debug_assert!(waker.is_none(), "an abandoned slot has no waker");
            }
            !is_abandoned
        });
    }

    /// Executes what was taken.
    pub(super) fn execute(&mut self, session: &mut Session) {
        self.pieces = self.long.len().min(PIECES_MAX);
        self.execute_gets(session);
        for direction in [Direction::Ascending, Direction::Descending] {
            self.execute_scans(direction, session);
        }
        for writes in self.writes.iter_mut().chain(&mut self.lasting_writes) {
            writes.execute(session);
        }
    }

    /// GETs and pieces of multi-GETs, in one batch.
    fn execute_gets(&mut self, session: &mut Session) {
        for long in self.long.iter().take(self.pieces) {
            self.keys.extend_from_slice(long.piece());
        }
        if self.keys.is_empty() {
            return;
        }
        self.read_error = H::with_all(&self.keys, |keys| session.multi_get(keys, &mut self.answers)).err();
        let mut at = self.gets.len();
        for long in self.long.iter_mut().take(self.pieces) {
            let count = long.piece().len();
            if count == 0 {
                continue;
            }
            if !long.fails(self.read_error.as_ref()) && long.stays_at(session.origin(), &self.table) {
                long.add_answers(&self.answers, at, count);
            }
            at += count;
        }
    }

    /// Pieces of scans in one direction, in one batch.
    fn execute_scans(&mut self, direction: Direction, session: &mut Session) {
        self.scans.clear();
        for long in self.long.iter().take(self.pieces) {
            self.scans.extend(long.scan_piece(direction));
        }
        if self.scans.is_empty() {
            return;
        }
        let error = session.scan_batch(direction, &self.scans, &mut self.pairs).err();
        let mut requests = self.scans.iter().enumerate();
        for long in self.long.iter_mut().take(self.pieces) {
            if long.scan_piece(direction).is_none() {
                continue;
            }
            let (index, request) = requests.next().expect("a piece was requested for each scan");
            if long.fails(error.as_ref()) || !long.stays_at(session.origin(), &self.table) {
                continue;
            }
            if let Work::Scan(scan) = &mut long.work {
                scan.append(&self.pairs, index, request.limit);
            }
        }
    }

    /// Hands in some of the answers that are not handed in yet. False if there were none: then the round is
    /// ready to be filled.
    pub(super) fn deliver_some(&mut self, queue: &mut RequestQueue<H>, wakers: &mut Vec<Waker>) -> bool {
        let last = self.gets.len().min(self.delivered + AT_ONCE);
        if self.delivered < last {
            let slots = self.gets[self.delivered..last].iter().zip(self.delivered..);
            for (slot, index) in slots {
                let (result, value) = match &self.read_error {
                    Some(error) => (Err(error.clone()), &[][..]),
                    None => match self.answers.get(index) {
                        Some((value, version)) => (Ok(Some(version)), value),
                        None => (Ok(None), &[][..]),
                    },
                };
                wakers.extend(queue.complete(*slot, Completion::Get(result), value));
            }
            self.delivered = last;
            return true;
        }
        let mut writes = self.writes.iter_mut().chain(&mut self.lasting_writes);
        if writes.any(|writes| writes.deliver_some(&self.table, queue, wakers)) {
            return true;
        }
        self.lasting_writes.clear();
        if self.deliver_long(queue, wakers) {
            return true;
        }
        self.gets.clear();
        self.keys.clear();
        (self.delivered, self.short) = (0, 0);
        self.read_error = None;
        false
    }

    /// Hands in the answer of the next long request that had its piece; one that wants more goes to the back.
    fn deliver_long(&mut self, queue: &mut RequestQueue<H>, wakers: &mut Vec<Waker>) -> bool {
        if self.pieces == 0 {
            return false;
        }
        self.pieces -= 1;
        let long = self.long.pop_front().expect("each piece is one of a long request");
        if long.is_done() {
            let slot = long.slot;
            wakers.extend(queue.complete(slot, long.into_completion(), &[]));
        } else {
            self.long.push_back(long);
        }
        true
    }
}

impl<H: HeldKey> Long<H> {
    fn new(slot: SlotIndex, request: LongRequest<H>, value_kind: ValueKind) -> Self {
        let work = Work::of(&request, value_kind);
        Self { slot, request, value_kind, work, origin: None, attempts: 1, error: None }
    }

    /// The next keys of a multi-GET; none of a scan.
    fn piece(&self) -> &[H] {
        match (&self.request, &self.work) {
            (LongRequest::MultiGet(keys), Work::MultiGet { done, .. }) => {
                &keys[*done..keys.len().min(done + PIECE_KEYS)]
            }
            _ => &[],
        }
    }

    /// The next piece of a scan in that direction, of which pairs are wanted still.
    fn scan_piece(&self, direction: Direction) -> Option<ScanRequest> {
        let Work::Scan(scan) = &self.work else { return None };
        let from = scan.next_from.filter(|_| scan.direction == direction)?;
        Some(ScanRequest { from, limit: scan.piece_pairs.min(scan.left) })
    }

    /// Takes the error of the batch that its piece was in, if there is one. True then.
    fn fails(&mut self, error: Option<&ReadError>) -> bool {
        self.error = error.cloned();
        self.error.is_some()
    }

    /// True if a piece that was read at `origin` belongs to the pieces before. If not, the request begins
    /// again there.
    fn stays_at(&mut self, origin: Origin, table: &str) -> bool {
        let was = self.origin.replace(origin).unwrap_or(origin);
        let Err(cut) = was.check_same(origin, table) else { return true };
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            self.error = Some(cut);
        }
        self.work = Work::of(&self.request, self.value_kind);
        false
    }

    /// Takes the answers to its piece: `count`, from number `first` on.
    fn add_answers(&mut self, from: &Answers, first: usize, count: usize) {
        let Work::MultiGet { done, answers } = &mut self.work else { return };
        for offset in 0..count {
            if let Some((value, version)) = from.get(first + offset) {
                if self.value_kind.are_blocks() {
                    answers.set_value(*done + offset, version, value);
                    continue;
                }
                answers.value_mut(*done + offset).copy_from_slice(value);
                answers.set_version(*done + offset, version);
            }
        }
        *done += count;
    }

    fn is_done(&self) -> bool {
        self.error.is_some()
            || match &self.work {
                Work::MultiGet { done, answers } => *done == answers.len(),
                Work::Scan(scan) => scan.next_from.is_none(),
            }
    }

    fn into_completion(self) -> Completion {
        match self.work {
            Work::MultiGet { answers, .. } => Completion::MultiGet(self.error.map_or(Ok(answers), Err)),
            Work::Scan(mut scan) => {
                scan.pairs.end_scan();
                Completion::Scan(self.error.map_or(Ok(scan.pairs), Err))
            }
        }
    }

    /// What is told to nobody.
    fn nothing(&self) -> Completion {
        match &self.work {
            Work::MultiGet { .. } => Completion::MultiGet(Ok(Answers::default())),
            Work::Scan(_) => Completion::Scan(Ok(Pairs::default())),
        }
    }
}

impl Work {
    fn of<H>(request: &LongRequest<H>, values: ValueKind) -> Self {
        match request {
            LongRequest::MultiGet(keys) => {
                let mut answers = Answers::default();
                match values {
                    ValueKind::Fixed(bytes) => answers.reset(keys.len(), bytes.into()),
                    ValueKind::Blocks { .. } => answers.reset_any_length(keys.len()),
                }
                Self::MultiGet { done: 0, answers }
            }
            &LongRequest::Scan { direction, first, last, limit } => {
                let mut pairs = Pairs::default();
                match values {
                    ValueKind::Fixed(bytes) => pairs.reset(bytes.into()),
                    ValueKind::Blocks { .. } => pairs.reset_any_length(),
                }
                let mut scan = ScanWork {
                    direction,
                    next_from: None,
                    last,
                    left: limit,
                    piece_pairs: PIECE_PAIRS,
                    pairs,
                };
                scan.next_from = Some(first).filter(|first| limit > 0 && scan.contains(*first));
                Self::Scan(scan)
            }
        }
    }
}

impl ScanWork {
    /// Whether a key does not lie beyond the last one.
    fn contains(&self, key: u64) -> bool {
        match self.direction {
            Direction::Ascending => key <= self.last,
            Direction::Descending => key >= self.last,
        }
    }

    /// Takes the pairs of scan `index` of `pairs`, of which `limit` were requested.
    fn append(&mut self, pairs: &Pairs, index: usize, limit: usize) {
        let mut count = 0;
        let mut next_from = None;
        for pair in pairs.scan(index) {
            if !self.contains(pair.key) {
                break;
            }
            self.pairs.push(pair);
            count += 1;
            next_from = self.direction.next_key(pair.key);
        }
        self.left -= count;
        let goes_on = count == limit && self.left > 0;
        self.next_from = next_from.filter(|from| goes_on && self.contains(*from));
        self.piece_pairs = (2 * self.piece_pairs).min(PIECE_PAIRS_MAX);
    }
}

impl<H: HeldKey> Writes<H> {
    fn new(operation: WriteOperation, lifetime: Lifetime) -> Self {
        Self {
            operation,
            lifetime,
            slots: Vec::new(),
            delivered: 0,
            keys: Vec::new(),
            values: Vec::new(),
            ends: Vec::new(),
            exchanges: Exchanges::default(),
            error: None,
        }
    }

    fn push(&mut self, slot: SlotIndex, key: H, value: &[u8]) {
        self.slots.push(slot);
        self.keys.push(key);
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len());
    }

    fn execute(&mut self, session: &mut Session) {
        if self.slots.is_empty() {
            return;
        }
        let values = &self.values;
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = begins.zip(&self.ends);
        let entries =
            self.keys.iter().zip(spans).map(|(key, (begin, end))| (key.encoded(), &values[begin..*end]));
        let done = session.set_lifetime(self.lifetime);
        let Exchanges { outcomes, old_values } = &mut self.exchanges;
        let done = done.and_then(|()| session.exchange(self.operation, entries, outcomes, old_values));
        self.error = done.err();
    }

    /// As [`Round::deliver_some`].
    fn deliver_some(&mut self, table: &str, queue: &mut RequestQueue<H>, wakers: &mut Vec<Waker>) -> bool {
        let last = self.slots.len().min(self.delivered + AT_ONCE);
        if self.delivered == last {
            self.slots.clear();
            self.keys.clear();
            self.values.clear();
            self.ends.clear();
            self.exchanges.outcomes.clear();
            self.exchanges.old_values.clear();
            (self.delivered, self.error) = (0, None);
            return false;
        }
        for index in self.delivered..last {
            let result = self.result(table, index);
            let old = self.exchanges.old(index).unwrap_or_default();
            wakers.extend(queue.complete(self.slots[index], Completion::Write(result), old));
        }
        self.delivered = last;
        true
    }

    fn result(&self, table: &str, index: usize) -> Result<WriteOutcome, WriteError> {
        match (self.exchanges.outcomes.get(index), &self.error) {
            (Some(WriteOutcome::Failed(code)), _) => {
                Err(WriteError::Refused { table: table.to_owned(), operation: self.operation, code: *code })
            }
            (Some(outcome), _) => Ok(*outcome),
            (None, Some(error)) => Err(of_one(error)),
            (None, None) => unreachable!("a call without an error has an outcome an entry"),
        }
    }
}

/// A call's error, as that of one of its writes.
fn of_one(error: &WriteError) -> WriteError {
    let mut error = error.clone();
    if let WriteError::Indeterminate { entries, .. } = &mut error {
        *entries = 1;
    }
    error
}

#[cfg(test)]
mod tests {
    use farsight_base::Epoch;
    use farsight_protocol::TableId;

    use super::*;

    fn answered(count: usize) -> Answers {
        let mut answers = Answers::default();
        answers.reset(count, 8);
        (0..count).for_each(|index| answers.set_version(index, 1));
        answers
    }

    fn at(epoch: u64) -> Origin {
        Origin { epoch: Epoch(epoch), table: TableId(0) }
    }

    #[test]
    fn a_multi_get_takes_its_pieces_from_one_life_of_the_server() {
        let keys: Vec<u64> = (0..PIECE_KEYS as u64 + 10).collect();
        let mut long = Long::new(0, LongRequest::MultiGet(keys), ValueKind::Fixed(8));
        assert_eq!(long.piece().len(), PIECE_KEYS);
        assert!(long.stays_at(at(1), "t"));
        long.add_answers(&answered(PIECE_KEYS), 0, PIECE_KEYS);
        assert_eq!(long.piece().len(), 10);
        assert!(!long.stays_at(at(2), "t"), "these ten are of another epoch");
        assert_eq!(long.piece()[0], 0, "it begins again");
        assert!(long.stays_at(at(2), "t"));
        long.add_answers(&answered(PIECE_KEYS), 0, PIECE_KEYS);
        long.add_answers(&answered(PIECE_KEYS + 10), PIECE_KEYS, 10);
        assert!(long.is_done());
        assert!(matches!(long.into_completion(), Completion::MultiGet(Ok(answers)) if answers.len() == 266));
    }

    #[test]
    fn a_request_begins_again_a_bounded_number_of_times() {
        let request: LongRequest<u64> =
            LongRequest::Scan { direction: Direction::Ascending, first: 0, last: 9, limit: 9 };
        let mut long = Long::new(0, request, ValueKind::Fixed(8));
        for epoch in 0..ATTEMPTS_MAX as u64 {
            long.stays_at(at(epoch), "t");
            assert!(!long.is_done());
        }
        long.stays_at(at(99), "t");
        assert!(matches!(long.into_completion(), Completion::Scan(Err(ReadError::ScanCut { .. }))));
    }
}
