//! Writers of one process to one leaf go to its lock one at a time: the first takes the others' writes along.
//!
//! Invariants:
//! - a gate excludes nobody from anything. The leaf's lock alone says who may change it; a writer that finds
//!   its gate at another leaf, or the queue full, goes on without;
//! - a request is executed by the session that took it, once, or by its own, never by both. A session gets
//!   its request back out of the queue before it does the write itself or tells its caller of an error;
//! - every request that was taken ends: with its outcome, as its own session's to do, or as lost;
//! - a request that was not taken ends if another process's write [overtook](crate::overtaken) it.
//!
//! Protocol: a session that *holds* a gate locks the leaf. Behind the lock it takes what waits here, and
//! plans all of it on one copy of the leaf. It executes that with its own change. Once the WRITEs are on
//! their way, a batch leaves the gate to the next session. Once they are complete, the holder ends each
//! request ([`write`](crate::write)). A session that waits looks again and again. It finds its request ended,
//! or the gate free: then it holds the gate itself. So a holder that dies leaves nobody waiting.

#[cfg(all(test, any(loom, shuttle)))]
mod models;

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use farsight_base::prng::mix;
use farsight_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_fabric::FabricError;
use farsight_layout::VALUE_BYTES_MAX;
use farsight_protocol::{EXPECTED_VERSION_BYTES, WriteOperation, WriteOutcome};

#[cfg(any(loom, shuttle, injected))]
use crate::injected;
use crate::overtaken::Watch;
use crate::{LeafPlace, Write};

/// Gates of a process, for all leaves.
const GATES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 10 };
/// Writes that wait before one gate at most.
const REQUESTS_MAX: usize = 32;
/// The word of a gate that nobody holds.
const FREE: u64 = 0;

/// Bytes of the longest operand that waits before a gate.
const OPERAND_BYTES_MAX: usize = VALUE_BYTES_MAX + EXPECTED_VERSION_BYTES;

/// A write, with its operand.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    number: u64,
    operation: WriteOperation,
    key: u64,
    operand_bytes: usize,
    operand: [u8; OPERAND_BYTES_MAX],
    /// The value before, once it is known, of operations that return it.
    old: Cell<[u8; VALUE_BYTES_MAX]>,
    old_bytes: usize,
}

/// How a request came out.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It was executed.
    Done(WriteOutcome),
    /// Nothing of it was done: its own session is to do it.
    Own,
    /// Nothing of it was done: it waits on.
    Later,
    /// Whether it was executed is unknown.
    Lost(FabricError),
}

#[derive(Debug)]
enum State {
    Waiting,
    /// By the hold of this number.
    Taken(u64),
    Ended(End),
}

#[derive(Debug)]
struct Request {
    tag: u64,
    asked: Asked,
    state: State,
    watch: Watch,
}

#[derive(Debug, Default)]
struct Queue {
    requests: Vec<Request>,
    /// The last number that a request got, or a hold that took some.
    last_number: u64,
}

/// Where the writers of some leaves queue.
#[derive(Debug)]
struct Gate {
    /// The leaf that its holder is at, or [`FREE`].
    held: AtomicU64,
    /// Requests that nobody has taken.
    waiting: AtomicU32,
    queue: Mutex<Queue>,
    spare: Arc<Spare>,
}

/// Room for queues, of gates at which nobody waits: so that a warm process allocates none. It is locked
/// behind a gate's queue, never before.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Vec<Request>>>);

/// The gates of one table's leaves in one process.
#[derive(Debug)]
pub(crate) struct Gates(Box<[Gate]>);

/// A gate, held by one session for one leaf.
#[derive(Debug)]
pub(crate) struct Hold<'g> {
    gate: &'g Gate,
    tag: u64,
    /// Its number, while it has requests to end.
    number: Option<u64>,
    /// The last request that had queued when the leaf's READ was posted.
    last_before_read: u64,
    /// Another session may hold the gate by now.
    is_passed_on: bool,
}

/// A write that waits before a gate. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'g> {
    gate: &'g Gate,
    tag: u64,
    number: u64,
}

