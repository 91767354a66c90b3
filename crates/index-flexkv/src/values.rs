//! Values that a compute node keeps, and gives out without a verb.
//!
//! Invariant: a kept value was its key's when its slot was READ, and the slot was shared. Beside it stands a
//! number that its partition's counter had reached before that READ. It is given out at a moment at which the
//! lease on its shard holds, if the counter is not known to have reached more. Nobody has replaced or removed
//! it by then: [`crate::closing`] says why.
//!
//! Leases and values are of all sessions of the compute node, whose queue pairs have one clock.
//!
//! A value is shared, and kept, once its key was read often enough, beside how often it was written. What is
//! counted is halved each time that two reads were counted for each value that has room. So keys that are
//! read alike, and are far more than have room, are mostly not kept.

#[cfg(all(test, any(loom, shuttle)))]
mod models;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_index::{CachePolicy, ValueCache};
use farsight_layout::hash_index::{CLOSINGS, KeyHash};
use farsight_protocol::{Recalled, ValueKind};

#[cfg(injected)]
use crate::injected;

/// How long what a lease's READ has found counts, from before it was posted.
pub(crate) const LEASE: Duration = Duration::from_millis(8);
/// Time after which every lease is over whose READ was posted before it began. A quarter more: clocks run at
/// about one rate.
pub(crate) const LEASES_OVER: Duration = Duration::from_millis(10);
/// Reads of a key, at the least, before its value is shared, unless fewer make up for a write.
const READS_MIN: u64 = 4;
/// Values of a set.
const SET_VALUES: usize = 16;
/// Counts for each value that has room. Keys share them.
const COUNTS_A_VALUE: usize = 8;
/// Counts for each read after which they are halved: so few keys that are read once look like one that is
/// read often.
const COUNTS_A_READ: usize = 4;
/// Bytes of a value of any length, on average, for which there are sets.
const USUAL_VALUE_BYTES: usize = 128;

/// What the sessions of a compute node keep of a table's values.
pub struct Values {
    /// By shard.
    leases: Box<[Lease]>,
    is_on: AtomicBool,
    /// All nodes know that this compute node keeps values.
    is_known: AtomicBool,
    store: Mutex<Option<Arc<Store>>>,
    policy: Mutex<CachePolicy>,
    kind: ValueKind,
}

/// What is known of a shard's closings, at its tail, and until when nothing that is kept ends without a
/// further one.
pub(crate) struct Lease<const COUNTERS: usize = CLOSINGS> {
    /// A moment of the process's clock, in nanoseconds.
    until_ns: AtomicU64,
    /// Each as the newest READ found it: counters only grow.
    closings: [AtomicU64; COUNTERS],
}

