//! Addresses of pairs: what a compute node remembers of the slots that it has seen, in a given memory.
//!
//! Invariant: what is remembered was true once, and is a hint now. Whoever uses it compares the slot's word
//! with the one that is remembered. The word does not recur while this compute node lives. So where both are
//! the same, the pair is the same, too.
//!
//! Addresses stand in sets, of which a key's hash chooses one. All sessions read and change them, and nobody
//! waits ([`set`]). A full set lets go as SIEVE does, or FIFO ([`order`]).
//!
//! There are few sets at first. They double when enough addresses had to go, until they take the memory that
//! was given. Half of the keys are in other sets then. Their addresses move when somebody wants them.

#[cfg(all(test, any(loom, shuttle)))]
mod models;
#[cfg(any(loom, shuttle))]
mod no_heap;
mod order;
mod set;

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(not(any(loom, shuttle)))]
use farsight_base::heap::HeapWords;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::prefetch_lines;
use farsight_index::CachePolicy;
use farsight_layout::hash_index::{HashSlot, KeyHash, SlotPlace};

#[cfg(any(loom, shuttle))]
use no_heap::HeapWords;
use set::{SET_LINES, SET_WORDS, Set};

/// Bytes for addresses of a table, if nobody says otherwise.
const USUAL_BYTES: u64 = 64 << 20;
/// Sets at first.
const SETS_AT_FIRST: u64 = 1024;

/// What is remembered of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// Its slot.
    pub(crate) place: SlotPlace,
    /// The word there, which is live.
    pub(crate) word: HashSlot,
    /// The version of the object that it names.
    pub(crate) version: u64,
}

/// The addresses that the sessions of a compute node remember of one table.
pub struct Addresses {
    sets: Mutex<Arc<Sets>>,
    /// How often others took the place of the sets.
    changes: AtomicU64,
}

/// What a session holds of them.
pub(crate) struct HeldAddresses {
    shared: Arc<Addresses>,
    sets: Arc<Sets>,
    /// The change of which it knows.
    change: u64,
}

/// Some sets, in memory that is taken as they are used.
pub(crate) struct Sets {
    /// What they may take.
    bytes: u64,
    policy: CachePolicy,
    /// `None`: there is no memory for any.
    words: Option<HeapWords>,
    count_max: u64,
    /// A power of two. Keys are in these.
    used: AtomicU64,
    /// Addresses that had to go since there were so many.
    gone: AtomicU64,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            sets: Mutex::new(Arc::new(Sets::new(USUAL_BYTES, CachePolicy::default()))),
            changes: AtomicU64::new(0),
        }
    }
}

impl Addresses {
    /// Says how many bytes they may take. All is forgotten if that is another number than before. Fewer than
    /// those of one set are none.
    pub fn set_bytes(&self, bytes: u64) {
        self.change(|sets| (bytes, sets.policy));
    }

    /// Says which addresses go. All is forgotten if that is another policy than before.
    pub fn set_policy(&self, policy: CachePolicy) {
        self.change(|sets| (sets.bytes, policy));
    }

