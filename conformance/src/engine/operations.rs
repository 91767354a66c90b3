//! Random operations from several clients in turn, each answer compared at once.
//!
//! The keys come from a few hundred. So leaves fill, split, are compacted and reclaimed, and their slots and
//! blocks are used again and again. The mix swings between growing and shrinking. One client reads one-sided,
//! one by calls, and a third one-sided but rarely, so that its cache is old whenever it is asked.

use std::fmt;

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{Embedding, Identity, sets};

use super::model::{Model, random_value};
use super::{EngineUnderTest, Seed, SessionUnderTest, TableUnderTest};

const STEPS: usize = 1_500;
/// Swings in these steps: the table grows, then shrinks.
const SWINGS: usize = 10;
/// Limits of scans: none, one, within a leaf, over several leaves, more than there are.
const LIMITS: [usize; 5] = [0, 1, 7, 100, 5_000];

/// How long values are.
#[derive(Clone, Copy)]
pub(super) enum Lengths {
    /// So many bytes each.
    Fixed(usize),
    /// Mostly short ones, now and then none or many, up to so many bytes.
    UpTo(u32),
}

impl Lengths {
    /// How long a table is told that they are.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::UpTo(_) => 0,
        }
    }

    /// How long the next one is.
    pub(super) fn draw(self, random: &mut SplitMix64) -> usize {
        let below = match self {
            Self::Fixed(bytes) => return bytes,
            Self::UpTo(max) => match random.below(100) {
                0..10 => return 0,
                10..20 => return 8,
                20..80 => 200,
                80..98 => 4_000,
                _ => 1 + u64::from(max),
            },
        };
        random.below(below) as usize
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes} B"),
            Self::UpTo(_) => f.write_str("any length"),
        }
    }
}

/// One run over one set of keys.
struct Run<'a, S, E> {
    random: SplitMix64,
    keys: &'a [Identity],
    lengths: Lengths,
    /// Writes of a batch that is a large one.
    many: u64,
    sessions: [S; 3],
    model: Model<E>,
}

impl<S: SessionUnderTest<Key = E::Key>, E: Embedding> Run<'_, S, E> {
    fn key(&mut self) -> Identity {
        let key = self.keys[self.random.below(self.keys.len() as u64) as usize];
        match self.random.below(16) {
            0 => key.behind(1),
            1 => key.before(1),
            _ => key,
        }
    }

    /// The client of the next operation: the third comes seldom.
    fn session(&mut self) -> usize {
        match self.random.below(24) {
            0 => 2,
            number => number as usize % 2,
        }
    }

    fn write(&mut self, grows: bool) {
        let operation = match (self.random.below(8), grows) {
            (0, _) => WriteOperation::Update,
            (1, _) => WriteOperation::Put,
            (2, true) | (3.., false) => WriteOperation::Remove,
            _ => WriteOperation::Insert,
        };
        let count = if self.random.below(30) == 0 { self.many } else { 1 + self.random.below(12) };
        let entries: Vec<(Identity, Vec<u8>)> = (0..count)
            .map(|_| {
                let key = self.key();
                let bytes =
                    if operation == WriteOperation::Remove { 0 } else { self.lengths.draw(&mut self.random) };
                (key, random_value(&mut self.random, bytes))
            })
            .collect();
        let session = self.session();
        self.model.write(&mut self.sessions[session], operation, &entries, false);
    }

    fn read(&mut self) {
        let session = self.session();
        match self.random.below(3) {
            0 => {
                let key = self.key();
                self.model.check_get(&mut self.sessions[session], key);
            }
            1 => {
                let count = self.random.below(80);
                let keys: Vec<Identity> = (0..count).map(|_| self.key()).collect();
                self.model.check_multi_get(&mut self.sessions[session], &keys);
            }
            _ => {
                let count = self.random.below(12);
                let scan = |run: &mut Self| (run.key(), LIMITS[run.random.below(5) as usize]);
                let scans: Vec<(Identity, usize)> = (0..count).map(|_| scan(self)).collect();
                self.model.check_scans(&mut self.sessions[session], &scans);
            }
        }
    }

    fn check_all(&mut self) {
        for session in &mut self.sessions {
            self.model.check_all(session);
        }
    }
}

fn values_of<E: EngineUnderTest>(engine: &E, lengths: Lengths) {
    let steps = engine.rounds(STEPS);
    let seed = Seed::new(&format!("operations, values of {lengths}"));
    let sets = sets::all(&mut seed.random(u64::MAX));
    for (part, (name, keys)) in sets.iter().enumerate() {
        // The captured output of a failing test names its set.
        println!("{name}: {} keys", keys.len());
        let table = engine.table(lengths.bytes());
        let sessions = [Access::OneSided, Access::Rpc, Access::OneSided].map(|access| table.session(access));
        let random = seed.random(part as u64);
        let many = engine.pairs(300) as u64;
        let mut run = Run { random, keys, lengths, many, sessions, model: Model::new(engine.embedding()) };
        for step in 0..steps {
            if run.random.below(2) == 0 {
                run.write((step * SWINGS / steps).is_multiple_of(2));
            } else {
                run.read();
            }
            if step % (steps / 3) == steps / 6 {
                run.check_all();
            }
        }
        table.await_training();
        run.check_all();
    }
}

/// Random operations on values of any length.
pub fn values_of_any_length<E: EngineUnderTest>(engine: &E) {
    values_of(engine, Lengths::UpTo(engine.value_bytes_max()));
}

macro_rules! value_sizes {
    ($($test:ident: $value_bytes:expr),+) => {
        $(
            /// Random operations on values of this size.
            pub fn $test<E: EngineUnderTest>(engine: &E) {
                values_of(engine, Lengths::Fixed($value_bytes));
            }
        )+
    };
}

value_sizes!(
    values_of_8_bytes: 8, values_of_9_bytes: 9, values_of_16_bytes: 16, values_of_24_bytes: 24,
    values_of_56_bytes: 56, values_of_100_bytes: 100, values_of_256_bytes: 256
);