/// Values, in a given memory.
pub(crate) struct Store {
    cache: ValueCache,
    policy: CachePolicy,
    sets: Box<[Mutex<ValueSet>]>,
    set_bytes: usize,
    /// By hash: reads in the low half, writes in the high one.
    counts: Box<[AtomicU32]>,
    /// Of all keys.
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Some values. The one that goes is chosen by SIEVE (Zhang et al., NSDI'24), or is the oldest.
#[derive(Default)]
struct ValueSet {
    /// From the oldest to the newest.
    values: Vec<Kept>,
    hand: usize,
    bytes: usize,
}

/// A value.
struct Kept {
    /// Of its key.
    identity: u64,
    version: u64,
    /// What its partition's counter had reached.
    closings: u64,
    is_used: bool,
    value: Box<[u8]>,
}

impl Values {
    /// Nothing of a table with such values in so many shards.
    pub(crate) fn new(shards: usize, kind: ValueKind) -> Self {
        let leases = (0..shards).map(|_| Lease::default()).collect();
        let (is_on, is_known) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { leases, is_on, is_known, store: Mutex::new(None), policy: Mutex::default(), kind }
    }

    /// Says what may be kept. What was is forgotten, if that is something else. Fewer bytes than a set takes
    /// are none.
    pub fn set(&self, cache: ValueCache) {
        let usual_bytes = match self.kind {
            ValueKind::Fixed(bytes) => bytes.into(),
            ValueKind::Blocks { max_bytes, .. } => (max_bytes as usize).min(USUAL_VALUE_BYTES),
        };
        let policy = *self.policy();
        let mut current = self.current();
        if current.as_ref().is_some_and(|store| (store.cache, store.policy) == (cache, policy)) {
            return;
        }
        let store = Store::new((cache, policy), usual_bytes).map(Arc::new);
        // Relaxed: a hint to look.
        self.is_on.store(store.is_some(), Ordering::Relaxed);
        *current = store;
    }

    /// Says which values go. What is kept is forgotten, if that is another policy than before.
    pub fn set_policy(&self, policy: CachePolicy) {
        *self.policy() = policy;
        if let Some(store) = self.store() {
            self.set(store.cache);
        }
    }

    /// Bytes of memory that they take now.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.store().map_or(0, |store| store.memory_bytes())
    }

    /// True once all nodes know that this compute node keeps values.
    pub(crate) fn is_known(&self) -> bool {
        // Acquire: the READs of leases are posted behind the answers. Partner: the Release in `set_known`.
        self.is_known.load(Ordering::Acquire)
    }

    /// Notes that.
    pub(crate) fn set_known(&self) {
        // Release: as said there.
        self.is_known.store(true, Ordering::Release);
    }

    /// Lets go of values that are recalled: no GET that begins from now on is answered by one of them.
    pub fn let_go(&self, recalls: &[Recalled]) {
        for Recalled { shard, counter, closings } in recalls {
            let (shard, counter) = (usize::from(*shard), usize::from(*counter));
            // There is no lease on any other.
            if let Some(lease) = self.leases.get(shard).filter(|_| counter < CLOSINGS) {
                lease.raise(counter, *closings);
            }
        }
    }

    /// Where values are kept, if they are.
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        // Relaxed: as in `set`.
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        self.current().clone()
    }

    /// The lease on a shard.
    pub(crate) fn lease(&self, shard: usize) -> &Lease {
        &self.leases[shard]
    }

