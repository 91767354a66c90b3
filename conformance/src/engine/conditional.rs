//! Conditional writes from several clients in turn, each outcome and each value before compared at once.
//!
//! The keys are few, and next to each other or at the ends of the key space. So the pairs that are looked at
//! are those that others have just written, removed, or moved in a split.

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{Embedding, Identity, sets};

use super::asking::Asking;
use super::expected::Operands;
use super::model::{Model, random_value};
use super::operations::Lengths;
use super::{EngineUnderTest, Seed, SessionUnderTest, TableUnderTest};

const STEPS: usize = 600;
/// Keys of each set that the steps go to.
const KEYS_MAX: usize = 60;
/// Bytes of an expected value and the one to be stored, together.
const COMPARED_BYTES_MAX: usize = 60_000;
/// Additions to a counter.
const ADDITIONS: usize = 300;

/// One run over one set of keys.
struct ConditionalRun<S, E> {
    random: SplitMix64,
    keys: Vec<Identity>,
    lengths: Lengths,
    operands: Operands,
    sessions: [S; 2],
    model: Model<E>,
}

impl<S: SessionUnderTest<Key = E::Key>, E: Embedding> ConditionalRun<S, E> {
    fn step(&mut self) {
        let operation = loop {
            let operation = WriteOperation::ALL[self.random.below(9) as usize];
            let may_be_integers = matches!(self.lengths, Lengths::Fixed(8) | Lengths::UpTo(_));
            if operation != WriteOperation::FetchAdd || may_be_integers {
                break operation;
            }
        };
        let count = match self.random.below(4) {
            0 => 2 + self.random.below(40),
            _ => 1,
        };
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = self.keys[self.random.below(self.keys.len() as u64) as usize];
            entries.push((key, self.operand(operation, key)));
        }
        let session = self.random.below(2) as usize;
        self.model.exchange(&mut self.sessions[session], operation, &entries);
        let key = entries[0].0;
        self.model.check_get(&mut self.sessions[1 - session], key);
    }

    /// An operand; what it expects is mostly there.
    fn operand(&mut self, operation: WriteOperation, key: Identity) -> Vec<u8> {
        let value_bytes = self.lengths.draw(&mut self.random);
        let value = random_value(&mut self.random, value_bytes);
        let held = self.model.pairs().get(&key);
        let strays = self.random.below(4) == 0;
        let stray = if strays { 1 + self.random.below(3) } else { 0 };
        let version = held.map_or(0, |(_, version)| *version).wrapping_add(stray);
        match operation {
            WriteOperation::Remove => Vec::new(),
            WriteOperation::CompareAndSet => [&version.to_le_bytes()[..], &value].concat(),
            WriteOperation::CompareAndSetValue => {
                let mut expected = held.map_or_else(|| value.clone(), |(value, _)| value.clone());
                match self.random.below(expected.len().max(1) as u64) as usize {
                    0 if self.operands == Operands::OfAnyLength && strays => expected.push(1),
                    byte if byte < expected.len() => expected[byte] ^= stray as u8,
                    _ => {}
                }
                // A message carries both. Longer pairs are compared with the beginning of theirs.
                expected.truncate(COMPARED_BYTES_MAX);
                let fitting = COMPARED_BYTES_MAX.saturating_sub(expected.len());
                self.operands.compare_value(&expected, &value[..value.len().min(fitting)])
            }
            WriteOperation::RemoveIf => version.to_le_bytes().to_vec(),
            WriteOperation::FetchAdd => {
                let small = self.random.below(7).wrapping_sub(3);
                let addend = if strays { self.random.next_u64() } else { small };
                addend.to_le_bytes().to_vec()
            }
            WriteOperation::Insert | WriteOperation::Update | WriteOperation::Put | WriteOperation::Swap => {
                value
            }
        }
    }
}

fn writes_of<E: EngineUnderTest>(engine: &E, lengths: Lengths) {
    let steps = engine.rounds(STEPS);
    let seed = Seed::new(&format!("conditional writes, values of {lengths}"));
    for (part, (name, keys)) in sets::all(&mut seed.random(u64::MAX)).iter().enumerate() {
        // The captured output of a failing test names its set.
        println!("{name}: {} keys", keys.len());
        let mut random = seed.random(part as u64);
        let first = random.below(1 + keys.len().saturating_sub(KEYS_MAX) as u64) as usize;
        let keys = keys[first..keys.len().min(first + KEYS_MAX)].to_vec();
        let table = engine.table(lengths.bytes());
        let sessions = [Access::OneSided, Access::Rpc].map(|access| table.session(access));
        let operands = engine.operands();
        let model = Model::with(engine.embedding(), operands);
        let mut run = ConditionalRun { random, keys, lengths, operands, sessions, model };
        for _ in 0..steps {
            run.step();
        }
        let [one, other] = &mut run.sessions;
        run.model.check_all(one);
        run.model.check_all(other);
    }
}

