//! Operations on a session of whatever fabric, every answer checked: batches kind by kind, and one that comes
//! alone by the session's own way for one.

use std::sync::Arc;

use farsight::{Answers, WriteError, WriteOperation, WriteOutcome};
use farsight_oracles::{Embedding as _, Identity};

use super::checked_value::{self, CheckedValue};
use super::store::{KeyOf, Store};
use super::{DriverError, Values};
use crate::workload::{KeySpace, Operation, Workload};

/// Wrong answers so far, with the evidence of the first.
#[derive(Default)]
pub(crate) struct WrongAnswers {
    pub(crate) count: u64,
    pub(crate) first: String,
}

/// Executes batches.
pub(crate) struct Executor<S: Store> {
    session: S,
    space: Arc<KeySpace>,
    reads: Vec<KeyOf<S>>,
    scans: Vec<(KeyOf<S>, usize)>,
    /// Keys of read-modify-writes.
    modifies: Vec<KeyOf<S>>,
    inserts: Writes<S>,
    updates: Writes<S>,
    answers: Answers,
    /// The value of a read that comes alone.
    value: Vec<u8>,
    pairs: S::Pairs,
    outcomes: Vec<WriteOutcome>,
    /// Writes so far: what tells the values of a key apart.
    counter: u32,
    wrong: WrongAnswers,
}

/// Writes of one kind in a batch. Their buffers stay, for values are long and batches many.
struct Writes<S: Store> {
    table: String,
    operation: WriteOperation,
    pairs: Vec<(KeyOf<S>, CheckedValue)>,
    count: usize,
    empty: CheckedValue,
}

impl<S: Store> Writes<S> {
    fn new(table: &str, operation: WriteOperation, values: Values) -> Self {
        let empty = CheckedValue::new(values);
        Self { table: table.to_owned(), operation, pairs: Vec::new(), count: 0, empty }
    }

    #[inline]
    fn push(&mut self, identity: Identity, counter: u32) {
        let key = S::EMBEDDING.key(identity);
        if self.count == self.pairs.len() {
            self.pairs.push((key, self.empty.clone()));
        }
        let (pair_key, value) = &mut self.pairs[self.count];
        *pair_key = key;
        value.set(identity, counter);
        self.count += 1;
    }

    fn pairs(&self) -> &[(KeyOf<S>, CheckedValue)] {
        &self.pairs[..self.count]
    }

    /// Inserts must find their keys absent, updates present.
    fn check(&self, outcomes: &[WriteOutcome], wrong: &mut WrongAnswers) -> Result<(), DriverError> {
        let operation = self.operation;
        if outcomes.len() != self.count {
            wrong.note(format!("{} outcomes of {} writes ({operation:?})", outcomes.len(), self.count));
        }
        for ((key, _), outcome) in self.pairs().iter().zip(outcomes) {
            match (operation, *outcome) {
                (WriteOperation::Insert, WriteOutcome::Inserted(_))
                | (WriteOperation::Update, WriteOutcome::Replaced(_)) => {}
                (_, WriteOutcome::Failed(code)) => {
                    return Err(WriteError::Refused { table: self.table.clone(), operation, code }.into());
                }
                (_, other) => {
                    let key = identity_of::<S>(*key);
                    wrong.note(format!("{operation:?} of key {key} gave {other:?}"));
                }
            }
        }
        Ok(())
    }
}

impl<S: Store> Executor<S> {
    /// An executor on a session of a table of this name.
    pub(crate) fn new(session: S, table: &str, values: Values, space: Arc<KeySpace>) -> Self {
        let writes = |operation| Writes::new(table, operation, values);
        Self {
            session,
            space,
            reads: Vec::new(),
            scans: Vec::new(),
            modifies: Vec::new(),
            inserts: writes(WriteOperation::Insert),
            updates: writes(WriteOperation::Update),
            answers: Answers::default(),
            value: vec![0; values.most_bytes()],
            pairs: S::Pairs::default(),
            outcomes: Vec::new(),
            counter: 0,
            wrong: WrongAnswers::default(),
        }
    }

    /// The session.
    pub(crate) fn session(&self) -> &S {
        &self.session
    }

    /// Wrong answers so far.
    pub(crate) fn wrong_answers(&self) -> &WrongAnswers {
        &self.wrong
    }

    /// The same, to be taken.
    pub(crate) fn wrong_answers_mut(&mut self) -> &mut WrongAnswers {
        &mut self.wrong
    }