    fn policy(&self) -> MutexGuard<'_, CachePolicy> {
        // Each change is one assignment.
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Store>>> {
        // Each change is complete.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const COUNTERS: usize> Default for Lease<COUNTERS> {
    fn default() -> Self {
        Self { until_ns: AtomicU64::new(0), closings: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const COUNTERS: usize> Lease<COUNTERS> {
    /// True if it holds `now`. What [`Lease::closings`] says afterwards was found by its READ, or by a later
    /// one.
    pub(crate) fn holds(&self, now: MonotonicNs) -> bool {
        // Acquire: the counters are those of this lease, or newer. Partner: the Release in `renew`.
        let holds = now.0 < self.until_ns.load(Ordering::Acquire);
        #[cfg(injected)]
        let holds = holds || injected::LEASE_OUTLIVED.is_injected();
        holds
    }

    /// What a counter has reached at the least.
    pub(crate) fn closings(&self, counter: usize) -> u64 {
        // Relaxed: any number that it ever had is right where a value begins to be kept. Where one is given
        // out, `holds` orders this.
        self.closings[counter].load(Ordering::Relaxed)
    }

    /// Learns that a counter has reached so much. What was noted below that is not given out any more.
    pub(crate) fn raise(&self, counter: usize, closings: u64) {
        // Relaxed: what makes a GET begin behind the write that recalls this makes it see this, too. It comes
        // by the call that says so, and by the write's answer.
        self.closings[counter].fetch_max(closings, Ordering::Relaxed);
    }

    /// Takes what a READ of all counters found that was posted after `now`.
    pub(crate) fn renew(&self, now: MonotonicNs, lines: &[Line]) {
        let mut is_newest = true;
        for (number, known) in self.closings.iter().enumerate() {
            let found = lines[number / WORDS_PER_LINE].0[number % WORDS_PER_LINE];
            // Relaxed: the Release below orders them.
            is_newest &= known.fetch_max(found, Ordering::Relaxed) <= found;
        }
        // Another READ came behind this one, and was taken before.
        if is_newest {
            // Release: who sees the moment sees the counters. Partner: the Acquire in `holds`.
            self.until_ns.fetch_max(now.plus(LEASE).0, Ordering::Release);
        }
    }
}

impl Store {
    fn new((cache, policy): (ValueCache, CachePolicy), usual_bytes: usize) -> Option<Self> {
        let value_bytes = size_of::<Kept>() + usual_bytes;
        let counts_bytes = COUNTS_A_VALUE * size_of::<AtomicU32>();
        let set_bytes = size_of::<Mutex<ValueSet>>() + SET_VALUES * (value_bytes + counts_bytes);
        // The greatest power of two that has room.
        let sets = 1_usize << (cache.bytes / set_bytes as u64).checked_ilog2()?;
        let bytes = usize::try_from(cache.bytes).unwrap_or(usize::MAX);
        let set_bytes = bytes / sets - size_of::<Mutex<ValueSet>>() - SET_VALUES * counts_bytes;
        Some(Self {
            cache,
            policy,
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            set_bytes,
            counts: (0..sets * SET_VALUES * COUNTS_A_VALUE).map(|_| AtomicU32::new(0)).collect(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    fn memory_bytes(&self) -> u64 {
        let own = size_of_val(&*self.sets) + size_of_val(&*self.counts);
        let values: usize = self.sets.iter().map(|set| lock(set).bytes).sum();
        (own + values) as u64
    }

    /// Hands the value of a key to `take`, with its version, if it is kept and its counter had reached so
    /// much. False if not.
    pub(crate) fn give(
        &self,
        (hash, identity): (KeyHash, u64),
        closings: u64,
        take: impl FnOnce(u64, &[u8]),
    ) -> bool {
        let mut set = self.set(hash);
        let is_it = |kept: &&mut Kept| kept.identity == identity && kept.closings == closings;
        let Some(kept) = set.values.iter_mut().find(is_it) else {
            return false;
        };
        kept.is_used = self.policy.marks_uses();
        take(kept.version, &kept.value);
        true
    }

    /// Keeps a key's value. Its slot was READ when its counter had reached so much.
    pub(crate) fn keep(
        &self,
        (hash, identity): (KeyHash, u64),
        closings: u64,
        (version, value): (u64, &[u8]),
    ) {
        let kept = Kept { identity, version, closings, is_used: false, value: value.into() };
        self.set(hash).put(kept, self.set_bytes);
    }

    /// Counts a GET that had to READ a key's pair. True if the value is to be shared.
    pub(crate) fn note_read(&self, hash: KeyHash) -> bool {
        let (reads, writes) = self.count(hash, |reads, writes| (reads.saturating_add(1), writes));
        // Relaxed, here and below: what is counted is a hint.
        let all_reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if all_reads as usize >= self.counts.len() / COUNTS_A_READ {
            self.halve(all_reads);
        }
        // A key of which little is known is probably like the others.
        let usual = all_reads / (self.writes.load(Ordering::Relaxed) + 1);
        let reads_a_write = u64::from(self.cache.reads_a_write);
        let wanted = reads_a_write * (u64::from(writes) + 1);
        u64::from(reads) >= READS_MIN.min(reads_a_write) && u64::from(reads) + usual >= wanted
    }

    /// Counts a write of a key.
    pub(crate) fn note_write(&self, hash: KeyHash) {
        self.count(hash, |reads, writes| (reads, writes.saturating_add(1)));
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, hash: KeyHash, change: impl FnOnce(u16, u16) -> (u16, u16)) -> (u16, u16) {
        let word = &self.counts[hash.0 as usize & (self.counts.len() - 1)];
        let before = word.load(Ordering::Relaxed);
        let (reads, writes) = change(before as u16, (before >> 16) as u16);
        word.store(u32::from(reads) | u32::from(writes) << 16, Ordering::Relaxed);
        (reads, writes)
    }

    /// Halves all counts, unless somebody else does.
    fn halve(&self, all_reads: u64) {
        let halved = all_reads / 2;
        if self.reads.compare_exchange(all_reads, halved, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.writes.store(self.writes.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        for word in &self.counts {
            let half = word.load(Ordering::Relaxed) >> 1 & 0x7fff_7fff;
            word.store(half, Ordering::Relaxed);
        }
    }

    fn set(&self, hash: KeyHash) -> MutexGuard<'_, ValueSet> {
        lock(&self.sets[hash.0 as usize & (self.sets.len() - 1)])
    }
}

impl ValueSet {
    /// Keeps a value instead of the same key's, or of others if there is no room.
    fn put(&mut self, kept: Kept, bytes_max: usize) {
        let bytes = kept.bytes();
        if bytes > bytes_max {
            return;
        }
        if let Some(index) = self.values.iter().position(|other| other.identity == kept.identity) {
            self.remove(index);
        }
        // Each round removes one of them.
        while self.bytes + bytes > bytes_max || self.values.len() == SET_VALUES {
            self.let_go();
        }
        self.bytes += bytes;
        self.values.push(kept);
    }

    /// Lets the first one go, from the hand on, that was not used since the hand came by. If none is marked
    /// as used, that is always the oldest.
    fn let_go(&mut self) {
        // Passes each once at most, for that makes it unused.
        loop {
            if self.hand >= self.values.len() {
                self.hand = 0;
            }
            if !std::mem::take(&mut self.values[self.hand].is_used) {
                break;
            }
            self.hand += 1;
        }
        let hand = self.hand;
        self.remove(hand);
        self.hand = hand;
    }

    fn remove(&mut self, index: usize) {
        self.bytes -= self.values.remove(index).bytes();
        if index < self.hand {
            self.hand -= 1;
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.value.len()
    }
}

fn lock(set: &Mutex<ValueSet>) -> MutexGuard<'_, ValueSet> {
    // Each change is complete.
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use farsight_layout::hash_index::CLOSINGS_LINES;

    use super::*;

    fn store(values: usize, reads_a_write: u32) -> Store {
        let bytes = (values * (size_of::<Kept>() + 64)) as u64;
        Store::new((ValueCache { bytes, reads_a_write }, CachePolicy::Sieve), 8).expect("room for a set")
    }

    fn hash(key: u64) -> KeyHash {
        KeyHash::of(&key.to_le_bytes())
    }

    fn given(store: &Store, key: u64, closings: u64) -> Option<(u64, Vec<u8>)> {
        let mut got = None;
        store.give((hash(key), key), closings, |version, value| got = Some((version, value.to_vec())));
        got
    }

    #[test]
    fn a_value_is_given_while_its_counter_stands() {
        let store = store(64, 0);
        store.keep((hash(1), 1), 5, (70, b"first"));
        assert_eq!(given(&store, 1, 5), Some((70, b"first".to_vec())));
        assert_eq!((given(&store, 1, 6), given(&store, 1, 4), given(&store, 2, 5)), (None, None, None));
        store.keep((hash(1), 1), 6, (71, b"second"));
        assert_eq!((given(&store, 1, 5), given(&store, 1, 6)), (None, Some((71, b"second".to_vec()))));
    }

    #[test]
    fn values_take_what_they_may_and_the_unused_go() {
        let store = store(256, 0);
        let most = (256 * (size_of::<Kept>() + 64)) as u64;
        for key in 0..10_000 {
            store.keep((hash(key), key), 0, (key, &key.to_le_bytes()));
            given(&store, 0, 0);
            assert!(store.memory_bytes() <= most, "{} B", store.memory_bytes());
        }
        assert_eq!(given(&store, 0, 0), Some((0, vec![0; 8])), "it was used each time");
        let kept = (0..10_000).filter(|key| given(&store, *key, 0).is_some()).count();
        assert!((64..=256).contains(&kept), "{kept} values");
        store.keep((hash(1), 1), 0, (1, &vec![7; most as usize]));
        assert_eq!(given(&store, 1, 0), None, "a value longer than a set has room for");
        store.keep((hash(2), 2), 0, (2, &vec![7; store.set_bytes - size_of::<Kept>()]));
        assert_eq!(given(&store, 2, 0).map(|(version, _)| version), Some(2), "a set of its own");
        assert!(store.memory_bytes() <= most);
        let none = ValueCache { bytes: 100, reads_a_write: 1 };
        assert!(Store::new((none, CachePolicy::Sieve), 8).is_none(), "no room for any");
    }

    #[test]
    fn the_oldest_goes_first_in_first_out_however_often_it_is_used() {
        let cache = ValueCache { bytes: store(SET_VALUES, 0).memory_bytes() * 16, reads_a_write: 0 };
        let store = Store::new((cache, CachePolicy::Fifo), 8).expect("room for sets");
        // Keys of one set, in the order in which they are kept.
        let of_one_set = |key: &u64| hash(*key).0 as usize & (store.sets.len() - 1) == 0;
        let keys: Vec<u64> = (0..).filter(of_one_set).take(4 * SET_VALUES).collect();
        for (newest, key) in keys.iter().enumerate() {
            store.keep((hash(*key), *key), 0, (1, &key.to_le_bytes()));
            let held = store.set(hash(*key)).values.len();
            for (number, key) in keys[..=newest].iter().enumerate() {
                assert_eq!(given(&store, *key, 0).is_some(), number + held > newest, "{number} of {newest}");
            }
        }
    }

    #[test]
    fn a_key_is_shared_that_is_read_far_more_often_than_written() {
        let reads_until_shared = |store: &Store, key| (1..1_000).find(|_| store.note_read(hash(key)));
        // Nothing is written: what is read often enough is shared, at last as soon as may be.
        let all_read = store(4_096, 256);
        assert_eq!(reads_until_shared(&all_read, 1), Some(128), "of that key, and of all");
        (0..128).for_each(|key| _ = all_read.note_read(hash(1_000 + key)));
        assert_eq!(reads_until_shared(&all_read, 2), Some(4));
        // A write each twenty reads, of any key: none is shared.
        let mixed = store(4_096, 256);
        for number in 0..20_000_u64 {
            if number % 20 == 0 {
                mixed.note_write(hash(number % 7));
            } else {
                assert!(!mixed.note_read(hash(number % 7)), "read {number}");
            }
        }
        // One that nobody writes is, there, too.
        let reads = reads_until_shared(&mixed, 99).expect("at last");
        assert!((200..=256).contains(&reads), "{reads}");
        // Far more keys than have room.
        let small = store(4_096, 8);
        let shared = (0..100_000).filter(|key| small.note_read(hash(*key))).count();
        assert!(shared < 1_000, "{shared} of 100,000 keys that are read once");
        assert!(store(64, 0).note_read(hash(1)), "shared at once");
    }

    #[test]
    fn a_lease_holds_from_before_its_read_and_counters_never_go_back() {
        let (lease, ms) = (Lease::<CLOSINGS>::default(), |ms: u64| MonotonicNs(ms * 1_000_000));
        assert!(!lease.holds(ms(0)));
        let mut lines = [Line::ZERO; CLOSINGS_LINES];
        lines[1].0[2] = 7;
        lease.renew(ms(100), &lines);
        assert_eq!([107, 108].map(|at| lease.holds(ms(at))), [true, false]);
        assert_eq!([lease.closings(9), lease.closings(10)], [0, 7]);
        lines[1].0[2] = 6;
        lease.renew(ms(103), &lines);
        assert_eq!((lease.closings(10), lease.holds(ms(109))), (7, false), "a READ that was overtaken");
        lines[1].0[2] = 8;
        lease.renew(ms(102), &lines);
        assert_eq!((lease.closings(10), lease.holds(ms(109))), (8, true));
        lease.renew(ms(90), &lines);
        assert!(lease.holds(ms(109)), "an older READ of the same");
        assert!(LEASES_OVER > LEASE.mul_f64(1.1 / 0.9), "clocks may differ by a tenth each");
    }
}
