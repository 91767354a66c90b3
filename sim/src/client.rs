//! One client process of a scenario: random operations through the product's own session, each noted.

mod conditional;
mod enumerate;
mod lengths;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_client::{Access, Direction, OpenError, Origin, ReadError, Table, ValueCache, WriteError};
use farsight_fabric::FabricError;
use farsight_fabric_sim::{FlippedRead, Simulation};
use farsight_index::{Answers, Counters, OldValues, ReadsByOthers};
use farsight_layout::FORMAT_VERSION;
use farsight_oracles::{Identity, values};
use farsight_protocol::{ErrorCode, WriteOperation, WriteOutcome};

use crate::allowed::{Allowed, Meaning};
use crate::classes::Mark;
use crate::cluster::Cluster;
use crate::hidden_tear::is_hidden_tear;
use crate::journal::{Action, Conditional, Entry, Journal, NEVER, Seen};
use crate::program::{LOOK_AGAIN, LOOK_AGAIN_MAX, Opened, Programs};
use crate::store::{Found, Scan, Store, TableKeys};

/// Keys of one batch at most.
const BATCH_MAX: u64 = 8;
/// Pairs of one scan at most.
const SCAN_MAX: u64 = 30;
/// Of the reads, one in so many is a scan.
const SCANS_ONE_IN: u64 = 8;
/// Times that a process tries to open the table without doing anything with it in between.
const OPENINGS_MAX: usize = 2_000;
/// The longest pause between the first two of them. It doubles, so that all of them together take longer than
/// a lease, a stop, or the time in which servers die.
const OPENINGS_PAUSE_NS_MAX: u64 = 50_000;
/// Doublings of that pause at most.
const OPENINGS_DOUBLINGS_MAX: usize = 6;
/// Where budgets change, one of so many operations is a change, and one of so many changes lifts the budget.
const BUDGET_CHANGES_ONE_IN: u64 = 100;
const BUDGET_LIFTED_ONE_IN: u64 = 6;
/// The longest pause between two operations.
const PAUSE_NS_MAX: u64 = 20_000;
/// The longest rest: compute nodes that serve come and go meanwhile.
const REST_NS_MAX: u64 = 700_000_000;

/// What a client process is to do.
pub(crate) struct Plan<C: Cluster> {
    pub(crate) cluster: PhantomData<C>,
    pub(crate) simulation: Simulation,
    pub(crate) journal: Journal,
    pub(crate) programs: Arc<Programs>,
    /// The program that it belongs to.
    pub(crate) group: usize,
    pub(crate) addresses: &'static [&'static str],
    pub(crate) table: &'static str,
    pub(crate) keys: Arc<Vec<Identity>>,
    pub(crate) table_keys: TableKeys,
    /// Keys that half of the operations go to.
    pub(crate) hot_keys: usize,
    /// Writes of a hundred operations.
    pub(crate) writes_percent: u64,
    /// Of a hundred writes, those that look at the key first.
    pub(crate) conditional_percent: u64,
    /// Where what is written comes in waves: of so many writes, in every second one of which most are
    /// removals.
    pub(crate) wave_writes: Option<u64>,
    /// One operation in so many is behind a rest.
    pub(crate) rests_one_in: Option<u64>,
    /// Of the reads, one in so many is a walk over all pairs.
    pub(crate) walks_one_in: Option<u64>,
    /// The ways that scans go.
    pub(crate) scan_ways: &'static [Direction],
    /// What caches may take changes, up to so many bytes.
    pub(crate) budget_bytes_max: Option<u64>,
    /// What compute nodes that serve do for GETs of programs.
    pub(crate) reads_by_others: ReadsByOthers,
    /// What programs keep of the table's values.
    pub(crate) value_cache: Option<ValueCache>,
    pub(crate) access: Access,
    pub(crate) allowed: Allowed,
    /// True where the region may be too small for what is written.
    pub(crate) may_be_full: bool,
    /// Lengths of values, where they have any.
    pub(crate) block_lengths: Option<&'static [usize]>,
    /// Of the operations, one in so many is a process's last in its program: the rest is a newcomer's.
    pub(crate) leaves_one_in: Option<u64>,
    pub(crate) unanswered: Unanswered,
    /// True where the table's versions may end.
    pub(crate) versions_end: bool,
    /// Operations, counted by key.
    pub(crate) operations: usize,
    pub(crate) process: usize,
    pub(crate) seed: u64,
}

