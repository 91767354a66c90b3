//! A static search tree over the low fences of leaves: nodes of sixteen words, all levels full from the left.
//!
//! Invariant: [`StaticTree::locate`] gives, for any key, the last leaf whose low fence is at most the key.
//!
//! A fence `f` is kept as `f - 1` with its highest bit flipped. So "`f` is at most the key" becomes "the word
//! is below the flipped key" in signed order: the one compare that AVX2 has. An inner node holds the first
//! fences of its children but the first, so it has up to seventeen. A leaf node holds sixteen fences and, on
//! its third line, the numbers of their leaves. Unused words are the greatest, below no key.

use farsight_base::LeafNumber;
use farsight_base::search::{NODE_WORDS, words_below};
use farsight_base::words::prefetch;

/// Children of an inner node.
const FAN_OUT: usize = NODE_WORDS + 1;
/// The word below no key.
const UNUSED: i64 = i64::MAX;
/// Levels of the deepest tree: seventeen to this power is above any count of leaves.
const LEVELS_MAX: usize = 9;

const _: () = assert!((FAN_OUT as u128).pow(LEVELS_MAX as u32) > u32::MAX as u128);

#[derive(Clone, Debug)]
#[repr(C, align(128))]
struct InnerNode([i64; NODE_WORDS]);

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct LeafNode {
    fences: [i64; NODE_WORDS],
    leaves: [LeafNumber; NODE_WORDS],
}

/// The tree.
#[derive(Clone, Debug)]
pub struct StaticTree {
    /// Inner nodes, level by level from the root.
    inner: Vec<InnerNode>,
    /// Where each inner level begins.
    level_begins: Vec<usize>,
    leaf_nodes: Vec<LeafNode>,
}

/// The word that is below the flipped key exactly if `fence <= key`; no caller asks for zero.
#[inline(always)]
fn word_of_fence(fence: u64) -> i64 {
    flipped(fence.saturating_sub(1))
}

#[inline(always)]
fn flipped(key: u64) -> i64 {
    (key ^ 1 << 63) as i64
}

impl StaticTree {
    /// The tree over leaves in key order, each with its low fence; the first fence is 0.
    ///
    /// # Panics
    /// Without a leaf, if the first fence is not 0 or fences do not ascend.
    #[must_use]
    pub fn new(leaves: &[(u64, LeafNumber)]) -> Self {
        assert_eq!(leaves.first().map(|(fence, _)| *fence), Some(0), "the first leaf's fence");
        assert!(leaves.is_sorted_by(|a, b| a.0 < b.0), "fences ascend");
        let leaf_nodes: Vec<LeafNode> = leaves.chunks(NODE_WORDS).map(LeafNode::new).collect();
        let mut firsts: Vec<u64> = leaves.chunks(NODE_WORDS).map(|chunk| chunk[0].0).collect();
        let mut levels: Vec<Vec<InnerNode>> = Vec::new();
        while firsts.len() > 1 {
            levels.push(firsts.chunks(FAN_OUT).map(InnerNode::new).collect());
            firsts = firsts.chunks(FAN_OUT).map(|chunk| chunk[0]).collect();
        }
        levels.reverse();
        let mut begin = 0;
        let level_begins = levels.iter().map(|level| {
            begin += level.len();
            begin - level.len()
        });
        let level_begins = level_begins.collect();
        Self { inner: levels.concat(), level_begins, leaf_nodes }
    }

    /// Bytes that the tree takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.inner) + size_of_val(&*self.leaf_nodes)) as u64
    }

    /// The leaf of `key`.
    #[inline]
    #[must_use]
    pub fn locate(&self, key: u64) -> LeafNumber {
        let mut node = 0;
        for begin in &self.level_begins {
            node = self.inner[begin + node].child(node, key);
        }
        self.leaf_nodes[node].leaf(key)
    }

    /// The leaves of `keys`: each level for all keys, then the next, whose nodes are on their way meanwhile.
    ///
    /// # Panics
    /// If there are fewer places than keys.
    #[inline]
    pub fn locate_batch(&self, keys: &[u64], nodes: &mut [u32], leaves: &mut [LeafNumber]) {
        let nodes = &mut nodes[..keys.len()];
        nodes.fill(0);
        for (level, begin) in self.level_begins.iter().enumerate() {
            let next_begin = self.level_begins.get(level + 1);
            for (node, key) in nodes.iter_mut().zip(keys) {
                let child = self.inner[begin + *node as usize].child(*node as usize, *key);
                match next_begin {
                    Some(next_begin) => self.inner[next_begin + child].prefetch(),
                    None => self.leaf_nodes[child].prefetch(),
                }
                *node = child as u32;
            }
        }
        for ((leaf, node), key) in leaves[..keys.len()].iter_mut().zip(nodes).zip(keys) {
            *leaf = self.leaf_nodes[*node as usize].leaf(*key);
        }
    }
}