    /// Executes a batch, kind after kind, or an operation that comes alone, and checks every answer.
    #[inline]
    pub(crate) fn execute(&mut self, batch: &[Operation]) -> Result<(), DriverError> {
        if let [operation] = batch {
            return self.execute_alone(*operation);
        }
        self.split(batch);
        // First, for reads of the batch may name its inserts.
        if self.inserts.count > 0 {
            self.session.write(WriteOperation::Insert, self.inserts.pairs(), &mut self.outcomes)?;
            self.inserts.check(&self.outcomes, &mut self.wrong)?;
        }
        if !self.reads.is_empty() {
            self.session.multi_get(&self.reads, &mut self.answers)?;
            for (index, &key) in self.reads.iter().enumerate() {
                check_read(identity_of::<S>(key), self.answers.get(index), &mut self.wrong);
            }
        }
        if !self.scans.is_empty() {
            self.scan()?;
        }
        if !self.modifies.is_empty() {
            self.session.multi_get(&self.modifies, &mut self.answers)?;
            for (index, &key) in self.modifies.iter().enumerate() {
                let key = identity_of::<S>(key);
                let counter = check_read(key, self.answers.get(index), &mut self.wrong);
                self.updates.push(key, counter.unwrap_or(0).wrapping_add(1));
            }
        }
        if self.updates.count > 0 {
            self.session.write(WriteOperation::Update, self.updates.pairs(), &mut self.outcomes)?;
            self.updates.check(&self.outcomes, &mut self.wrong)?;
        }
        Ok(())
    }

    /// Executes one operation as a caller does who has no other to go with it.
    fn execute_alone(&mut self, operation: Operation) -> Result<(), DriverError> {
        match operation {
            Operation::Read { key } => self.get(key).map(drop),
            Operation::ReadModifyWrite { key } => {
                let counter = self.get(key)?;
                self.write_one(WriteOperation::Update, key, counter.unwrap_or(0).wrapping_add(1))
            }
            Operation::Insert { key } => self.write_one(WriteOperation::Insert, key, 0),
            Operation::Update { key } => {
                self.counter = self.counter.wrapping_add(1);
                self.write_one(WriteOperation::Update, key, self.counter)
            }
            // A session has no other way to scan so many pairs and no more.
            Operation::Scan { key, length } => {
                self.scans.clear();
                self.scans.push((S::EMBEDDING.key(key), usize::from(length)));
                self.scan()
            }
        }
    }

    /// Reads one stored key; the counter of its value.
    #[inline]
    fn get(&mut self, key: Identity) -> Result<Option<u32>, DriverError> {
        let version = self.session.get(S::EMBEDDING.key(key), &mut self.value)?;
        Ok(check_read(key, version.map(|version| (&*self.value, version)), &mut self.wrong))
    }

    fn write_one(
        &mut self,
        operation: WriteOperation,
        key: Identity,
        counter: u32,
    ) -> Result<(), DriverError> {
        let writes = if operation == WriteOperation::Insert { &mut self.inserts } else { &mut self.updates };
        writes.count = 0;
        writes.push(key, counter);
        let outcome = self.session.write_one(operation, writes.pairs[0].0, &writes.pairs[0].1)?;
        writes.check(&[outcome], &mut self.wrong)
    }

    fn scan(&mut self) -> Result<(), DriverError> {
        self.session.scan_batch(&self.scans, &mut self.pairs)?;
        self.check_scans();
        Ok(())
    }

    #[inline]
    fn split(&mut self, batch: &[Operation]) {
        self.reads.clear();
        self.scans.clear();
        self.modifies.clear();
        self.inserts.count = 0;
        self.updates.count = 0;
        for &operation in batch {
            match operation {
                Operation::Read { key } => self.reads.push(S::EMBEDDING.key(key)),
                Operation::Scan { key, length } => {
                    self.scans.push((S::EMBEDDING.key(key), usize::from(length)));
                }
                Operation::ReadModifyWrite { key } => self.modifies.push(S::EMBEDDING.key(key)),
                Operation::Insert { key } => self.inserts.push(key, 0),
                Operation::Update { key } => {
                    self.counter = self.counter.wrapping_add(1);
                    self.updates.push(key, self.counter);
                }
            }
        }
    }

    /// A scan begins with its key, which is stored, ascends, and ends early only at the end of the table.
    fn check_scans(&mut self) {
        for (index, &(from, length)) in self.scans.iter().enumerate() {
            let from = identity_of::<S>(from);
            let (mut count, mut previous) = (0, None);
            for (key, value) in S::found(&self.pairs, index) {
                let Some(key) = S::EMBEDDING.identity(&key) else {
                    self.wrong.note(format!("a scan from {from} found nobody's key after {previous:?}"));
                    continue;
                };
                let is_in_order = previous.map_or(key == from, |previous| previous < key);
                if !is_in_order || checked_value::counter(key, value).is_none() {
                    self.wrong.note(format!("a scan from {from} found {key}: {value:?} after {previous:?}"));
                }
                previous = Some(key);
                count += 1;
            }
            if count != length {
                let loaded = self.space.loaded();
                let least = (loaded.len() - loaded.partition_point(|&key| key < from)).min(length);
                if count < least || count > length {
                    self.wrong
                        .note(format!("a scan of {length} from {from} found {count}, not at least {least}"));
                }
            }
        }
    }
}