/// What a caller that stops waiting for a write's answer knows of the write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing: it may take effect at any time.
    MayReplaceAnything,
    /// It replaces nothing that is written later: where compute nodes write for others.
    ReplacesNothingLater,
}

/// Why a session ends.
pub(crate) enum End {
    /// The connection is lost.
    Lost,
    /// This program was taken for dead: it has to open the table anew.
    Fenced,
    /// Something that must not happen; it has been complained of.
    Wrong,
}

/// Why a process stops working with a session.
enum Stop {
    /// Nothing is left to do, or something is wrong.
    Done,
    /// The program was killed, or the process leaves it: the rest is another's.
    Gone,
    Fenced,
}

/// A read that was answered: its moments, and those of its READs that brought a flipped bit.
struct Asked {
    begin: u64,
    end: u64,
    flipped: Vec<FlippedRead>,
}

/// A client process at work.
pub(crate) struct Client<C: Cluster> {
    plan: Arc<Plan<C>>,
    random: SplitMix64,
    store: Store,
    table: Table,
    /// Which opening of the program's table this is.
    opening: u64,
    answers: Answers,
    outcomes: Vec<WriteOutcome>,
    old_values: OldValues,
    /// What was last read of keys, where writes look at it.
    seen: RefCell<HashMap<Identity, Seen>>,
    /// Kept for their room.
    keys: Vec<Identity>,
    numbers: Vec<u64>,
    values: Vec<u8>,
}

/// Runs `plan` to its end. Returns the operations that are left to the program's successor: it was killed, or
/// left.
pub(crate) fn run<C: Cluster>(plan: &Arc<Plan<C>>) -> usize {
    let mut random = SplitMix64::new(plan.seed);
    let mut left = plan.operations;
    plan.try_another_format();
    let mut openings = 0;
    while openings < OPENINGS_MAX {
        openings += 1;
        if plan.simulation.is_killed() {
            return left;
        }
        match Client::<C>::open(plan, random.next_u64()) {
            Ok(mut client) => {
                let epoch = client.store.session.epoch();
                let before = left;
                let stop = client.work(&mut left);
                if left < before {
                    openings = 0;
                }
                plan.journal.mark(Mark::OtherEpoch, u64::from(client.store.session.epoch() != epoch));
                let Counters { sibling_steps, fallbacks, value_hits, closings, recalls, .. } =
                    client.counters();
                plan.journal.mark(Mark::StaleModel, sibling_steps + fallbacks);
                plan.journal.mark(Mark::ValueHit, value_hits);
                plan.journal.mark(Mark::Closing, closings);
                plan.journal.mark(Mark::Recall, recalls);
                match stop {
                    Stop::Done => return 0,
                    Stop::Gone => {
                        plan.programs.leave(plan.group);
                        return left;
                    }
                    Stop::Fenced => plan.programs.get(plan.group).close(client.opening),
                }
            }
            Err(End::Wrong) => return 0,
            Err(End::Lost | End::Fenced) => {
                let pause_ns_max = OPENINGS_PAUSE_NS_MAX << openings.min(OPENINGS_DOUBLINGS_MAX);
                plan.simulation.sleep(Duration::from_nanos(1_000 + random.below(pause_ns_max)));
            }
        }
    }
    plan.journal.complain(format!("process {}: {OPENINGS_MAX} connections broke", plan.process));
    0
}

impl<C: Cluster> Plan<C> {
    /// The same plan.
    pub(crate) fn again(&self) -> Self {
        let Self { simulation, journal, programs, group, addresses, table, keys, .. } = self;
        Self {
            simulation: simulation.clone(),
            journal: journal.clone(),
            programs: Arc::clone(programs),
            keys: Arc::clone(keys),
            group: *group,
            addresses,
            table,
            ..*self
        }
    }

