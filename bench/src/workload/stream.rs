//! One thread's operations, prepared in advance.
//!
//! Drawing a Zipfian rank costs more than a GET of the store. So each thread draws its operations before the
//! clock starts, into a ring of slots with the key resolved. The timed loop copies slots in order, 16 bytes
//! an operation, and goes round when the ring ends. What depends on the run is resolved as it is taken. An
//! insert takes the next key of the thread's share, never a used one. Under the latest distribution a rank
//! that a key inserted so far holds means that key. The keys of a ring recur, so a run much longer than a
//! ring touches at most as many keys as the ring has slots.

use std::sync::Arc;

use farsight_base::prng::mix;
use farsight_oracles::Identity;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{
    Distribution, KeySpace, Mix, Operation, SCAN_LENGTH_MAX, Workload, WorkloadError,
    popularity::{Ranks, Scramble},
};

/// Slots of a ring unless said otherwise: 64 MiB a thread, far more than any cache level keeps.
pub const SLOTS_DEFAULT: usize = 1 << 22;

/// The scramble is a property of the key set, the same for all threads and runs, so that they share hot keys.
const SCRAMBLE_SEED: u64 = 0x5ca7_7e12;

const _: () = assert!(size_of::<Operation>() == 16, "four slots a cache line");

/// One thread's endless stream of operations.
#[derive(Debug, Clone)]
pub struct OperationStream {
    space: Arc<KeySpace>,
    /// The ring; the keys of inserts in it have no meaning.
    slots: Vec<Operation>,
    /// Under the latest distribution, each slot's rank of recency, 0 the youngest key; else empty.
    ranks: Vec<u32>,
    position: usize,
    /// Whether slots can be handed out as they are.
    is_fixed: bool,
    thread: usize,
    /// Where the thread's share of the keys to insert begins, where the next one is, and where it ends.
    inserts_begin: usize,
    inserts_next: usize,
    inserts_end: usize,
}

