//! A reader whose READ lasts while several changes happen, some of which are stopped and repaired.

use std::collections::BTreeSet;

use farsight_base::prng::SplitMix64;
use farsight_base::{Line, Stamp};
use farsight_layout::pool::{BlockSearch, search_block};

use super::world::{BLOCKS, Change, KEYS, Model, Pairs, World, is_shrinking};

/// Runs of changes.
const ROUNDS: usize = 30;

/// Version and value, if there is a pair.
type Found = Option<(u64, Vec<u8>)>;

/// A run of changes: every state of the words, and the pairs that may be found at each.
struct History {
    states: Vec<World>,
    /// The pairs before and after the change that the state lies in.
    pairs: Vec<[usize; 2]>,
    models: Vec<Pairs>,
}

impl History {
    fn begin(world: World, model: Pairs) -> Self {
        Self { states: vec![world], pairs: vec![[0, 0]], models: vec![model] }
    }

    /// Executes a change, store by store; if it is stopped, somebody repairs what it leaves behind.
    fn execute(&mut self, change: &Change, is_stopped: bool, random: &mut SplitMix64) {
        let mut state = self.states.last().unwrap().clone();
        let before = self.models.len() - 1;
        let (stores, _) = state.plan(change, random);
        let mut world = state.clone();
        world.log.clear();
        if is_stopped {
            world.store(&stores[..random.below(stores.len() as u64) as usize]);
            world.repair(random);
        } else {
            world.store(&stores);
        }
        self.models.push(world.pairs());
        for store in std::mem::take(&mut world.log) {
            state.store(&[store]);
            state.log.clear();
            self.states.push(state.clone());
            self.pairs.push([before, before + 1]);
        }
        self.states.push(world);
        self.pairs.push([before + 1, before + 1]);
    }

    /// A line of a block, READ between two moments: its stamp looked at before and after.
    fn line(&self, block: usize, line: usize, from: usize, to: usize, random: &mut SplitMix64) -> Line {
        let mut moment = |from: usize| from + random.below((to - from) as u64 + 1) as usize;
        let begin = moment(from);
        let end = moment(begin);
        let words = std::array::from_fn(|word| {
            let at = if word == 0 { begin } else { moment(begin).min(end) };
            self.states[at].lines(block)[line].0[word]
        });
        let mut copy = Line(words);
        if self.states[end].lines(block)[line].stamp() != Stamp(copy.0[0]) {
            copy.0[0] |= 1;
        }
        copy
    }

    /// A GET that walks right from a block: what it finds and when it ends, unless it has to begin anew.
    fn get(&self, key: u64, block: usize, from: usize, random: &mut SplitMix64) -> Option<(Found, usize)> {
        let geometry = self.states[0].geometry;
        let (mut block, mut begin) = (block, from);
        for _ in 0..BLOCKS {
            let length = if random.below(3) == 0 { self.states.len() as u64 } else { 40 };
            let end = (begin + random.below(length) as usize).min(self.states.len() - 1);
            let lines: Vec<Line> = (0..geometry.leaf().leaf_lines())
                .map(|line| self.line(block, line, begin, end, random))
                .collect();
            let mut value = vec![0; geometry.leaf().value_bytes()];
            match search_block(&geometry, &lines, key, &mut value) {
                BlockSearch::Hit(version) => return Some((Some((version, value)), end)),
                BlockSearch::Absent => return Some((None, end)),
                BlockSearch::Right(next) => block = next.0 as usize,
                _ => return None,
            }
            begin = end;
        }
        None
    }

    /// What `key` may be found to be by a READ between two moments.
    fn legal(&self, key: u64, from: usize, to: usize) -> BTreeSet<Found> {
        let models = (from..=to).flat_map(|moment| self.pairs[moment]);
        models
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|model| self.models[model].get(&key).cloned())
            .collect()
    }
}

/// READs of leaves while they change, each checked against what was there meanwhile.
pub(super) fn reads_at_many_moments(value_bytes: usize, random: &mut SplitMix64) {
    let (mut world, mut model) = (World::new(value_bytes), Model::default());
    let (mut answers, mut refusals) = (0_u32, 0_u32);
    // A hint may name any block that was ever in the chain. One whose creation was cut off never was, and
    // nobody knows of it.
    let mut hints = BTreeSet::from([0]);
    for round in 0..ROUNDS {
        let known: Vec<usize> = hints.iter().copied().collect();
        let mut history = History::begin(world, model.pairs.clone());
        for _ in 0..5 {
            let state = history.states.last().unwrap();
            model.pairs.clone_from(history.models.last().unwrap());
            let change = state.random_change(random, &model, is_shrinking(5 * round));
            history.execute(&change, random.below(3) == 0, random);
            hints.extend(history.states.last().unwrap().chain());
        }
        let last = history.states.len() - 1;
        for _ in 0..400 {
            let from = random.below(last as u64) as usize;
            let key = random.below(KEYS);
            let block = known[random.below(known.len() as u64) as usize];
            match history.get(key, block, from, random) {
                None => refusals += 1,
                Some((found, to)) => {
                    answers += 1;
                    let legal = history.legal(key, from, to);
                    assert!(
                        legal.contains(&found),
                        "key {key} from block {block}: {found:?}, legal {legal:?}"
                    );
                }
            }
        }
        world = history.states.pop().unwrap();
        model.pairs = history.models.pop().unwrap();
    }
    assert!(answers > 1_000 && refusals > 300, "{answers} answers, {refusals} refusals");
}