    /// What a failure means: it is complained of unless the faults at work explain it.
    pub(crate) fn end(&self, what: &str, error: &dyn fmt::Debug, meaning: Meaning) -> End {
        match meaning {
            Meaning::Explained => End::Lost,
            Meaning::Fenced => {
                self.journal.mark(Mark::Fenced, 1);
                End::Fenced
            }
            Meaning::Wrong => {
                self.journal.complain(format!("{what} failed: {error:?}"));
                End::Wrong
            }
        }
    }

    /// Complains of a failure that nothing explains, where nobody gives up for it.
    pub(crate) fn complain_of(&self, what: &str, error: &dyn fmt::Debug, meaning: Meaning) {
        let _end = self.end(what, error, meaning);
    }

    /// A client of the next format is refused, whatever else happens.
    fn try_another_format(&self) {
        match self.simulation.connect::<C::Kind>(self.addresses[0], FORMAT_VERSION + 1) {
            Ok(_) => self.journal.complain("a client of another format is let in".to_owned()),
            Err(FabricError::Refused { .. }) => self.journal.mark(Mark::OtherFormat, 1),
            Err(error) => self.complain_of("connecting", &error, self.allowed.fabric(&error)),
        }
    }

    fn end_of_read(&self, error: &ReadError) -> End {
        if let ReadError::Reopen { source, .. } = error {
            self.mark_gone(source);
        }
        self.end("a read", error, self.allowed.read(error))
    }

    fn mark_gone(&self, error: &OpenError) {
        let is_gone = matches!(error, OpenError::TableGone { was, is, .. } if was == is);
        self.journal.mark(Mark::TableGone, u64::from(is_gone));
    }

    fn open_table(&self) -> Result<Table, End> {
        let client = C::connect(&self.simulation, self.addresses);
        let client =
            client.map_err(|error| self.end("connecting", &error, self.allowed.catalogue(&error)))?;
        let opened = client.open_table(self.table);
        let table =
            opened.map_err(|error| self.end("opening the table", &error, self.allowed.catalogue(&error)))?;
        let helped = table.set_reads_by_others(self.reads_by_others);
        helped.map_err(|error| self.end("help with GETs", &error, self.allowed.opening(&error)))?;
        if let Some(cache) = self.value_cache {
            self.keep_values(&table, cache)?;
        }
        Ok(table)
    }
}

impl<C: Cluster> Client<C> {
    /// A session on the program's table, which is opened if no other process has done so.
    pub(crate) fn open(plan: &Arc<Plan<C>>, seed: u64) -> Result<Self, End> {
        let program = plan.programs.get(plan.group);
        let mut pause = LOOK_AGAIN;
        let (table, opening) = loop {
            match program.table() {
                Opened::Open(table, opening) => break (table, opening),
                Opened::ByAnother if plan.simulation.is_killed() => return Err(End::Lost),
                Opened::ByAnother => {
                    plan.simulation.sleep(pause);
                    pause = LOOK_AGAIN_MAX.min(2 * pause);
                }
                Opened::Nothing => {
                    let opened = plan.open_table();
                    let opening = program.set_table(opened.as_ref().ok().cloned());
                    break (opened?, opening);
                }
            }
        };
        let session = table.session(plan.access).map_err(|error| {
            let end = plan.end("a session", &error, plan.allowed.opening(&error));
            if matches!(end, End::Fenced) {
                program.close(opening);
            }
            end
        })?;
        Ok(Self {
            plan: Arc::clone(plan),
            random: SplitMix64::new(seed),
            store: Store::new(session, plan.table_keys),
            table,
            opening,
            answers: Answers::default(),
            outcomes: Vec::new(),
            old_values: OldValues::default(),
            seen: RefCell::default(),
            keys: Vec::new(),
            numbers: Vec::new(),
            values: Vec::new(),
        })
    }