impl InnerNode {
    fn new(firsts: &[u64]) -> Self {
        let mut words = [UNUSED; NODE_WORDS];
        for (word, fence) in words.iter_mut().zip(&firsts[1..]) {
            *word = word_of_fence(*fence);
        }
        Self(words)
    }

    /// The number in the next level of the child for `key`; `node` is this one's in its level.
    #[inline(always)]
    fn child(&self, node: usize, key: u64) -> usize {
        node * FAN_OUT + words_below(&self.0, flipped(key)).trailing_ones() as usize
    }

    #[inline(always)]
    fn prefetch(&self) {
        prefetch(&self.0[0]);
        prefetch(&self.0[NODE_WORDS / 2]);
    }
}

impl LeafNode {
    fn new(leaves: &[(u64, LeafNumber)]) -> Self {
        let mut node = Self { fences: [UNUSED; NODE_WORDS], leaves: [LeafNumber::NONE; NODE_WORDS] };
        for (index, (fence, leaf)) in leaves.iter().enumerate() {
            node.fences[index] = word_of_fence(*fence);
            node.leaves[index] = *leaf;
        }
        node
    }

    #[inline(always)]
    fn leaf(&self, key: u64) -> LeafNumber {
        // Of the very first leaf, whose fence is 0, the word is not below key 0.
        let count = words_below(&self.fences, flipped(key)).trailing_ones() as usize;
        self.leaves[count.saturating_sub(1)]
    }

    #[inline(always)]
    fn prefetch(&self) {
        prefetch(&self.fences[0]);
        prefetch(&self.fences[NODE_WORDS / 2]);
        prefetch(&self.leaves[0]);
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    fn check(fences: &[u64], keys: impl Iterator<Item = u64>) {
        let leaves: Vec<(u64, LeafNumber)> =
            fences.iter().enumerate().map(|(index, fence)| (*fence, LeafNumber(index as u32 * 3))).collect();
        let tree = StaticTree::new(&leaves);
        assert!(tree.level_begins.len() <= LEVELS_MAX);
        let keys: Vec<u64> = keys.collect();
        let mut batch = vec![LeafNumber::NONE; keys.len()];
        tree.locate_batch(&keys, &mut vec![0; keys.len()], &mut batch);
        for (key, in_batch) in keys.iter().zip(batch) {
            let expected = LeafNumber((fences.partition_point(|fence| fence <= key) as u32 - 1) * 3);
            assert_eq!(tree.locate(*key), expected, "key {key} of {} fences", fences.len());
            assert_eq!(in_batch, expected, "key {key} of {} fences, in a batch", fences.len());
        }
    }

    #[test]
    fn every_key_finds_the_last_fence_below_it() {
        let mut random = SplitMix64::new(5);
        for count in [1, 2, 15, 16, 17, 18, 16 * 17, 16 * 17 + 1, 16 * 17 * 17 + 5, 20_000] {
            for shift in [0, 20, 44] {
                let mut fences: Vec<u64> = (0..count).map(|_| random.next_u64() >> shift).collect();
                fences.extend([0, u64::MAX >> shift]);
                fences.sort_unstable();
                fences.dedup();
                let around =
                    fences.iter().flat_map(|fence| [*fence, fence.wrapping_sub(1), fence.saturating_add(1)]);
                check(&fences, around.chain([0, 1, u64::MAX, 1 << 63, (1 << 63) - 1]));
            }
        }
    }

    #[test]
    fn a_fence_of_one_is_a_fence() {
        check(&[0, 1, 2], 0..5);
    }

    #[test]
    fn it_takes_about_twelve_bytes_and_a_half_a_leaf() {
        let leaves: Vec<(u64, LeafNumber)> =
            (0..200_000).map(|leaf| (u64::from(leaf) << 40, LeafNumber(leaf))).collect();
        let a_leaf = StaticTree::new(&leaves).bytes() as f64 / leaves.len() as f64;
        assert!((12.4..12.6).contains(&a_leaf), "{a_leaf} B a leaf");
    }
}
