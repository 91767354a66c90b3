//! A table of one memory node in plain words, its pairs, and the stores that a change consists of.

use std::collections::BTreeMap;

use farsight_base::prng::SplitMix64;
use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_index_rolex::{Planned, Write, plan};
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::{
    BlockGeometry, BlockSearch, LockWord, LockedLeaf, Neighbour, Writes, search_block,
};
use farsight_protocol::{WriteOperation, WriteOutcome};

/// Keys and what is stored under them: version and value.
pub(crate) type Pairs = BTreeMap<u64, (u64, Vec<u8>)>;

/// One word stored: in which block, which word, what.
pub(crate) type Store = (usize, usize, u64);

/// Blocks of the table.
pub(crate) const BLOCKS: usize = 24;
/// Keys are below: few, so that leaves fill, empty and merge.
pub(crate) const KEYS: u64 = 90;

/// What a table must hold.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pub(crate) pairs: Pairs,
    /// The newest version of each key that ever had one.
    newest: BTreeMap<u64, u64>,
}

/// A change of the table.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write {
        operation: WriteOperation,
        key: u64,
        value: Vec<u8>,
    },
    /// This leaf takes over its right sibling, which is empty.
    Merge(usize),
}

/// True if the changes of this round shall empty leaves.
pub(crate) fn is_shrinking(round: usize) -> bool {
    round % 100 >= 45
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) geometry: BlockGeometry,
    blocks: Vec<Vec<u64>>,
    locks: u64,
    /// What was stored since the beginning, or since somebody took it.
    pub(crate) log: Vec<Store>,
}

impl World {
    /// A table of one leaf, block 0.
    pub(crate) fn new(value_bytes: usize) -> Self {
        let geometry = BlockGeometry::new(value_bytes).unwrap();
        let blocks = vec![vec![0; geometry.lines() * WORDS_PER_LINE]; BLOCKS];
        let mut world = Self { geometry, blocks, locks: 0, log: Vec::new() };
        world.blocks[0] = geometry.first_leaf();
        world
    }

    /// A change that may or may not find its key; while shrinking, one that empties leaves or merges them.
    pub(crate) fn random_change(&self, random: &mut SplitMix64, model: &Model, is_shrinking: bool) -> Change {
        use WriteOperation::{Insert, Put, Remove, Update};
        let empty = self.chain().windows(2).find(|pair| self.is_empty(pair[1])).map(|pair| pair[0]);
        if let Some(left) = empty.filter(|_| random.below(2) == 0) {
            return Change::Merge(left);
        }
        let operations =
            if is_shrinking { [Remove, Remove, Remove, Put] } else { [Insert, Put, Remove, Update] };
        let operation = operations[random.below(4) as usize];
        let key = match model.pairs.range(KEYS / 3..).next().filter(|_| operation == Remove) {
            Some((first, _)) if is_shrinking || random.below(2) == 0 => *first,
            _ => random.below(KEYS),
        };
        let words = (0..self.geometry.leaf().value_words()).flat_map(|_| random.next_u64().to_le_bytes());
        let value = words.take(self.geometry.leaf().value_bytes()).collect();
        Change::Write { operation, key, value }
    }

    /// The stores of a change in an order in which they may be executed, and its outcome.
    pub(crate) fn plan(
        &mut self,
        change: &Change,
        random: &mut SplitMix64,
    ) -> (Vec<Store>, Option<WriteOutcome>) {
        self.locks += 1;
        let lock = LockWord::of(7, self.locks);
        let geometry = self.geometry;
        let mut writes = Writes::default();
        match change {
            Change::Merge(left) => {
                let right = self.next(*left).expect("a right sibling");
                let mut before = vec![(*left, OWNER_WORD, lock.0), (right, OWNER_WORD, lock.0)];
                let (mut left_lines, mut right_lines) = (self.locked(*left, lock), self.locked(right, lock));
                let mut left = LockedLeaf::new(&geometry, LeafNumber(*left as u32), &mut left_lines);
                let mut right = LockedLeaf::new(&geometry, LeafNumber(right as u32), &mut right_lines);
                left.merge(&mut right, lock, &mut writes);
                left.clear_journal(&mut writes);
                left.unlock(LockWord::FREE, &mut writes);
                before.extend(stores(&writes, Some(random)));
                (before, None)
            }
            Change::Write { operation, key, value } => {
                let at = self.find(*key).expect("a leaf for every key");
                let mut lines = self.locked(at, lock);
                let mut leaf = LockedLeaf::new(&geometry, LeafNumber(at as u32), &mut lines);
                let value = if operation.has_value() { value.as_slice() } else { &[] };
                let write = Write { operation: *operation, key: *key, value, old: &[] };
                let mut planned = plan(&mut leaf, None, &write, &mut writes);
                if planned == Planned::NeedsBlock {
                    let room = self.room();
                    let mut room_lines = self.lines(room);
                    let mut room = LockedLeaf::new(&geometry, LeafNumber(room as u32), &mut room_lines);
                    planned = plan(&mut leaf, Some(&mut room), &write, &mut writes);
                }
                let Planned::Done(outcome) = planned else { panic!("{change:?}: {planned:?}") };
                let mut all = vec![(at, OWNER_WORD, lock.0)];
                all.extend(stores(&writes, Some(random)));
                (all, Some(outcome))
            }
        }
    }