    /// Works until the end, or until something is wrong.
    fn work(&mut self, left: &mut usize) -> Stop {
        while *left > 0 {
            if self.plan.simulation.is_killed() {
                return Stop::Gone;
            }
            if self.plan.rests_one_in.is_some_and(|one_in| self.random.below(one_in) == 0) {
                let rest = Duration::from_nanos(self.random.below(REST_NS_MAX));
                self.plan.simulation.sleep(rest);
            }
            let batch = 1 + self.random.below(BATCH_MAX) as usize;
            let count = if self.random.below(2) == 0 { 1 } else { batch.min(*left) };
            *left -= count;
            let budget_bytes_max = self.plan.budget_bytes_max;
            let budget = budget_bytes_max.filter(|_| self.random.below(BUDGET_CHANGES_ONE_IN) == 0);
            let done = if let Some(bytes_max) = budget {
                self.change_budget(bytes_max)
            } else if self.random.below(100) < self.plan.writes_percent {
                self.write(count)
            } else if self.random.below(SCANS_ONE_IN) == 0 && !self.plan.scan_ways.is_empty() {
                self.scan(count)
            } else if self.plan.walks_one_in.is_some_and(|one_in| self.random.below(one_in) == 0) {
                self.enumerate()
            } else {
                self.read(count)
            };
            match done {
                Err(End::Wrong) => return Stop::Done,
                Err(End::Fenced) => return Stop::Fenced,
                // The session connects again by itself.
                Err(End::Lost) => self.pause(),
                Ok(()) if self.random.below(4) == 0 => self.pause(),
                Ok(()) => {}
            }
            // Behind an operation, so that newcomers come to an end.
            let leaves = self.plan.leaves_one_in.is_some_and(|one_in| self.random.below(one_in) == 0);
            if leaves && *left > 0 {
                return Stop::Gone;
            }
        }
        Stop::Done
    }

    /// Makes some other number what the program's cache may take: enough for all, for some, or for nothing
    /// but the top model.
    fn change_budget(&mut self, bytes_max: u64) -> Result<(), End> {
        let some = self.random.below(bytes_max);
        let bytes = if self.random.below(BUDGET_LIFTED_ONE_IN) == 0 { u64::MAX } else { some };
        let plan = &self.plan;
        let changed = self.table.set_cache_bytes(bytes);
        changed.map(drop).map_err(|error| plan.end("a budget", &error, plan.allowed.opening(&error)))
    }

    fn pause(&mut self) {
        let pause = Duration::from_nanos(self.random.below(PAUSE_NS_MAX));
        self.plan.simulation.sleep(pause);
    }

    fn key(&mut self) -> Identity {
        let keys = &self.plan.keys;
        let among = if self.random.below(2) == 0 { self.plan.hot_keys } else { keys.len() };
        keys[self.random.below(among as u64) as usize]
    }

    /// What of an entry is one history: the table, and if it ends with its server, that one's life.
    fn life(&self) -> u64 {
        let Origin { epoch, table } = self.store.session.origin();
        let epoch = if self.plan.allowed.keeps_tables() { 0 } else { epoch.0 };
        epoch ^ u64::from(table.0) << 32
    }

    fn note(&self, key: Identity, begin: u64, end: u64, action: Action) {
        self.plan.journal.note(Entry {
            key,
            life: self.life(),
            process: self.plan.process,
            begin,
            end,
            action,
        });
    }

    /// Notes an answer, with the write that a value comes from. A value of no write is complained of, and a
    /// hidden tear counted: it says nothing about the key.
    fn note_read(&self, key: Identity, asked: &Asked, answer: Option<(&[u8], u64)>) {
        let journal = &self.plan.journal;
        let seen = match answer {
            None => None,
            Some((value, version)) => match values::first_word(value) {
                Some(number) if value.len() == self.value_bytes(key, number) => {
                    Some(Seen { number, version })
                }
                Some(number) => {
                    let got = value.len();
                    return journal.complain(format!("key {key}: {got} B of the value of write {number}"));
                }
                None if is_hidden_tear(value, version, &asked.flipped, &journal.writes_of(key)) => {
                    return journal.mark(Mark::HiddenTear, 1);
                }
                None => {
                    return journal.complain(format!(
                        "key {key}: version {version} has a value that nobody wrote: {value:02x?}"
                    ));
                }
            },
        };
        if self.plan.conditional_percent > 0 {
            let mut known = self.seen.borrow_mut();
            match seen {
                Some(seen) => drop(known.insert(key, seen)),
                None => drop(known.remove(&key)),
            }
        }
        self.note(key, asked.begin, asked.end, Action::Read(seen));
    }

