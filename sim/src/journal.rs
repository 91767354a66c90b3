//! What clients asked and were told, in the order in which they saw it.
//!
//! Invariant: an entry's begin and end are positions in one sequence of moments; one that ends before another
//! begins happened before it. A write that was never answered may take effect at any time after its begin, or
//! never; perhaps its end says which later writes it does not replace.
//!
//! Every write stores a value of its own: its number, and bytes that follow from the number
//! ([`farsight_oracles::values`]). So a value that is read names the write that it comes from, and torn or
//! foreign bytes name none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_fabric_sim::Simulation;
use farsight_oracles::Identity;
use farsight_protocol::{WriteOperation, WriteOutcome};

use crate::classes::{Coverage, Mark};

/// The end of what was never answered.
pub const NEVER: u64 = u64::MAX;

/// A value as a reader saw it: the number of its write, and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The write's number.
    pub number: u64,
    /// The version.
    pub version: u64,
}

/// What was asked of one key, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A read, by GET or as part of a scan.
    Read(Option<Seen>),
    /// A write of the value with this number; without an outcome, nobody knows.
    Write {
        /// What it does.
        operation: WriteOperation,
        /// Its number.
        number: u64,
        /// What the server said.
        outcome: Option<WriteOutcome>,
    },
    /// A write that looks at the key first.
    Conditional(Conditional),
}

/// A write that looks at the key first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditional {
    /// What it does.
    pub operation: WriteOperation,
    /// Its number.
    pub number: u64,
    /// What it compares with: a version, or the number of a value. Of a fetch-and-add, the addend.
    pub argument: u64,
    /// The number of the value before, or a counter, as it was told; `None` if none was.
    pub old: Option<u64>,
    /// What the server said; without it, nobody knows.
    pub outcome: Option<WriteOutcome>,
}

impl Action {
    /// Of a write: what it does, its number, and what the server said.
    #[must_use]
    pub fn written(&self) -> Option<(WriteOperation, u64, Option<WriteOutcome>)> {
        match *self {
            Self::Read(_) => None,
            Self::Write { operation, number, outcome } => Some((operation, number, outcome)),
            Self::Conditional(Conditional { operation, number, outcome, .. }) => {
                Some((operation, number, outcome))
            }
        }
    }
}

impl Conditional {
    /// The number of the value that it stores, or the counter; `None` if nobody knows.
    #[must_use]
    pub fn stored(&self) -> Option<u64> {
        if self.operation != WriteOperation::FetchAdd {
            return Some(self.number);
        }
        match self.outcome? {
            WriteOutcome::Inserted(_) => Some(self.argument),
            _ => self.old.map(|old| old.wrapping_add(self.argument)),
        }
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: Identity,
    /// The server's life that executed it: what one holds, another knows nothing of.
    pub life: u64,
    /// Who asked.
    pub process: usize,
    /// When it was asked.
    pub begin: u64,
    /// When the answer came. Of a write without one: when its caller stopped waiting, if it replaces no write
    /// that begins later; otherwise [`NEVER`].
    pub end: u64,
    /// What.
    pub action: Action,
}

/// The entries of one run. Clones are the same journal.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    shared: Arc<Mutex<Pages>>,
    /// Whose events and time each moment is noted with, for a trace.
    clock: Option<Simulation>,
}

/// By moment: the events before it, and the virtual time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Moments(Vec<(u64, u64)>);

impl Moments {
    /// Of a moment that came.
    pub(crate) fn at(&self, moment: u64) -> Option<(u64, u64)> {
        let index = usize::try_from(moment).ok()?.checked_sub(1)?;
        self.0.get(index).copied()
    }
}

#[derive(Debug, Default)]
struct Pages {
    moment: u64,
    moments: Moments,
    /// By the number of a write, less one: its key.
    written: Vec<Identity>,
    entries: Vec<Entry>,
    coverage: Coverage,
    complaints: Vec<String>,
}

impl Journal {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for so many entries.
    pub(crate) fn expect_entries(&self, entries: usize) {
        self.pages().entries.reserve(entries);
    }

    /// A journal that notes when its moments were.
    pub(crate) fn timed(clock: Simulation) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    /// When the moments were, if that was noted.
    pub(crate) fn take_moments(&self) -> Moments {
        std::mem::take(&mut self.pages().moments)
    }

    /// The next moment.
    #[must_use]
    pub fn moment(&self) -> u64 {
        let mut pages = self.pages();
        if let Some(clock) = &self.clock {
            pages.moments.0.push((clock.events(), clock.now().0));
        }
        pages.moment += 1;
        pages.moment
    }

    /// The number of a new write of `key`.
    #[must_use]
    pub fn write_number(&self, key: Identity) -> u64 {
        let mut pages = self.pages();
        pages.written.push(key);
        pages.written.len() as u64
    }

    /// Writes so far.
    pub(crate) fn writes(&self) -> u64 {
        self.pages().written.len() as u64
    }

    /// The numbers of all writes of `key` so far.
    pub(crate) fn writes_of(&self, key: Identity) -> Vec<u64> {
        let pages = self.pages();
        let numbered = (1..).zip(&pages.written);
        numbered.filter_map(|(number, written)| (*written == key).then_some(number)).collect()
    }

    /// Notes an entry.
    pub fn note(&self, entry: Entry) {
        self.pages().entries.push(entry);
    }

    /// Counts something that a class of faults asks for.
    pub fn mark(&self, mark: Mark, times: u64) {
        self.pages().coverage.count(mark, times);
    }

    /// What was counted.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.pages().coverage
    }

    /// Notes something that must not happen, whatever the order of events.
    pub fn complain(&self, text: String) {
        self.pages().complaints.push(text);
    }

    /// The first complaint, if there is any.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.pages().complaints.first().cloned()
    }

    /// Takes the entries, by key, life and begin. `keys` are those that most entries are of, ascending.
    #[must_use]
    pub fn take_entries(&self, keys: &[Identity]) -> Vec<Entry> {
        let entries = std::mem::take(&mut self.pages().entries);
        // Each key's in the order of their ends, which is nearly that of their begins.
        let place = |entry: &Entry| keys.partition_point(|key| *key < entry.key);
        let places: Vec<usize> = entries.iter().map(place).collect();
        let mut next = vec![0; keys.len() + 2];
        for place in &places {
            next[place + 1] += 1;
        }
        for place in 1..next.len() {
            next[place] += next[place - 1];
        }
        let mut order = vec![0; entries.len()];
        for (index, place) in places.into_iter().enumerate() {
            order[next[place]] = index;
            next[place] += 1;
        }
        let mut sorted: Vec<Entry> = order.into_iter().map(|index| entries[index]).collect();
        let mut rest = &mut sorted[..];
        for end in next.iter().scan(0, |before, end| Some(*end - std::mem::replace(before, *end))) {
            let (own, behind) = rest.split_at_mut(end);
            own.sort_by_key(|entry| (entry.key, entry.life, entry.begin));
            rest = behind;
        }
        sorted
    }
}