impl OperationStream {
    /// Draws the operations of one of `threads` threads into a ring of `slot_count` slots
    /// ([`SLOTS_DEFAULT`] unless memory is scarce).
    ///
    /// # Errors
    /// [`WorkloadError::BadTheta`].
    ///
    /// # Panics
    /// If `thread` is not below `threads` or there are no slots.
    pub fn new(
        workload: Workload,
        distribution: Distribution,
        space: &Arc<KeySpace>,
        (thread, threads): (usize, usize),
        slot_count: usize,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        assert!(slot_count > 0, "a ring has slots");
        let loaded = space.loaded();
        let count = u32::try_from(loaded.len()).expect("KeySpace bounds its keys");
        let share = space.share(thread, threads);
        let scramble = Scramble::new(count, SCRAMBLE_SEED);
        let ranks = match distribution {
            Distribution::Uniform => Ranks::uniform(count),
            Distribution::Zipfian { theta } | Distribution::Latest { theta } => Ranks::zipfian(count, theta)?,
        };
        let is_latest = matches!(distribution, Distribution::Latest { .. });
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(seed).wrapping_add(thread as u64));
        let mix = workload.mix();
        let (mut slots, mut slot_ranks) = (Vec::with_capacity(slot_count), Vec::new());
        for _ in 0..slot_count {
            let rank = ranks.draw(&mut random);
            let key = loaded[scramble.position(rank) as usize];
            slots.push(draw_operation(mix, key, &mut random));
            if is_latest {
                slot_ranks.push(rank);
            }
        }
        Ok(Self {
            space: Arc::clone(space),
            slots,
            ranks: slot_ranks,
            is_fixed: mix.insert == 0,
            position: 0,
            thread,
            inserts_begin: share.start,
            inserts_next: share.start,
            inserts_end: share.end,
        })
    }

    /// Replaces the contents of `batch` by the next `count` operations.
    ///
    /// Reads of a batch may name keys inserted earlier in the same batch: execute it in order, or do its
    /// inserts first.
    ///
    /// # Errors
    /// [`WorkloadError::InsertKeysExhausted`] when an insert finds no unused key; `batch` then holds the
    /// operations before it, which may be executed, and the stream stays at that insert.
    #[inline]
    pub fn fill(&mut self, batch: &mut Vec<Operation>, count: usize) -> Result<(), WorkloadError> {
        batch.clear();
        while batch.len() < count {
            let begin = batch.len();
            let taken = (count - begin).min(self.slots.len() - self.position);
            batch.extend_from_slice(&self.slots[self.position..self.position + taken]);
            if !self.is_fixed
                && let Err((resolved, error)) = self.resolve(&mut batch[begin..])
            {
                batch.truncate(begin + resolved);
                self.position += resolved;
                return Err(error);
            }
            self.position += taken;
            if self.position == self.slots.len() {
                self.position = 0;
            }
        }
        Ok(())
    }

    /// Keys that this thread has inserted so far, oldest first.
    #[must_use]
    pub fn inserted(&self) -> &[Identity] {
        &self.space.inserts()[self.inserts_begin..self.inserts_next]
    }

    /// Gives keys to the inserts among operations copied from the ring's position on, and the youngest keys
    /// to the others under the latest distribution. An error comes with the number of operations before it.
    fn resolve(&mut self, operations: &mut [Operation]) -> Result<(), (usize, WorkloadError)> {
        for (offset, operation) in operations.iter_mut().enumerate() {
            if let Operation::Insert { key } = operation {
                *key = self.next_insert().map_err(|error| (offset, error))?;
            } else if let Some(&rank) = self.ranks.get(self.position + offset) {
                let inserted = self.inserted();
                if let Some(position) = inserted.len().checked_sub(rank as usize + 1) {
                    *operation.key_mut() = inserted[position];
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn next_insert(&mut self) -> Result<Identity, WorkloadError> {
        if self.inserts_next == self.inserts_end {
            let inserted = self.inserts_end - self.inserts_begin;
            return Err(WorkloadError::InsertKeysExhausted { thread: self.thread, inserted });
        }
        self.inserts_next += 1;
        Ok(self.space.inserts()[self.inserts_next - 1])
    }
}

fn draw_operation(mix: Mix, key: Identity, random: &mut Xoshiro256PlusPlus) -> Operation {
    let length = random.random_range(1..=SCAN_LENGTH_MAX);
    let mut percent: u8 = random.random_range(0..100);
    for (share, operation) in [
        (mix.read, Operation::Read { key }),
        (mix.update, Operation::Update { key }),
        (mix.insert, Operation::Insert { key }),
        (mix.scan, Operation::Scan { key, length }),
    ] {
        if percent < share {
            return operation;
        }
        percent -= share;
    }
    Operation::ReadModifyWrite { key }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::workload::InsertSupply;

    fn space(keys: u64, inserts: usize) -> Arc<KeySpace> {
        let supply = InsertSupply { held_back: inserts, gap_keys: 0 };
        Arc::new(
            KeySpace::split((0..keys).map(|key| Identity(key * 10)).collect(), supply, 3).expect("a split"),
        )
    }

    fn stream(workload: Workload, distribution: Distribution, space: &Arc<KeySpace>) -> OperationStream {
        OperationStream::new(workload, distribution, space, (0, 1), 1 << 16, 11).expect("a stream")
    }

    #[test]
    fn mixes_are_those_of_the_table() {
        const COUNT: usize = 1 << 16;
        let space = space(20_000, 10_000);
        for workload in Workload::ALL {
            let mut batch = Vec::new();
            stream(workload, Distribution::Uniform, &space).fill(&mut batch, COUNT).expect("enough inserts");
            let percent_of = |is_kind: fn(&Operation) -> bool| {
                batch.iter().filter(|operation| is_kind(operation)).count() as f64 * 100.0 / COUNT as f64
            };
            let mix = workload.mix();
            for (expected, got) in [
                (mix.read, percent_of(|operation| matches!(operation, Operation::Read { .. }))),
                (mix.update, percent_of(|operation| matches!(operation, Operation::Update { .. }))),
                (mix.insert, percent_of(|operation| matches!(operation, Operation::Insert { .. }))),
                (mix.scan, percent_of(|operation| matches!(operation, Operation::Scan { .. }))),
                (
                    mix.read_modify_write,
                    percent_of(|operation| matches!(operation, Operation::ReadModifyWrite { .. })),
                ),
            ] {
                let tolerance = if expected % 100 == 0 { f64::EPSILON } else { 1.0 };
                assert!((f64::from(expected) - got).abs() < tolerance, "{workload}: {got} %, not {expected}");
            }
        }
    }

    #[test]
    fn scan_lengths_are_uniform_from_1_to_100() {
        let space = space(20_000, 10_000);
        let mut batch = Vec::new();
        stream(Workload::E, Distribution::Uniform, &space).fill(&mut batch, 1 << 16).expect("enough inserts");
        let mut counts = [0u32; SCAN_LENGTH_MAX as usize + 1];
        for operation in &batch {
            if let Operation::Scan { length, .. } = operation {
                counts[usize::from(*length)] += 1;
            }
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (480..780).contains(count)), "each near 623: {counts:?}");
    }

    #[test]
    fn zipfian_operations_agree_among_threads_on_scattered_hot_keys() {
        let space = space(10_000, 0);
        let zipfian = Distribution::Zipfian { theta: 0.99 };
        let mut hottest = Vec::new();
        for thread in 0..2 {
            let mut stream = OperationStream::new(Workload::C, zipfian, &space, (thread, 2), 1 << 16, 11)
                .expect("a stream");
            let mut batch = Vec::new();
            stream.fill(&mut batch, 1 << 16).expect("reads only");
            let mut frequencies = std::collections::HashMap::<Identity, u32>::new();
            for operation in batch {
                let Operation::Read { key } = operation else { panic!("{operation:?} in workload C") };
                *frequencies.entry(key).or_default() += 1;
            }
            let (key, frequency) = frequencies.into_iter().max_by_key(|&(_, count)| count).expect("keys");
            let harmonic: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
            let expected = f64::from(1 << 16) / harmonic;
            assert!((f64::from(frequency) - expected).abs() < 0.05 * expected, "{frequency}, not {expected}");
            hottest.push(key);
        }
        assert_eq!(hottest[0], hottest[1]);
        assert_eq!(hottest[0], space.loaded()[Scramble::new(10_000, SCRAMBLE_SEED).position(0) as usize]);
    }

    #[test]
    fn latest_reads_are_skewed_to_the_youngest_inserts() {
        let space = space(20_000, 10_000);
        let mut stream = stream(Workload::D, Distribution::Latest { theta: 0.99 }, &space);
        let mut batch = Vec::new();
        stream.fill(&mut batch, 50_000).expect("enough inserts");
        let age: std::collections::HashMap<Identity, usize> =
            stream.inserted().iter().rev().enumerate().map(|(age, &key)| (key, age)).collect();
        assert!(age.len() > 2_000, "{} inserts", age.len());
        let inserted_before = age.len();
        stream.fill(&mut batch, 1_000).expect("enough inserts");
        let inserted_now = &stream.inserted()[inserted_before..];
        let ages: Vec<Option<usize>> = batch
            .iter()
            .filter_map(|operation| match operation {
                Operation::Read { key } if inserted_now.contains(key) => Some(Some(0)),
                Operation::Read { key } => Some(age.get(key).copied()),
                _ => None,
            })
            .collect();
        // Of ranks 0..10,000 under theta .99, the 100 youngest have 52 % of the weight, and those past the
        // about 2,500 inserts 14 %.
        let youngest = ages.iter().flatten().filter(|&&age| age < 100).count() as f64 / ages.len() as f64;
        let loaded = ages.iter().filter(|age| age.is_none()).count() as f64 / ages.len() as f64;
        assert!((0.45..0.65).contains(&youngest), "{youngest} among the 100 youngest");
        assert!((0.07..0.22).contains(&loaded), "{loaded} among the loaded keys");
    }

    #[test]
    fn inserts_are_fresh_and_their_end_is_an_error() {
        let space = space(1_000, 100);
        let loaded: HashSet<Identity> = space.loaded().iter().copied().collect();
        let mut stream = stream(Workload::D, Distribution::Uniform, &space);
        let (mut batch, mut inserted) = (Vec::new(), HashSet::new());
        let error = loop {
            let outcome = stream.fill(&mut batch, 64);
            for operation in &batch {
                if let Operation::Insert { key } = operation {
                    assert!(!loaded.contains(key) && inserted.insert(*key), "{key} is not new");
                }
            }
            if let Err(error) = outcome {
                break error;
            }
        };
        assert_eq!(inserted.len(), 100);
        assert_eq!(stream.inserted().len(), 100);
        assert_eq!(error, WorkloadError::InsertKeysExhausted { thread: 0, inserted: 100 });
    }

    #[test]
    fn a_seed_repeats_and_the_ring_goes_round() {
        let space = space(1_000, 0);
        let make = |thread, seed| {
            let mut stream =
                OperationStream::new(Workload::A, Distribution::Uniform, &space, (thread, 2), 50, seed)
                    .expect("a stream");
            let mut batch = Vec::new();
            stream.fill(&mut batch, 100).expect("no inserts");
            batch
        };
        let batch = make(0, 1);
        assert_eq!(batch[..50], batch[50..]);
        assert_eq!(batch, make(0, 1));
        assert_ne!(batch, make(1, 1));
        assert_ne!(batch, make(0, 2));
    }
}