    /// Reads, by `read`.
    fn ask(&mut self, read: impl FnOnce(&mut Self) -> Result<(), ReadError>) -> Result<Asked, End> {
        let plan = Arc::clone(&self.plan);
        // Those of operations before this one.
        drop(plan.simulation.take_flipped());
        let begin = plan.journal.moment();
        read(self).map_err(|error| plan.end_of_read(&error))?;
        Ok(Asked { begin, end: plan.journal.moment(), flipped: plan.simulation.take_flipped() })
    }

    fn read(&mut self, count: usize) -> Result<(), End> {
        self.with_keys(count, Self::read_keys)
    }

    /// Does something to some keys.
    fn with_keys<T>(&mut self, count: usize, act: impl FnOnce(&mut Self, &[Identity]) -> T) -> T {
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend((0..count).map(|_| self.key()));
        let done = act(self, &keys);
        self.keys = keys;
        done
    }

    /// Reads keys, one by GET, several by a batch.
    pub(crate) fn read_keys(&mut self, keys: &[Identity]) -> Result<(), End> {
        let before = self.store.session.meters().reads;
        let done = self.read_and_note(keys);
        let reads = self.store.session.meters().reads - before;
        let most = self.reads_max(keys.len());
        if reads > most {
            let text = format!("{reads} READs for {} keys, where {most} are the bound", keys.len());
            self.plan.journal.complain(text);
        }
        done
    }

    fn read_and_note(&mut self, keys: &[Identity]) -> Result<(), End> {
        if let [key] = *keys {
            let mut version = None;
            let asked = self.ask(|own| {
                version = own.store.get(key, &mut own.values)?;
                Ok(())
            })?;
            self.note_read(key, &asked, version.map(|version| (&self.values[..], version)));
            return Ok(());
        }
        let asked = self.ask(|own| own.store.multi_get(keys, &mut own.answers))?;
        for (key, answer) in keys.iter().zip(self.answers.iter()) {
            self.note_read(*key, &asked, answer);
        }
        Ok(())
    }

    fn scan(&mut self, count: usize) -> Result<(), End> {
        let direction = match self.plan.scan_ways {
            [only] => *only,
            ways => ways[self.random.below(ways.len() as u64) as usize],
        };
        let scans: Vec<Scan> = (0..count.min(3))
            .map(|_| {
                let from = self.key().before(self.random.below(3));
                Scan { direction, from, limit: self.random.below(SCAN_MAX) as usize }
            })
            .collect();
        self.scan_from(&scans).map(drop)
    }

    /// Fetches the whole model into the program's cache.
    pub(crate) fn prefill(&mut self) -> Result<(), End> {
        self.store.session.prefill().map_err(|error| self.plan.end_of_read(&error))
    }

    /// What the session counted.
    pub(crate) fn counters(&self) -> Counters {
        self.store.session.counters()
    }