    pub(crate) fn store(&mut self, stores: &[Store]) {
        for (block, word, content) in stores {
            self.blocks[*block][*word] = *content;
        }
        self.log.extend(stores);
    }

    /// A session that meets a lock of a dead holder repairs its leaf; repairers may die, too.
    pub(crate) fn repair(&mut self, random: &mut SplitMix64) {
        for _ in 0..20 {
            let held: Vec<usize> = (0..BLOCKS).filter(|block| self.lock(*block).owner().is_some()).collect();
            if held.is_empty() {
                return;
            }
            let stores = self.plan_repair(held[random.below(held.len() as u64) as usize], random);
            let is_dying = random.below(4) == 0;
            let cut = if is_dying { random.below(stores.len() as u64) as usize } else { stores.len() };
            self.store(&stores[..cut]);
        }
        panic!("locks remain after twenty repairs");
    }

    fn plan_repair(&mut self, block: usize, random: &mut SplitMix64) -> Vec<Store> {
        let geometry = self.geometry;
        self.locks += 1;
        let lock = LockWord::of(8, self.locks);
        let mut all = vec![(block, OWNER_WORD, lock.0)];
        let mut lines = self.locked(block, lock);
        let mut leaf = LockedLeaf::new(&geometry, LeafNumber(block as u32), &mut lines);
        let mut writes = Writes::default();
        match leaf.neighbour() {
            Neighbour::Merged { leaf: merged, holder } => {
                let found = self.lock(merged.0 as usize);
                if found == holder {
                    all.push((merged.0 as usize, OWNER_WORD, LockWord::CLOSED.0));
                }
                if found == holder || found == LockWord::CLOSED {
                    leaf.repair(&mut writes);
                } else {
                    leaf.abandon(&mut writes);
                }
            }
            Neighbour::Born | Neighbour::Same => leaf.repair(&mut writes),
        }
        if leaf.neighbour() == Neighbour::Born && self.lock(leaf.next().0 as usize) == LockWord::CLOSED {
            let mut born_lines = self.lines(leaf.next().0 as usize);
            let mut born = LockedLeaf::new(&geometry, leaf.next(), &mut born_lines);
            born.unlock(lock, &mut writes);
            born.repair(&mut writes);
            born.unlock(LockWord::FREE, &mut writes);
        }
        leaf.clear_journal(&mut writes);
        leaf.unlock(LockWord::FREE, &mut writes);
        all.extend(stores(&writes, Some(random)));
        all
    }

    /// All pairs, by a reader that meets no writer.
    pub(crate) fn pairs(&self) -> Pairs {
        let mut found = Pairs::new();
        for key in 0..KEYS {
            let mut value = vec![0; self.geometry.leaf().value_bytes()];
            let block = self.find(key).expect("a consistent leaf for every key");
            match search_block(&self.geometry, &self.leaf_lines(block), key, &mut value) {
                BlockSearch::Hit(version) => drop(found.insert(key, (version, value))),
                BlockSearch::Absent => {}
                other => panic!("key {key}: {other:?}"),
            }
        }
        found
    }

    /// The leaves of the chain, each of which must begin where the one before ends.
    pub(crate) fn chain(&self) -> Vec<usize> {
        let (mut chain, mut low) = (vec![0], Some(0));
        loop {
            let at = *chain.last().unwrap();
            let mut lines = self.lines(at);
            let leaf = LockedLeaf::new(&self.geometry, LeafNumber(at as u32), &mut lines);
            assert!(leaf.is_consistent(), "block {at} is no consistent leaf");
            let fences = leaf.fences().unwrap();
            assert_eq!(Some(fences.low), low, "the low fence of block {at}");
            assert_eq!(self.lock(at), LockWord::FREE, "the lock of block {at}");
            low = fences.high;
            match self.next(at) {
                Some(next) => chain.push(next),
                None => break,
            }
        }
        assert_eq!(low, None, "the last leaf is without end");
        chain
    }