    /// Begins anew, unless the sets have as many bytes and this policy already: each session says so again
    /// that is opened.
    fn change(&self, wanted: impl FnOnce(&Sets) -> (u64, CachePolicy)) {
        // Each change is complete.
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, policy) = wanted(&sets);
        if (sets.bytes, sets.policy) == (bytes, policy) {
            return;
        }
        *sets = Arc::new(Sets::new(bytes, policy));
        drop(sets);
        // Release: who sees the number finds these sets. Partner: the Acquire in `refresh`.
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Bytes of memory that they take now.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.current().words.as_ref().map_or(0, HeapWords::touched_bytes)
    }

    fn current(&self) -> Arc<Sets> {
        // Each change is complete.
        Arc::clone(&self.sets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HeldAddresses {
    pub(crate) fn new(shared: Arc<Addresses>) -> Self {
        // Acquire: as in `refresh`.
        let change = shared.changes.load(Ordering::Acquire);
        Self { sets: shared.current(), shared, change }
    }

    /// The sets of now.
    pub(crate) fn refresh(&mut self) -> &Sets {
        // Acquire: the sets are those of this number, or newer. Partner: the Release in `change`.
        let change = self.shared.changes.load(Ordering::Acquire);
        if change != self.change {
            (self.sets, self.change) = (self.shared.current(), change);
        }
        &self.sets
    }

    /// The sets that the session knows.
    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }
}

impl Sets {
    fn new(bytes: u64, policy: CachePolicy) -> Self {
        let set_bytes = (SET_WORDS * size_of::<u64>()) as u64;
        // The greatest power of two below that.
        let count_max = (bytes / set_bytes).checked_ilog2().map_or(0, |bits| 1 << bits);
        let words = HeapWords::zeroed_for_growth(count_max as usize * SET_LINES);
        let used = AtomicU64::new(SETS_AT_FIRST.min(count_max));
        Self { bytes, policy, words, count_max, used, gone: AtomicU64::new(0) }
    }

    /// Asks for a key's set to be brought near.
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        if let Some([header, ..]) = self.words_of(hash, self.used()) {
            prefetch_lines::<SET_LINES>(header);
        }
    }

    /// What is remembered of a key.
    pub(crate) fn get(&self, hash: KeyHash, key: u64) -> Option<Address> {
        let used = self.used();
        let set = self.set(hash, used)?;
        set.get(key, self.policy).or_else(|| {
            // From before the sets doubled: it moves, if somebody wants it.
            let address = self.set_before(hash, used)?.get(key, self.policy)?;
            self.put(set, key, address);
            Some(address)
        })
    }

    /// Remembers a key's, unless somebody else changes its set.
    pub(crate) fn remember(&self, hash: KeyHash, key: u64, address: Address) {
        if let Some(set) = self.set(hash, self.used()) {
            self.put(set, key, address);
        }
    }

    /// Forgets a key's, if its word is this one.
    pub(crate) fn forget(&self, hash: KeyHash, key: u64, word: HashSlot) {
        let used = self.used();
        for set in [self.set(hash, used), self.set_before(hash, used)].into_iter().flatten() {
            set.remove(key, word);
        }
    }

    fn put(&self, set: Set<'_>, key: u64, address: Address) {
        if set.put(key, address) {
            self.note_gone();
        }
    }

    fn used(&self) -> u64 {
        // Relaxed: in a set that is not the key's any more it is merely not found.
        self.used.load(Ordering::Relaxed)
    }

    /// A key's set, of so many.
    fn set(&self, hash: KeyHash, used: u64) -> Option<Set<'_>> {
        self.words_of(hash, used).map(Set::new)
    }

    /// A key's set when there were half as many, if that was another one.
    fn set_before(&self, hash: KeyHash, used: u64) -> Option<Set<'_>> {
        let has_moved = used > SETS_AT_FIRST && hash.0 & (used / 2) != 0;
        has_moved.then(|| self.set(hash, used / 2)).flatten()
    }

    fn words_of(&self, hash: KeyHash, used: u64) -> Option<&[AtomicU64; SET_WORDS]> {
        let number = (hash.0 & used.wrapping_sub(1)) as usize;
        self.words.as_ref()?.words().get(number * SET_WORDS..)?.first_chunk()
    }

    /// Doubles the sets when one of four addresses that they hold had to go.
    fn note_gone(&self) {
        let used = self.used();
        let due = used * order::WAYS as u64 / 4;
        // Relaxed, here and below: sessions need not agree on how many sets there are.
        if self.gone.fetch_add(1, Ordering::Relaxed) < due || used >= self.count_max {
            return;
        }
        if self.used.compare_exchange(used, used * 2, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.gone.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::{HashMap, HashSet, VecDeque};
    use std::time::SystemTime;

    use farsight_base::prng::SplitMix64;

    use super::order::WAYS;
    use super::*;

    fn random() -> SplitMix64 {
        let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        println!("seed {seed}");
        SplitMix64::new(seed)
    }

    fn address(number: u64) -> Address {
        Address { place: SlotPlace { line: number as u32, slot: 1 }, word: HashSlot(number), version: number }
    }

    fn hash(key: u64) -> KeyHash {
        KeyHash::of(&key.to_le_bytes())
    }

    #[test]
    fn what_is_remembered_was_true_of_its_key() {
        let (shared, mut random) = (Arc::<Addresses>::default(), random());
        let mut held = HeldAddresses::new(Arc::clone(&shared));
        let bytes = 4 * SETS_AT_FIRST * (SET_WORDS as u64 * 8);
        shared.set_bytes(bytes);
        let sets = held.refresh();
        let mut model = HashMap::<u64, HashSet<u64>>::new();
        let (mut hits, mut misses) = (0, 0);
        for step in 1..400_000 {
            let key = random.below(60_000).min(random.below(60_000));
            match (random.below(8), sets.get(hash(key), key)) {
                (0, Some(known)) => {
                    sets.forget(hash(key), key, address(known.version + 1).word);
                    assert_eq!(sets.get(hash(key), key), Some(known), "another word is meant");
                    sets.forget(hash(key), key, known.word);
                    assert_ne!(sets.get(hash(key), key), Some(known));
                }
                (0 | 1, _) => {
                    sets.remember(hash(key), key, address(step));
                    model.entry(key).or_default().insert(step);
                }
                (_, Some(known)) => {
                    assert_eq!(known, address(known.version));
                    assert!(model[&key].contains(&known.version), "another key's");
                    hits += 1;
                }
                (_, None) => misses += 1,
            }
        }
        assert!(hits > 20_000 && misses > 20_000, "{hits} hits, {misses} misses");
        assert!(sets.used.load(Ordering::Relaxed) > SETS_AT_FIRST, "they grow");
        assert!((1..=bytes + 4096).contains(&shared.memory_bytes()), "{} B", shared.memory_bytes());
        let (key, known) =
            (0..60_000).find_map(|key| Some((key, held.sets().get(hash(key), key)?))).expect("one");
        shared.set_bytes(bytes);
        assert_eq!(held.refresh().get(hash(key), key), Some(known), "the same number again forgets nothing");
        shared.set_bytes(1);
        held.refresh().remember(hash(1), 1, address(1));
        assert_eq!((held.sets().get(hash(1), 1), shared.memory_bytes()), (None, 0), "no room for any");
    }

    /// SIEVE as its paper writes it, of one queue, or FIFO.
    #[derive(Default)]
    struct Queue {
        policy: CachePolicy,
        /// From the newest to the oldest, and whether it was used.
        entries: VecDeque<(u64, bool)>,
        hand: Option<u64>,
    }

    impl Queue {
        fn use_of(&mut self, key: u64) -> bool {
            let found = self.entries.iter_mut().find(|entry| entry.0 == key);
            found.map(|entry| entry.1 = self.policy == CachePolicy::Sieve).is_some()
        }

        fn put(&mut self, key: u64) {
            if self.entries.len() == WAYS {
                let place_of = |of: &Self, key| of.entries.iter().position(|entry| entry.0 == key);
                let mut at = self.hand.and_then(|key| place_of(self, key)).unwrap_or(WAYS - 1);
                while std::mem::take(&mut self.entries[at].1) {
                    at = at.checked_sub(1).unwrap_or(WAYS - 1);
                }
                self.hand = at.checked_sub(1).map(|next| self.entries[next].0);
                self.entries.remove(at);
            }
            self.entries.push_front((key, false));
        }
    }

    #[test]
    fn a_full_set_lets_go_as_the_published_queue_does() {
        [CachePolicy::Sieve, CachePolicy::Fifo].into_iter().for_each(lets_go_as_a_queue);
    }

    fn lets_go_as_a_queue(policy: CachePolicy) {
        let words: [AtomicU64; SET_WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
        let queue = Queue { policy, ..Queue::default() };
        let (set, mut queue, mut random) = (Set::new(&words), queue, random());
        for _ in 0..50_000 {
            let key = random.below(12);
            let is_known = queue.use_of(key);
            assert_eq!(set.get(key, policy).is_some(), is_known, "{policy:?}");
            if !is_known && random.below(2) == 0 {
                assert_eq!(set.put(key, address(key)), queue.entries.len() == WAYS);
                queue.put(key);
            }
        }
    }
}