/// Conditional writes of values of this size.
pub fn conditional_writes_of_8_bytes<E: EngineUnderTest>(engine: &E) {
    writes_of(engine, Lengths::Fixed(8));
}

/// Conditional writes of values of this size.
pub fn conditional_writes_of_24_bytes<E: EngineUnderTest>(engine: &E) {
    writes_of(engine, Lengths::Fixed(24));
}

/// Conditional writes of values of this size.
pub fn conditional_writes_of_256_bytes<E: EngineUnderTest>(engine: &E) {
    writes_of(engine, Lengths::Fixed(256));
}

/// Conditional writes of values of any length. Some of them are integers; additions to others are refused.
pub fn writes_of_any_length<E: EngineUnderTest>(engine: &E) {
    writes_of(engine, Lengths::UpTo(engine.value_bytes_max()));
}

/// Counters to which clients add in turn end at their sums, and each sum before is told to one of them.
pub fn counters_end_at_their_sums<E: EngineUnderTest>(engine: &E) {
    const COUNTERS: [Identity; 3] = [Identity(1 << 40), Identity((1 << 40) + 1), Identity(77)];
    let (table, embedding) = (engine.table(8), engine.embedding());
    let mut sessions: Vec<_> = (0..3).map(|_| table.session(Access::OneSided)).collect();
    let mut told: [Vec<u64>; 3] = Default::default();
    for addition in 0..engine.rounds(ADDITIONS) {
        // One at a time, and batches that hold a counter twice.
        let batch: &[usize] = if addition % 4 == 0 { &[0, 1, 0, 2] } else { &[0] };
        let one = 1_u64.to_le_bytes().to_vec();
        let entries: Vec<_> = batch.iter().map(|at| (COUNTERS[*at], one.clone())).collect();
        let mut asking = Asking::of(&mut sessions[addition % 3], &embedding);
        let done = asking.exchange(WriteOperation::FetchAdd, &entries);
        for (at, (outcome, old)) in batch.iter().zip(done) {
            let is_done = matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_));
            assert!(is_done, "an addition: {outcome:?}");
            told[*at].push(old.map_or(0, |old| u64::from_le_bytes(old.try_into().expect("8 B"))));
        }
    }
    for (counter, sums) in COUNTERS.iter().zip(told) {
        let count = sums.len() as u64;
        assert!(sums.into_iter().eq(0..count), "each sum before is told once, in turn");
        let (value, _) = Asking::of(&mut sessions[0], &embedding).get(*counter).expect("a counter");
        assert_eq!(u64::from_le_bytes(value.try_into().expect("8 B")), count);
    }
}

/// Of clients that all have read the same pair, one replaces it, and the others are told its version.
pub fn chains_of_compare_and_set<E: EngineUnderTest>(engine: &E) {
    const KEY: Identity = Identity(u64::MAX >> 1);
    let links = engine.rounds(ADDITIONS) as u64 / 3;
    let (table, embedding) = (engine.table(16), engine.embedding());
    let mut sessions: Vec<_> = (0..3).map(|_| table.session(Access::OneSided)).collect();
    for link in 1..=links {
        let mut get = |session| Asking::of(session, &embedding).get(KEY);
        let read: Vec<_> = sessions.iter_mut().map(&mut get).collect();
        let mut made = None;
        for turn in 0..sessions.len() {
            let client = (turn + link as usize) % sessions.len();
            let (value, version) = read[client].clone().unwrap_or_else(|| (vec![0; 16], 0));
            let new = [link.to_le_bytes(), (!link).to_le_bytes()].concat();
            // Either way of comparing; an absent key has a version alone.
            let (operation, operand) = if version == 0 || link.is_multiple_of(2) {
                (WriteOperation::CompareAndSet, [version.to_le_bytes().to_vec(), new].concat())
            } else {
                (WriteOperation::CompareAndSetValue, engine.operands().compare_value(&value, &new))
            };
            let mut asking = Asking::of(&mut sessions[client], &embedding);
            match (asking.exchange(operation, &[(KEY, operand)])[0].0, made) {
                (WriteOutcome::Inserted(after) | WriteOutcome::Replaced(after), None) => {
                    assert!(after > version, "version {after} after {version}");
                    made = Some(after);
                }
                (WriteOutcome::Differs(found), Some(made)) => assert_eq!(found, made),
                other => panic!("link {link}, turn {turn}: {other:?}"),
            }
        }
    }
    let (value, _) = Asking::of(&mut sessions[0], &embedding).get(KEY).expect("a value");
    assert_eq!(value[..8], links.to_le_bytes());
}
