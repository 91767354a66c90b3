//! Building the radix tree: one walk over the fences in key order, bucket by bucket, which numbers the
//! sub-models as it goes. It can stop behind each bucket: nodes that are not complete are on a stack.
//!
//! A bucket becomes, whichever comes first:
//! 1. part of the sub-model before it, if both together are small and *sharp* (a bucket without fences always
//!    is);
//! 2. a new sub-model, or several equal pieces, if each piece is small and sharp;
//! 3. a list, if few boundaries suffice: they are set at fences, as many as size and sharpness ask;
//! 4. a child node, stripped to the bucket's fences.
//!
//! *Sharp* means that hints tell a sub-model's leaves apart ([`cut`](crate::cut())). It makes clusters split
//! where counts alone would not: leaves of two far clusters under one sub-model would all have one of two
//! hints.

use std::ops::Range;

use crate::cut::{is_sharp, next_start};
use crate::radix::{
    BUCKET_BITS_MAX, Bucket, DEPTH_MAX, NODE_HEADER_WORDS, Node, RadixTop, SUB_MODELS_PER_BUCKET_MAX, piece,
};

/// Buckets of a node at least, if its span has as many keys.
const BUCKETS_MIN: usize = 4;
/// Sub-models that a bucket should have at least to become a node instead of a list.
const LIST_SUB_MODELS_MAX: usize = 16;

/// A tree that is being built, always over the same fences.
#[derive(Debug)]
pub(crate) struct RadixBuild {
    root: Node,
    /// Leaves a sub-model, on average.
    target: usize,
    words: Vec<u64>,
    /// The nodes whose buckets are not all there: each the child of the one before.
    unfinished: Vec<UnfinishedNode>,
    /// The last sub-model numbered, which goes on until the next one begins.
    last_sub_model: Option<u32>,
    /// The first fence inside it, above its least key.
    inner_start: usize,
}

/// A node some of whose buckets are there.
#[derive(Clone, Copy, Debug)]
struct UnfinishedNode {
    node: Node,
    depth: u32,
    /// Its first bucket's word.
    first_word: usize,
    /// The bucket that comes next.
    bucket: u64,
    /// The first fence from that bucket on.
    start: usize,
    /// Behind the node's last fence.
    end: usize,
}

impl RadixBuild {
    /// Begins the tree for these fences, of which the first stands for minus infinity.
    pub(crate) fn new(fences: &[u64], target: usize) -> Self {
        let mut build = Self {
            root: Node { low: 0, span: 0, bucket_bits: 0 },
            target,
            words: Vec::new(),
            unfinished: Vec::new(),
            last_sub_model: None,
            inner_start: 1,
        };
        if fences.len() == 1 {
            build.words.push(Bucket::Pieces { first_sub_model: 0, pieces: 0 }.to_word());
        } else {
            build.root = build.shape(fences, &(1..fences.len()));
            build.begin_node(build.root, 1..fences.len(), 0);
        }
        build
    }