/// What a write finds at its gate.
#[derive(Debug)]
pub(crate) enum Entered<'g> {
    /// The gate is the session's.
    Held(Hold<'g>),
    /// Another session holds the gate for this leaf.
    Queued(Ticket<'g>),
    /// The gate is for another leaf now, its queue is full, or the operand is too long for it.
    Passed,
}

/// What a session that waits finds.
#[derive(Debug)]
pub(crate) enum Polled<'g> {
    /// Nothing new.
    Waiting,
    /// The request left the queue: the holder ended it.
    Ended(End),
    /// The request left the queue: the session does it itself, with the gate or without, and knows what was
    /// seen of its key meanwhile.
    Own(Option<Hold<'g>>, Watch),
}

impl Asked {
    fn new(number: u64, write: &Write<'_>) -> Self {
        let mut operand = [0; OPERAND_BYTES_MAX];
        operand[..write.value.len()].copy_from_slice(write.value);
        let Write { operation, key, value, old } = *write;
        let (old, old_bytes) = (Cell::new([0; VALUE_BYTES_MAX]), old.len());
        Self { number, operation, key, operand_bytes: value.len(), operand, old, old_bytes }
    }

    /// The write.
    pub(crate) fn write(&self) -> Write<'_> {
        let old: &Cell<[u8]> = &self.old;
        Write {
            operation: self.operation,
            key: self.key,
            value: &self.operand[..self.operand_bytes],
            old: &old.as_slice_of_cells()[..self.old_bytes],
        }
    }

    /// Takes the value before from where it was found.
    fn take_old(&self, from: &Self) {
        if self.old_bytes > 0 {
            #[cfg(any(loom, shuttle, injected))]
            if injected::OLD_VALUE_KEPT.is_injected() {
                return;
            }
            self.old.set(from.old.get());
        }
    }
}

impl Gates {
    pub(crate) fn new() -> Self {
        let spare = Arc::<Spare>::default();
        let gate = || Gate {
            spare: Arc::clone(&spare),
            held: AtomicU64::new(FREE),
            waiting: AtomicU32::new(0),
            queue: Mutex::new(Queue::default()),
        };
        Self((0..GATES).map(|_| gate()).collect())
    }

    /// Holds the gate of the leaf at `place`, or queues a write there.
    pub(crate) fn enter(&self, place: LeafPlace, write: &Write<'_>) -> Entered<'_> {
        let tag = tag_of(place);
        let gate = &self.0[mix(tag) as usize % GATES];
        match gate.hold(tag) {
            Ok(hold) => Entered::Held(hold),
            Err(held) if held == tag && write.value.len() <= OPERAND_BYTES_MAX => gate.queue(tag, write),
            Err(_) => Entered::Passed,
        }
    }
}

/// A word for a leaf, never [`FREE`].
fn tag_of(place: LeafPlace) -> u64 {
    u64::from(place.leaf_number().0) + 1
}

impl Gate {
    /// Holds the gate, or tells which leaf it is held for.
    fn hold(&self, tag: u64) -> Result<Hold<'_>, u64> {
        // Relaxed: the word says who goes first. What sessions hand to each other stands under the lock.
        self.held.compare_exchange(FREE, tag, Ordering::Relaxed, Ordering::Relaxed)?;
        Ok(Hold { gate: self, tag, number: None, last_before_read: 0, is_passed_on: false })
    }

    fn queue(&self, tag: u64, write: &Write<'_>) -> Entered<'_> {
        let mut queue = self.locked();
        if queue.requests.len() >= REQUESTS_MAX {
            return Entered::Passed;
        }
        queue.last_number += 1;
        let number = queue.last_number;
        if queue.requests.capacity() == 0 {
            let room = self.spare.locked().pop();
            queue.requests = room.unwrap_or_else(|| Vec::with_capacity(REQUESTS_MAX));
        }
        let (asked, state, watch) = (Asked::new(number, write), State::Waiting, Watch::default());
        queue.requests.push(Request { tag, asked, state, watch });
        // Relaxed: a hint to look. A holder that misses it leaves the request to its session.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Entered::Queued(Ticket { gate: self, tag, number })
    }

    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request out of the queue.
    fn remove(&self, queue: &mut Queue, index: usize) -> (State, Watch) {
        let Request { state, watch, .. } = queue.requests.remove(index);
        if matches!(state, State::Waiting) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if queue.requests.is_empty() {
            self.spare.locked().push(std::mem::take(&mut queue.requests));
        }
        (state, watch)
    }
}

impl Spare {
    fn locked(&self) -> MutexGuard<'_, Vec<Vec<Request>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn index_of(&self, number: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.asked.number == number)
    }
}