/// Whose key this is, which an operation named.
#[inline]
fn identity_of<S: Store>(key: KeyOf<S>) -> Identity {
    S::EMBEDDING.identity(&key).expect("an operation's key is an identity's")
}

/// Checks what a read of a stored key found; returns the value's counter.
#[inline]
pub(super) fn check_read(
    key: Identity,
    answer: Option<(&[u8], u64)>,
    wrong: &mut WrongAnswers,
) -> Option<u32> {
    let counter = answer.and_then(|(value, _)| checked_value::counter(key, value));
    if counter.is_none() {
        wrong.note_read(key, answer);
    }
    counter
}

impl WrongAnswers {
    /// An error if an answer was wrong.
    pub(super) fn into_result(self, workload: &'static str, operations: u64) -> Result<(), DriverError> {
        let Self { count, first } = self;
        if count == 0 {
            Ok(())
        } else {
            Err(DriverError::WrongAnswers { workload, count, operations, first })
        }
    }

    #[cold]
    pub(super) fn note(&mut self, evidence: String) {
        if self.count == 0 {
            self.first = evidence;
        }
        self.count += 1;
    }

    #[cold]
    fn note_read(&mut self, key: Identity, answer: Option<(&[u8], u64)>) {
        self.note(match answer {
            None => format!("key {key} is stored but was not found"),
            Some((value, version)) => {
                format!("key {key} has a value that is not its own: {value:02x?}, version {version}")
            }
        });
    }
}

/// An error if any thread got a wrong answer.
pub(crate) fn check_answers<'a>(
    threads: impl Iterator<Item = &'a WrongAnswers>,
    workload: Workload,
    operations: u64,
) -> Result<(), DriverError> {
    let mut wrong = threads.filter(|wrong| wrong.count > 0).peekable();
    let Some(first) = wrong.peek().map(|wrong| wrong.first.clone()) else { return Ok(()) };
    let (workload, count) = (workload.name(), wrong.map(|wrong| wrong.count).sum());
    Err(DriverError::WrongAnswers { workload, count, operations, first })
}

#[cfg(test)]
mod tests {
    use farsight::Session;

    use super::*;

    #[test]
    fn a_wrong_read_is_noted_with_its_evidence() {
        let mut wrong = WrongAnswers::default();
        let mut value = [0; 8];
        checked_value::write(Identity(5), 9, &mut value);
        assert_eq!(check_read(Identity(5), Some((&value, 1)), &mut wrong), Some(9));
        assert_eq!(wrong.count, 0);
        assert_eq!(check_read(Identity(6), Some((&value, 1)), &mut wrong), None);
        assert_eq!(check_read(Identity(7), None, &mut wrong), None);
        assert_eq!(wrong.count, 2);
        assert!(wrong.first.starts_with("key 6 has a value that is not its own"), "{}", wrong.first);
    }

    #[test]
    fn a_wrong_write_is_noted_and_a_refused_one_an_error() {
        let mut wrong = WrongAnswers::default();
        let mut writes = Writes::<Session<u64>>::new("t", WriteOperation::Insert, Values::fixed(8));
        writes.push(Identity(1), 0);
        writes.push(Identity(2), 0);
        let mut check = |outcomes: &[WriteOutcome]| {
            let done = writes.check(outcomes, &mut wrong);
            (done.err().map(|error| error.to_string()), wrong.count)
        };
        assert_eq!(check(&[WriteOutcome::Inserted(1), WriteOutcome::Inserted(1)]), (None, 0));
        assert_eq!(check(&[WriteOutcome::Inserted(1), WriteOutcome::Exists(4)]), (None, 1));
        assert_eq!(check(&[WriteOutcome::Inserted(1), WriteOutcome::Replaced(4)]), (None, 2));
        assert_eq!(check(&[WriteOutcome::Inserted(1)]), (None, 3));
        let full = WriteOutcome::Failed(farsight::ErrorCode::RegionFull);
        let (error, _) = check(&[WriteOutcome::Inserted(1), full]);
        let error = error.expect("refused");
        assert!(error.starts_with("table \"t\" did not take the Insert: "), "{error}");
    }
}