    /// Scans; every key that a scan passes is read by it, found or not. Returns the pairs found.
    pub(crate) fn scan_from(&mut self, scans: &[Scan]) -> Result<usize, End> {
        let asked = self.ask(|own| own.store.scan_batch(scans))?;
        let mut pairs = 0;
        for (index, scan) in scans.iter().enumerate() {
            let is_behind = |key: Identity, before: Identity| scan.direction.is_behind(key.0, before.0);
            let all = Arc::clone(&self.plan.keys);
            let (count, from) = (all.len(), scan.from);
            let on_the_way = (0..count).map(|place| match scan.direction {
                Direction::Ascending => &all[place],
                Direction::Descending => &all[count - 1 - place],
            });
            let mut keys = on_the_way.skip_while(|key| is_behind(from, **key));
            let mut count = 0;
            let mut previous = None;
            for Found { key, value, version } in self.store.found(index) {
                count += 1;
                let Ok(key) = key.map_err(|key| self.complain_of_stranger(scan, key)) else { continue };
                if is_behind(from, key) || previous.is_some_and(|previous| !is_behind(key, previous)) {
                    let text =
                        format!("a scan from {from}, {:?}, gave {key} after {previous:?}", scan.direction);
                    self.plan.journal.complain(text);
                }
                previous = Some(key);
                let passed = keys.by_ref().take_while(|passed| **passed != key);
                passed.for_each(|passed| self.note_read(*passed, &asked, None));
                self.note_read(key, &asked, Some((&value, version)));
            }
            pairs += count;
            if count > scan.limit {
                self.plan.journal.complain(format!("a scan of {} gave {count} pairs", scan.limit));
            }
            if count < scan.limit {
                keys.for_each(|key| self.note_read(*key, &asked, None));
            }
        }
        Ok(pairs)
    }

    fn complain_of_stranger(&self, scan: &Scan, key: u64) {
        let text = format!("a scan from {} gave the key {key:#x}, which is nobody's", scan.from);
        self.plan.journal.complain(text);
    }

    fn write(&mut self, count: usize) -> Result<(), End> {
        let conditional_percent = self.plan.conditional_percent;
        if conditional_percent > 0 && self.random.below(100) < conditional_percent {
            return self.write_if(count);
        }
        let written = self.plan.journal.writes();
        let is_ebb = self.plan.wave_writes.is_some_and(|wave| written / wave % 2 == 1);
        let operation = match self.random.below(10) {
            1.. if is_ebb => WriteOperation::Remove,
            0..3 => WriteOperation::Insert,
            3..5 => WriteOperation::Update,
            5..8 => WriteOperation::Put,
            _ => WriteOperation::Remove,
        };
        self.with_keys(count, |own, keys| own.write_keys(operation, keys))
    }

    /// Writes keys, each with a value of its own; counters among them are added to.
    pub(crate) fn write_keys(&mut self, operation: WriteOperation, keys: &[Identity]) -> Result<(), End> {
        if !keys.iter().any(|key| self.is_counter(*key)) {
            return self.write_some(operation, keys);
        }
        let (counters, others): (Vec<Identity>, Vec<Identity>) =
            keys.iter().partition(|key| self.is_counter(**key));
        self.write_some(WriteOperation::FetchAdd, &counters)?;
        if others.is_empty() { Ok(()) } else { self.write_some(operation, &others) }
    }

    fn write_some(&mut self, operation: WriteOperation, keys: &[Identity]) -> Result<(), End> {
        let (mut numbers, mut operands) =
            (std::mem::take(&mut self.numbers), std::mem::take(&mut self.values));
        numbers.clear();
        numbers.extend(keys.iter().map(|key| self.plan.journal.write_number(*key)));
        let arguments: Vec<u64> = if operation.is_conditional() {
            keys.iter().map(|key| self.argument(operation, *key)).collect()
        } else {
            Vec::new()
        };
        operands.clear();
        let mut ends = Vec::with_capacity(keys.len());
        for (index, (key, number)) in keys.iter().zip(&numbers).enumerate() {
            self.push_operand(operation, *key, (*number, arguments.get(index).copied()), &mut operands);
            ends.push(operands.len());
        }
        let done = self.write_and_note(operation, keys, (&numbers, &arguments), (&operands, &ends));
        (self.numbers, self.values) = (numbers, operands);
        done
    }