impl Hold<'_> {
    /// True if the gate is held for the leaf at `place`.
    pub(crate) fn is_of(&self, place: LeafPlace) -> bool {
        self.tag == tag_of(place)
    }

    /// Notes who waits here. What READs that are posted from now on show was so while they waited.
    pub(crate) fn note_waiting(&mut self) {
        // Relaxed: as where it is counted.
        if self.gate.waiting.load(Ordering::Relaxed) > 0 {
            self.last_before_read = self.gate.locked().last_number;
        }
    }

    /// Lets the writes that waited here when the leaf's READ was posted look at what that showed, because
    /// somebody else holds the lock. It ends those that have an outcome then.
    pub(crate) fn look(&mut self, mut look: impl FnMut(&mut Watch, &Write<'_>) -> Option<WriteOutcome>) {
        // Relaxed: as where it is counted.
        if self.gate.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = self.gate.locked();
        for Request { tag, asked, state, watch } in &mut queue.requests {
            #[cfg(any(loom, shuttle, injected))]
            let is_read_later =
                asked.number <= self.last_before_read || injected::OVERTAKEN_BEFORE_ASKED.is_injected();
            #[cfg(not(any(loom, shuttle, injected)))]
            let is_read_later = asked.number <= self.last_before_read;
            if *tag == self.tag
                && is_read_later
                && matches!(state, State::Waiting)
                && let Some(outcome) = look(watch, &asked.write())
            {
                *state = State::Ended(End::Done(outcome));
                self.gate.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes the writes that wait for this leaf, behind what is in `taken`. They are to be
    /// [ended](Self::end).
    pub(crate) fn take(&mut self, taken: &mut Vec<Asked>) {
        debug_assert!(!self.is_passed_on, "another session may hold the gate, and take the same writes");
        // Relaxed: as where it is counted.
        if self.gate.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = self.gate.locked();
        queue.last_number += 1;
        let number = queue.last_number;
        self.number = Some(number);
        for request in &mut queue.requests {
            if matches!(request.state, State::Waiting) && request.tag == self.tag {
                #[cfg(any(loom, shuttle, injected))]
                let is_marked = !injected::TAKEN_UNMARKED.is_injected();
                #[cfg(not(any(loom, shuttle, injected)))]
                let is_marked = true;
                if is_marked {
                    request.state = State::Taken(number);
                    self.gate.waiting.fetch_sub(1, Ordering::Relaxed);
                }
                taken.push(request.asked.clone());
            }
        }
    }

    /// Ends writes that were taken; of one whose session no longer waits, nothing is left here.
    pub(crate) fn end<'a>(&mut self, ends: impl Iterator<Item = (&'a Asked, End)>) {
        if self.number.take().is_none() {
            return;
        }
        let mut queue = self.gate.locked();
        for (asked, end) in ends {
            let Some(index) = queue.index_of(asked.number) else { continue };
            queue.requests[index].asked.take_old(asked);
            queue.requests[index].state = match end {
                End::Later => {
                    self.gate.waiting.fetch_add(1, Ordering::Relaxed);
                    State::Waiting
                }
                end => State::Ended(end),
            };
        }
    }

    /// Leaves the gate to the next session, before the writes that were taken have ended: their WRITEs, and
    /// the lock's release, are on their way.
    pub(crate) fn pass_on(&mut self) {
        if !std::mem::replace(&mut self.is_passed_on, true) {
            // Relaxed: as where it is taken.
            self.gate.held.store(FREE, Ordering::Relaxed);
        }
    }

    /// Ends as lost all that was taken and not ended, because of `error`.
    pub(crate) fn lose(&mut self, error: &FabricError) {
        let Some(number) = self.number.take() else { return };
        let mut queue = self.gate.locked();
        for request in &mut queue.requests {
            if matches!(request.state, State::Taken(by) if by == number) {
                request.state = State::Ended(End::Lost(error.clone()));
            }
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.lose(&FabricError::Disconnected {
                peer: "another session of this process".to_owned(),
                reason: "it broke off while it executed this write".to_owned(),
            });
        }
        self.pass_on();
    }
}

impl<'g> Ticket<'g> {
    /// Looks how the request stands, which is for `write`. Once it has ended, the value before is there.
    pub(crate) fn poll(&mut self, write: &Write<'_>) -> Polled<'g> {
        let mut queue = self.gate.locked();
        let index = queue.index_of(self.number).expect("a request stands until its ticket takes it");
        let own = match queue.requests[index].state {
            State::Taken(_) => return Polled::Waiting,
            State::Ended(_) => {
                write.note_old(Some(&queue.requests[index].asked.old.get()));
                None
            }
            State::Waiting => match self.gate.hold(self.tag) {
                Err(held) if held == self.tag => return Polled::Waiting,
                held => Some(held.ok()),
            },
        };
        self.number = 0;
        match (self.gate.remove(&mut queue, index), own) {
            ((State::Ended(end), _), _) => Polled::Ended(end),
            ((_, watch), own) => Polled::Own(own.flatten(), watch),
        }
    }
}

impl Ticket<'_> {
    /// Gives the write up; true if another session has taken it, and may execute it still.
    pub(crate) fn withdraw(mut self) -> bool {
        self.leave()
    }

    /// Takes the request out of the queue, if it is there; true if it was taken.
    fn leave(&mut self) -> bool {
        let number = std::mem::take(&mut self.number);
        if number == 0 {
            return false;
        }
        let mut queue = self.gate.locked();
        let index = queue.index_of(number);
        index.is_some_and(|index| !matches!(self.gate.remove(&mut queue, index).0, State::Waiting))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const PLACE: u32 = 9;

    fn write(key: u64) -> Write<'static> {
        Write { operation: WriteOperation::Update, key, value: &[7; 8], old: &[] }
    }

    /// Keys of the writes that a holder lets look at what its READ showed. One waited before it was posted.
    fn a_read_shows_nothing_of_what_comes_behind_it() {
        let gates = Gates::new();
        let place = LeafPlace::new(0, PLACE).expect("a small number");
        let Entered::Held(mut hold) = gates.enter(place, &write(1)) else { panic!("nobody else is here") };
        let tickets = [2, 3].map(|key| {
            if key == 3 {
                hold.note_waiting();
            }
            match gates.enter(place, &write(key)) {
                Entered::Queued(ticket) => ticket,
                other => panic!("{other:?}"),
            }
        });
        let mut looked = Vec::new();
        hold.look(|_, write| {
            looked.push(write.key);
            Some(WriteOutcome::Replaced(write.key))
        });
        assert_eq!(looked, [2], "the other came behind the READ");
        let [mut first, mut second] = tickets;
        assert!(matches!(first.poll(&write(2)), Polled::Ended(End::Done(WriteOutcome::Replaced(2)))));
        assert!(matches!(second.poll(&write(3)), Polled::Waiting));
        let mut taken = Vec::new();
        hold.take(&mut taken);
        assert_eq!(taken.iter().map(|asked| asked.key).collect::<Vec<_>>(), [3], "once is enough");
    }

    #[test]
    fn only_writes_that_waited_when_a_read_was_posted_learn_from_it() {
        a_read_shows_nothing_of_what_comes_behind_it();
    }

    #[cfg(injected)]
    #[test]
    fn a_write_that_learns_from_a_read_before_it_is_found() {
        let bug = &injected::OVERTAKEN_BEFORE_ASKED;
        farsight_base::injection::assert_found(bug, a_read_shows_nothing_of_what_comes_behind_it);
    }
}