    /// The blocks outside the chain that are closed: of no leaf any more.
    pub(crate) fn closed(&self) -> Vec<usize> {
        let chain = self.chain();
        let is_closed = |block: &usize| !chain.contains(block) && self.lock(*block) == LockWord::CLOSED;
        (0..BLOCKS).filter(is_closed).collect()
    }

    /// A block as a session READs it behind its lock.
    fn locked(&self, block: usize, lock: LockWord) -> Vec<Line> {
        let mut lines = self.lines(block);
        lines[OWNER_WORD / WORDS_PER_LINE].0[OWNER_WORD % WORDS_PER_LINE] = lock.0;
        lines
    }

    /// Block `block` as the words of it stand.
    pub(crate) fn lines(&self, block: usize) -> Vec<Line> {
        self.blocks[block].as_chunks().0.iter().map(|words| Line(*words)).collect()
    }

    fn leaf_lines(&self, block: usize) -> Vec<Line> {
        let mut lines = self.lines(block);
        lines.truncate(self.geometry.leaf().leaf_lines());
        lines
    }

    fn find(&self, key: u64) -> Option<usize> {
        let mut value = vec![0; self.geometry.leaf().value_bytes()];
        let mut at = 0;
        for _ in 0..BLOCKS {
            match search_block(&self.geometry, &self.leaf_lines(at), key, &mut value) {
                BlockSearch::Right(next) => at = next.0 as usize,
                BlockSearch::Hit(_) | BlockSearch::Absent => return Some(at),
                _ => return None,
            }
        }
        None
    }

    fn next(&self, block: usize) -> Option<usize> {
        let mut lines = self.lines(block);
        let next = LockedLeaf::new(&self.geometry, LeafNumber(block as u32), &mut lines).next();
        next.some().map(|next| next.0 as usize)
    }

    fn is_empty(&self, block: usize) -> bool {
        let mut lines = self.lines(block);
        LockedLeaf::new(&self.geometry, LeafNumber(block as u32), &mut lines).sorted().1 == 0
    }

    /// A block outside the chain: one that was closed before one that was never used.
    fn room(&self) -> usize {
        let chain = self.chain();
        let outside = |block: &usize| !chain.contains(block);
        let closed = (0..BLOCKS).filter(outside).find(|block| self.lock(*block) == LockWord::CLOSED);
        closed.or_else(|| (0..BLOCKS).find(outside)).expect("a free block")
    }

    fn lock(&self, block: usize) -> LockWord {
        LockWord(self.blocks[block][OWNER_WORD])
    }
}

/// The single stores of WRITEs in their order; within a WRITE, whose order nobody promises, in a random one.
fn stores(writes: &Writes, random: Option<&mut SplitMix64>) -> Vec<Store> {
    let mut all = Vec::new();
    let mut random = random;
    for (leaf, first, words) in writes.iter() {
        let begin = all.len();
        all.extend(words.iter().enumerate().map(|(index, word)| (leaf.0 as usize, first + index, *word)));
        if let Some(random) = &mut random
            && random.below(2) == 0
        {
            let ours = &mut all[begin..];
            for last in (1..ours.len()).rev() {
                ours.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
    }
    all
}

/// What `change` makes of the pairs, as its outcome says; that must be the right one.
pub(crate) fn apply(model: &mut Model, change: &Change, outcome: Option<WriteOutcome>) {
    use WriteOperation::{Insert, Put, Remove, Update};
    let Change::Write { operation, key, value } = change else { return };
    let before = model.pairs.get(key).map(|(version, _)| *version);
    match (operation, before, outcome.expect("a write has an outcome")) {
        (Insert | Put, None, WriteOutcome::Inserted(version))
        | (Update | Put, Some(_), WriteOutcome::Replaced(version)) => {
            let newest = model.newest.insert(*key, version).unwrap_or(0);
            assert!(version > newest, "{change:?}: version {version} after {newest}");
            model.pairs.insert(*key, (version, value.clone()));
        }
        (Remove, Some(old), WriteOutcome::Removed(version)) if version == old => {
            drop(model.pairs.remove(key));
        }
        (Insert, Some(old), WriteOutcome::Exists(version)) if version == old => {}
        (Update | Remove, None, WriteOutcome::Absent) => {}
        other => panic!("{change:?}: {other:?}"),
    }
}