    fn write_and_note(
        &mut self,
        operation: WriteOperation,
        keys: &[Identity],
        (numbers, arguments): (&[u64], &[u64]),
        (operands, ends): (&[u8], &[usize]),
    ) -> Result<(), End> {
        let operand = |index: usize| {
            let begin = if index == 0 { 0 } else { ends[index - 1] };
            &operands[begin..ends[index]]
        };
        let begin = self.plan.journal.moment();
        let (mut outcomes, mut old_values) =
            (std::mem::take(&mut self.outcomes), std::mem::take(&mut self.old_values));
        outcomes.clear();
        old_values.clear();
        let entries = keys.iter().enumerate().map(|(index, key)| (*key, operand(index)));
        let done = self.store.exchange(operation, entries, &mut outcomes, &mut old_values);
        let end = self.plan.journal.moment();
        let action = |index: usize, outcome| {
            let number = numbers[index];
            let Some(argument) = arguments.get(index).copied() else {
                return Action::Write { operation, number, outcome };
            };
            let old = matches!(outcome, Some(WriteOutcome::Replaced(_))).then(|| {
                let value = old_values.get(index).unwrap_or_default();
                // A value of nobody is that of no write.
                if value.is_empty() { 0 } else { values::first_word(value).unwrap_or(u64::MAX) }
            });
            let old = old.filter(|_| operation.returns_value());
            Action::Conditional(Conditional { operation, number, argument, old, outcome })
        };
        let mut wrong = None;
        for (index, outcome) in outcomes.iter().enumerate() {
            self.note(keys[index], begin, end, action(index, Some(*outcome)));
            if let WriteOutcome::Failed(code) = *outcome {
                wrong = self.check_refusal(operation, code).err().or(wrong);
            }
        }
        let known = outcomes.len();
        let noted = match done {
            Ok(()) => wrong.map_or(Ok(()), Err),
            Err(WriteError::Refused { code, .. }) => {
                self.note(keys[0], begin, end, action(0, Some(WriteOutcome::Failed(code))));
                self.check_refusal(operation, code)
            }
            Err(WriteError::Indeterminate { source, .. }) => {
                self.plan.journal.mark(Mark::UnknownOutcome, (keys.len() - known) as u64);
                // A caller that was killed waits for nothing.
                let is_over = self.plan.unanswered == Unanswered::ReplacesNothingLater
                    && !self.plan.simulation.is_killed();
                let end = if is_over { end } else { NEVER };
                (known..keys.len()).for_each(|index| self.note(keys[index], begin, end, action(index, None)));
                // However it was lost: no answer is an answer.
                let is_fenced = self.plan.allowed.engine(&source) == Meaning::Fenced;
                let meaning = if is_fenced { Meaning::Fenced } else { Meaning::Explained };
                Err(self.plan.end("a write", &source, meaning))
            }
            // Nothing of it was executed: the journal holds nothing, and a trace of it would be found.
            Err(error) => Err(self.plan.end("a write", &error, self.plan.allowed.unsent(&error))),
        };
        (self.outcomes, self.old_values) = (outcomes, old_values);
        noted
    }

    /// A server may refuse a write here for four reasons. Its table was dropped. A write that adds a pair may
    /// lack room. A write that stores a value may lack a version. Or a leaf stayed locked as long as a clock
    /// says.
    fn check_refusal(&self, operation: WriteOperation, code: ErrorCode) -> Result<(), End> {
        // The value before was too long for an answer, and the connection was lost before it was fetched.
        let is_left = operation == WriteOperation::Swap && self.plan.block_lengths.is_some();
        if code == ErrorCode::Contended && (is_left || self.plan.allowed.contention() == Meaning::Explained) {
            return Ok(());
        }
        let needs_room = operation.may_insert() || self.plan.block_lengths.is_some();
        let mark = match code {
            ErrorCode::UnknownTable if self.plan.allowed.opening_of_dropped() => Mark::TableGone,
            // A new value of any length needs memory of its own.
            ErrorCode::OutOfResources if self.plan.allowed.keeps_tables() => Mark::DiskFull,
            ErrorCode::RegionFull if needs_room && self.plan.may_be_full => Mark::Full,
            ErrorCode::VersionsExhausted if operation.has_value() && self.plan.versions_end => {
                Mark::VersionsEnded
            }
            _ => {
                let process = self.plan.process;
                self.plan.journal.complain(format!("process {process}: {operation:?} was refused: {code:?}"));
                return Err(End::Wrong);
            }
        };
        self.plan.journal.mark(mark, 1);
        Ok(())
    }
}