    /// True if [`RadixBuild::finish`] may be called.
    pub(crate) fn is_complete(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// Builds the next bucket: of a few sub-models, or the beginning of a child node.
    pub(crate) fn step(&mut self, fences: &[u64]) {
        let Some(next) = self.unfinished.last_mut() else { return };
        let UnfinishedNode { node, depth, first_word, bucket, start, end } = *next;
        let bucket_end = node.bucket_end(bucket);
        let behind = start + count_to(&fences[start..end], |fence| fence - node.low <= bucket_end);
        if bucket + 1 == node.bucket_count() {
            self.unfinished.pop();
        } else {
            (next.bucket, next.start) = (bucket + 1, behind);
        }
        let built = self.bucket(fences, node, bucket_end, start..behind, depth);
        self.words[first_word + bucket as usize] = built.to_word();
    }

    /// Takes the tree, once it is complete.
    pub(crate) fn finish(&mut self) -> RadixTop {
        assert!(self.is_complete(), "{} nodes unfinished", self.unfinished.len());
        let sub_model_count = self.open_sub_model() + 1;
        RadixTop { sub_model_count, root: self.root, words: std::mem::take(&mut self.words).into() }
    }

    /// A node stripped to these fences, with at most one bucket for two sub-models.
    fn shape(&self, fences: &[u64], range: &Range<usize>) -> Node {
        let low = fences[range.start];
        let span = fences[range.end - 1] - low;
        let buckets_max = (range.len() / (2 * self.target)).max(BUCKETS_MIN) as u64;
        let bits = |value: u64| u64::BITS - value.leading_zeros();
        let mut node = Node { low, span, bucket_bits: bits(span).saturating_sub(bits(buckets_max)) };
        while node.bucket_count() > buckets_max {
            node.bucket_bits += 1;
        }
        debug_assert!(node.bucket_bits <= BUCKET_BITS_MAX, "four buckets or more take at most 62 bits");
        node
    }

    /// Appends room for the node's buckets, which come next.
    fn begin_node(&mut self, node: Node, range: Range<usize>, depth: u32) {
        let first_word = self.words.len();
        self.words.resize(first_word + node.bucket_count() as usize, 0);
        let Range { start, end } = range;
        self.unfinished.push(UnfinishedNode { node, depth, first_word, bucket: 0, start, end });
    }

    /// The bucket with these fences, which ends at distance `bucket_end` of its node.
    fn bucket(
        &mut self,
        fences: &[u64],
        node: Node,
        bucket_end: u64,
        range: Range<usize>,
        depth: u32,
    ) -> Bucket {
        let together = self.inner_start.min(range.start)..range.end;
        if range.is_empty() || (self.is_small(together.len()) && is_sharp(&fences[together])) {
            return Bucket::Pieces { first_sub_model: self.open_sub_model(), pieces: 0 };
        }
        if let Some(bucket) = self.pieces(fences, node, bucket_end, &range) {
            return bucket;
        }
        let deepest = depth + 1 == DEPTH_MAX;
        if deepest || range.len() <= LIST_SUB_MODELS_MAX * self.target {
            return self.list(fences, range);
        }
        self.begin_child(fences, range, depth)
    }

    /// A sub-model, or several equal pieces, if each is small and sharp.
    fn pieces(
        &mut self,
        fences: &[u64],
        node: Node,
        bucket_end: u64,
        range: &Range<usize>,
    ) -> Option<Bucket> {
        // A list starts a small sub-model at its first fence, so that more can join it from the next bucket.
        if range.len() * 2 <= self.target {
            return None;
        }
        let pieces = self.piece_count(node, bucket_end, range.len());
        let piece_of = |fence: u64| piece(fence - node.low, node.bucket_bits, pieces);
        let last_piece = piece(bucket_end, node.bucket_bits, pieces);
        let mut start = range.start;
        let mut last_start = range.end;
        while start < range.end {
            let number = piece_of(fences[start]);
            let rest = &fences[start..range.end];
            let end = start + count_to(rest, |fence| piece_of(fence) == number);
            if end - start > 2 * self.target || !is_sharp(&fences[start..end]) {
                return None;
            }
            if number == last_piece {
                last_start = start;
            }
            start = end;
        }
        let first_sub_model = self.last_sub_model.map_or(0, |last| last + 1);
        self.last_sub_model = Some(first_sub_model + last_piece);
        self.inner_start = last_start;
        Some(Bucket::Pieces { first_sub_model, pieces })
    }

    /// Equal pieces that give a bucket with this many fences sub-models of the target's size. A bucket cut
    /// short by the node's end gets as many as it would have at full length. Those beyond the end have no
    /// keys and no numbers.
    fn piece_count(&self, node: Node, bucket_end: u64, fence_count: usize) -> u64 {
        if self.is_small(fence_count) {
            return 1;
        }
        let bucket_keys = (1_u64 << node.bucket_bits) as f64;
        let keys = (bucket_end & ((1 << node.bucket_bits) - 1)) as f64 + 1.0;
        let pieces = (fence_count as f64 / self.target as f64 * bucket_keys / keys).round() as u64;
        pieces.clamp(1, SUB_MODELS_PER_BUCKET_MAX.min(1 << node.bucket_bits))
    }

    /// A list: the sub-model before goes on while it stays small and sharp, then others begin at fences.
    fn list(&mut self, fences: &[u64], range: Range<usize>) -> Bucket {
        let offset = self.offset();
        let mut sub_model = self.open_sub_model();
        self.words.push(u64::from(sub_model));
        let mut from = range.start;
        while let Some(start) = next_start(fences, self.inner_start.min(from), from, range.end, self.target) {
            self.words.push(fences[start]);
            sub_model += 1;
            self.last_sub_model = Some(sub_model);
            from = start + 1;
            self.inner_start = from;
        }
        let boundaries = (self.words.len() - 1 - offset as usize) as u64;
        assert!(
            boundaries <= SUB_MODELS_PER_BUCKET_MAX,
            "{boundaries} boundaries in the deepest of all nodes"
        );
        Bucket::List { offset, boundaries }
    }

    /// A child node, stripped to these fences, whose buckets come next.
    fn begin_child(&mut self, fences: &[u64], range: Range<usize>, depth: u32) -> Bucket {
        let offset = self.offset();
        let node = self.shape(fences, &range);
        self.words.extend([node.low, node.span]);
        debug_assert_eq!(self.words.len(), offset as usize + NODE_HEADER_WORDS, "the node's header");
        self.begin_node(node, range, depth + 1);
        Bucket::Child { offset, bucket_bits: node.bucket_bits }
    }

    /// The last sub-model numbered; the first one, if there is none yet.
    fn open_sub_model(&mut self) -> u32 {
        *self.last_sub_model.get_or_insert(0)
    }

    fn offset(&self) -> u32 {
        u32::try_from(self.words.len()).expect("fewer than 2^32 words, since fewer sub-models")
    }

    /// Whether this many leaves are still one sub-model.
    fn is_small(&self, leaf_count: usize) -> bool {
        leaf_count * 2 <= self.target * 3
    }
}

/// How many fences, from the first on, satisfy a condition that never becomes true again once it was false.
/// Gallops, since the answer is mostly near.
fn count_to(fences: &[u64], holds: impl Fn(u64) -> bool) -> usize {
    let mut reach = 8;
    while reach < fences.len() && holds(fences[reach]) {
        reach *= 2;
    }
    fences[..reach.min(fences.len())].partition_point(|fence| holds(*fence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn galloping_counts() {
        let fences: Vec<u64> = (0..1000).collect();
        for bound in 0..1001 {
            assert_eq!(count_to(&fences, |fence| fence < bound), bound as usize);
        }
        assert_eq!(count_to(&[], |_| true), 0);
    }
}
