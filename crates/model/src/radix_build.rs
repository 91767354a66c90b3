//! Building the radix tree: one walk over the fences in key order, which numbers the sub-models as it goes.
//!
//! A bucket becomes, whichever comes first:
//! 1. nothing of its own, if it has no fence: it shares the sub-model before it;
//! 2. part of the sub-model before it, if both together are small and *sharp*: hints tell their leaves apart;
//! 3. a sub-model, or several equal pieces, if each piece is small and sharp;
//! 4. a child node, stripped to the bucket's fences.
//!
//! Sharpness makes clusters split where counts alone would not: leaves of two far clusters under one sub-model
//! would all have one of two hints.

use std::ops::Range;

use crate::hint::expected_ties;
use crate::radix::{
    BUCKET_BITS_MAX, DEPTH_MAX, NODE_HEADER_WORDS, Node, PIECES_MAX, RadixTop, child_word, piece,
    terminal_word,
};

/// Ties a leaf that a sub-model may cost.
const TIES_PER_LEAF_MAX: f64 = 0.01;
/// Buckets of a node at least, if its span has as many keys.
const BUCKETS_MIN: u64 = 4;

/// The tree for these fences, of which the first stands for minus infinity.
pub(crate) fn build(fences: &[u64], target: usize) -> RadixTop {
    if fences.len() == 1 {
        let root = Node { low: 0, span: 0, bucket_bits: 0 };
        return RadixTop { sub_model_count: 1, root, words: Box::new([terminal_word(0, 0)]) };
    }
    let mut builder = Builder { fences, target, words: Vec::new(), sub_model_count: 0, last_start: 1 };
    let root = builder.shape(&(1..fences.len()));
    builder.node(root, 1..fences.len(), 0);
    RadixTop { sub_model_count: builder.sub_model_count, root, words: builder.words.into_boxed_slice() }
}

struct Builder<'a> {
    fences: &'a [u64],
    /// Leaves a sub-model, on average.
    target: usize,
    words: Vec<u64>,
    /// Sub-models numbered so far.
    sub_model_count: u32,
    /// The first fence of the last of them.
    last_start: usize,
}

impl Builder<'_> {
    /// A node stripped to these fences, with at most one bucket for two sub-models.
    fn shape(&self, range: &Range<usize>) -> Node {
        let low = self.fences[range.start];
        let span = self.fences[range.end - 1] - low;
        let buckets_max = (range.len() / (2 * self.target)).max(BUCKETS_MIN as usize) as u64;
        let bits = |value: u64| u64::BITS - value.leading_zeros();
        let mut node = Node { low, span, bucket_bits: bits(span).saturating_sub(bits(buckets_max)) };
        while node.bucket_count() > buckets_max {
            node.bucket_bits += 1;
        }
        debug_assert!(node.bucket_bits <= BUCKET_BITS_MAX);
        node
    }

    /// Appends the node's buckets, and all nodes below.
    fn node(&mut self, node: Node, range: Range<usize>, depth: u32) {
        let first_word = self.words.len();
        let bucket_count = node.bucket_count();
        self.words.resize(first_word + bucket_count as usize, 0);
        let mut start = range.start;
        for bucket in 0..bucket_count {
            let bucket_end = node.bucket_end(bucket);
            let rest = &self.fences[start..range.end];
            let end = start + count_to(rest, |fence| fence - node.low <= bucket_end);
            self.words[first_word + bucket as usize] = self.bucket(node, bucket, start..end, depth);
            start = end;
        }
    }

    /// The word of a bucket with these fences.
    fn bucket(&mut self, node: Node, bucket: u64, range: Range<usize>, depth: u32) -> u64 {
        if range.is_empty() {
            return terminal_word(self.sub_model_count - 1, 0);
        }
        if self.sub_model_count > 0 {
            let shared = self.last_start..range.end;
            if shared.len() * 2 <= self.target * 3 && self.is_sharp(&shared) {
                return terminal_word(self.sub_model_count - 1, 0);
            }
        }
        if let Some(word) = self.pieces(node, bucket, &range) {
            return word;
        }
        if depth + 1 < DEPTH_MAX && node.bucket_bits > 0 {
            return self.child(range, depth);
        }
        self.add_sub_models(1, range.start)
    }

    /// A sub-model, or several equal pieces, if each is small and sharp.
    fn pieces(&mut self, node: Node, bucket: u64, range: &Range<usize>) -> Option<u64> {
        let bucket_end = node.bucket_end(bucket);
        let pieces = self.piece_count(node, bucket_end, range.len());
        let piece_of = |fence: u64| piece(fence - node.low, node.bucket_bits, pieces);
        let last_piece = piece(bucket_end, node.bucket_bits, pieces);
        let mut start = range.start;
        let mut last_start = range.end;
        while start < range.end {
            let number = piece_of(self.fences[start]);
            let rest = &self.fences[start..range.end];
            let end = start + count_to(rest, |fence| piece_of(fence) == number);
            if end - start > 2 * self.target || !self.is_sharp(&(start..end)) {
                return None;
            }
            if number == last_piece {
                last_start = start;
            }
            start = end;
        }
        let first_sub_model = self.add_sub_models(last_piece + 1, last_start);
        Some(first_sub_model | terminal_word(0, pieces))
    }

    /// Equal pieces that give a bucket with this many fences sub-models of the target's size. A bucket cut short
    /// by the node's end gets as many as it would have at full length: those beyond the end have no keys and no
    /// numbers.
    fn piece_count(&self, node: Node, bucket_end: u64, fence_count: usize) -> u64 {
        if fence_count * 2 <= self.target * 3 {
            return 1;
        }
        let bucket_keys = (1_u64 << node.bucket_bits) as f64;
        let keys = (bucket_end & ((1 << node.bucket_bits) - 1)) as f64 + 1.0;
        let pieces = (fence_count as f64 / self.target as f64 * bucket_keys / keys).round() as u64;
        pieces.clamp(1, PIECES_MAX.min(1 << node.bucket_bits))
    }

    /// A child node, stripped to these fences; the bucket's word.
    fn child(&mut self, range: Range<usize>, depth: u32) -> u64 {
        let offset =
            u32::try_from(self.words.len()).expect("2^32 words of a tree need more leaves than memory holds");
        let node = self.shape(&range);
        self.words.extend([node.low, node.span]);
        debug_assert_eq!(self.words.len(), offset as usize + NODE_HEADER_WORDS);
        self.node(node, range, depth + 1);
        child_word(offset, node.bucket_bits)
    }

    /// Numbers more sub-models, of which the last begins with fence `last_start`; a terminal word of the first.
    fn add_sub_models(&mut self, count: u32, last_start: usize) -> u64 {
        let word = terminal_word(self.sub_model_count, 0);
        self.sub_model_count += count;
        self.last_start = last_start;
        word
    }

    /// Whether hints tell the leaves of one sub-model apart, all but a few ties.
    fn is_sharp(&self, range: &Range<usize>) -> bool {
        expected_ties(&self.fences[range.clone()]) <= TIES_PER_LEAF_MAX * range.len() as f64
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
