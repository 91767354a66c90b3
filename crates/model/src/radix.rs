//! The top model that survives skew: an adaptive radix tree over the keys' bits whose buckets dispatch linearly.
//! All in integers, so nothing rounds.
//!
//! A node covers the keys `low..=low + span`, cut into buckets of `2^bucket_bits` keys, the last one perhaps
//! shorter. Keys outside are clamped to the nearer end, so a node is exactly as wide as the fences that it has to
//! tell apart. A bucket is one word:
//!
//! - *terminal*: `{first sub-model 32, pieces 24, 0}`, lowest bits first: the bucket is cut into that many equal
//!   pieces, one sub-model each, from the first. Zero and one piece are the same. Neighbouring buckets may share
//!   a sub-model: one begins with the sub-model that the other ends with.
//! - *child*: `{offset 32, bucket_bits 6, 0.., 1}`: a node of finer buckets, at this offset of the word array:
//!   its low, its span, its buckets.
//!
//! Dispatch to a terminal bucket of the root reads one word of the array.
//!
//! Invariant (built so, and checked when decoded): nodes stand in preorder, each referred to once, so that no
//! path returns and the depth is bounded; from bucket to bucket in key order the first sub-model is the last one
//! of the bucket before, or the next; the first of all is 0 and the last of all the greatest. Hence dispatch is
//! total, monotone, and reaches every sub-model.
//!
//! Words: `low`, `span`, `bucket_bits` of the root, then the array.

use crate::decode_error::DecodeError;
use crate::top::{HEADER_WORDS, length};

/// Nodes on a path at most.
pub(crate) const DEPTH_MAX: u32 = 16;
/// Pieces of a bucket at most.
pub(crate) const PIECES_MAX: u64 = (1 << 24) - 1;
/// Words of a child node before its buckets.
pub(crate) const NODE_HEADER_WORDS: usize = 2;
/// Bits of a bucket at most: a node has two buckets at least when its span needs 64 bits.
pub(crate) const BUCKET_BITS_MAX: u32 = 63;

/// Words of the root's header, in front of the array.
const ROOT_HEADER_WORDS: usize = 3;
const CHILD_BIT: u64 = 1 << 63;
const PIECES_SHIFT: u32 = 32;
const BUCKET_BITS_SHIFT: u32 = 32;

/// The radix tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadixTop {
    pub(crate) sub_model_count: u32,
    pub(crate) root: Node,
    /// The root's buckets, then the other nodes in preorder.
    pub(crate) words: Box<[u64]>,
}

/// A node's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    /// The key that counts as 0.
    pub(crate) low: u64,
    /// Keys above `low`.
    pub(crate) span: u64,
    /// Logarithm of a bucket's keys.
    pub(crate) bucket_bits: u32,
}

impl Node {
    /// The key's distance from `low`, clamped into `0..=span`.
    #[inline]
    fn distance(self, key: u64) -> u64 {
        key.saturating_sub(self.low).min(self.span)
    }

    /// The bucket of a distance.
    #[inline]
    fn bucket(self, distance: u64) -> usize {
        (distance >> self.bucket_bits) as usize
    }

    /// The number of buckets.
    pub(crate) fn bucket_count(self) -> u64 {
        (self.span >> self.bucket_bits).saturating_add(1)
    }

    /// The greatest distance in this bucket.
    pub(crate) fn bucket_end(self, bucket: u64) -> u64 {
        (bucket << self.bucket_bits | ((1 << self.bucket_bits) - 1)).min(self.span)
    }
}

/// The word of a terminal bucket.
pub(crate) fn terminal_word(first_sub_model: u32, pieces: u64) -> u64 {
    debug_assert!(pieces <= PIECES_MAX, "{pieces} pieces do not fit a bucket");
    u64::from(first_sub_model) | pieces << PIECES_SHIFT
}

/// The word of a bucket with a child node.
pub(crate) fn child_word(offset: u32, bucket_bits: u32) -> u64 {
    u64::from(offset) | u64::from(bucket_bits) << BUCKET_BITS_SHIFT | CHILD_BIT
}

/// The piece, of `pieces` equal ones, of the bucket in which this distance lies: `floor(offset * pieces /
/// 2^bucket_bits)`, by a multiplication whose high half is the answer. The shift drops the bits above the bucket's
/// own; for a bucket of one key it drops none, and its one piece is 0 all the same.
#[inline]
pub(crate) fn piece(distance: u64, bucket_bits: u32, pieces: u64) -> u32 {
    let fraction = distance.wrapping_shl(u64::BITS - bucket_bits);
    ((u128::from(fraction) * u128::from(pieces)) >> u64::BITS) as u32
}

fn pieces_of(terminal: u64) -> u64 {
    terminal >> PIECES_SHIFT & PIECES_MAX
}

#[inline]
fn dispatch_terminal(word: u64, distance: u64, bucket_bits: u32) -> u32 {
    word as u32 + piece(distance, bucket_bits, pieces_of(word))
}

impl RadixTop {
    /// The sub-model of `key`.
    #[inline]
    #[must_use]
    pub fn dispatch(&self, key: u64) -> u32 {
        let distance = self.root.distance(key);
        let word = self.words[self.root.bucket(distance)];
        if word & CHILD_BIT == 0 {
            dispatch_terminal(word, distance, self.root.bucket_bits)
        } else {
            self.dispatch_below(word, key)
        }
    }

    fn dispatch_below(&self, child: u64, key: u64) -> u32 {
        let mut child = child;
        loop {
            let node = self.node(child);
            let distance = node.distance(key);
            let word = self.words[child as u32 as usize + NODE_HEADER_WORDS + node.bucket(distance)];
            if word & CHILD_BIT == 0 {
                return dispatch_terminal(word, distance, node.bucket_bits);
            }
            child = word;
        }
    }

    fn node(&self, child: u64) -> Node {
        let offset = child as u32 as usize;
        Node {
            low: self.words[offset],
            span: self.words[offset + 1],
            bucket_bits: (child >> BUCKET_BITS_SHIFT) as u32 & BUCKET_BITS_MAX,
        }
    }

    /// Memory of the tree, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words)
    }

    pub(crate) fn append_words(&self, words: &mut Vec<u64>) {
        words.extend([self.root.low, self.root.span, u64::from(self.root.bucket_bits)]);
        words.extend_from_slice(&self.words);
    }

    pub(crate) fn from_words(sub_model_count: u32, words: &[u64]) -> Result<Self, DecodeError> {
        let &[low, span, bucket_bits, ref array @ ..] = words else {
            return Err(length(
                "the radix header",
                HEADER_WORDS + ROOT_HEADER_WORDS,
                HEADER_WORDS + words.len(),
            ));
        };
        if bucket_bits > u64::from(BUCKET_BITS_MAX) {
            return Err(DecodeError::Field {
                what: "bits of a root bucket",
                word: HEADER_WORDS + 2,
                expected: "0 to 63",
                got: bucket_bits,
            });
        }
        let root = Node { low, span, bucket_bits: bucket_bits as u32 };
        let mut check = Check { array, next_node: 0, last_sub_model: None, sub_model_count };
        check.node(root, 0)?;
        check.end()?;
        Ok(Self { sub_model_count, root, words: array.into() })
    }
}

/// The walk over foreign words, in key order, that proves the invariant.
struct Check<'a> {
    array: &'a [u64],
    /// Where the next node in preorder begins: no node reaches beyond it before it is visited.
    next_node: usize,
    /// The last sub-model of the bucket before.
    last_sub_model: Option<u32>,
    sub_model_count: u32,
}

impl Check<'_> {
    /// A node whose buckets begin at `next_node`, and all below it.
    fn node(&mut self, node: Node, depth: u32) -> Result<(), DecodeError> {
        let first = self.next_node;
        let bucket_count = node.bucket_count();
        if bucket_count > (self.array.len() - first) as u64 {
            return Err(DecodeError::Length {
                what: "a node of the radix tree",
                expected: (place(first) as u64).saturating_add(bucket_count),
                got: place(self.array.len()) as u64,
            });
        }
        self.next_node = first + bucket_count as usize;
        for bucket in 0..bucket_count {
            let index = first + bucket as usize;
            let word = self.array[index];
            if word & CHILD_BIT == 0 {
                self.terminal(index, word, node, bucket)?;
            } else {
                let child = self.child(index, word, depth)?;
                self.node(child, depth + 1)?;
            }
        }
        Ok(())
    }

    fn terminal(&mut self, index: usize, word: u64, node: Node, bucket: u64) -> Result<(), DecodeError> {
        let pieces = pieces_of(word);
        if word >> 56 != 0 || u128::from(pieces) > 1 << node.bucket_bits {
            return Err(DecodeError::Field {
                what: "terminal bucket",
                word: place(index),
                expected: "at most 24 bits of pieces, and no more than the bucket has keys",
                got: word,
            });
        }
        let expected_min = self.last_sub_model.unwrap_or(0);
        let expected_max = self.last_sub_model.map_or(0, |last| u64::from(last) + 1);
        let first = word as u32;
        if first < expected_min || u64::from(first) > expected_max {
            return Err(order(index, expected_min, expected_max, u64::from(first)));
        }
        let last = u64::from(first) + u64::from(piece(node.bucket_end(bucket), node.bucket_bits, pieces));
        if last >= u64::from(self.sub_model_count) {
            return Err(order(index, expected_min, u64::from(self.sub_model_count) - 1, last));
        }
        self.last_sub_model = Some(last as u32);
        Ok(())
    }

    fn child(&mut self, index: usize, word: u64, depth: u32) -> Result<Node, DecodeError> {
        let bucket_bits = (word >> BUCKET_BITS_SHIFT) & u64::from(BUCKET_BITS_MAX);
        if word != child_word(word as u32, bucket_bits as u32) || depth + 1 >= DEPTH_MAX {
            return Err(DecodeError::Field {
                what: "bucket with a child",
                word: place(index),
                expected: "bits 38 to 62 zero, and fewer than 16 levels above",
                got: word,
            });
        }
        let offset = word as u32 as usize;
        if offset != self.next_node {
            return Err(DecodeError::ChildOffset {
                word: place(index),
                expected: self.next_node as u64,
                got: offset as u64,
            });
        }
        let Some(&[low, span]) = self.array.get(offset..offset + NODE_HEADER_WORDS) else {
            return Err(length(
                "a node's header",
                place(offset) + NODE_HEADER_WORDS,
                place(self.array.len()),
            ));
        };
        self.next_node = offset + NODE_HEADER_WORDS;
        Ok(Node { low, span, bucket_bits: bucket_bits as u32 })
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.next_node != self.array.len() {
            return Err(length("the radix tree", place(self.next_node), place(self.array.len())));
        }
        let greatest = self.sub_model_count - 1;
        match self.last_sub_model {
            Some(last) if last == greatest => Ok(()),
            last => Err(DecodeError::Field {
                what: "sub-model count",
                word: 1,
                expected: "one more than the last sub-model that a bucket names",
                got: u64::from(last.unwrap_or(0)),
            }),
        }
    }
}

/// The place of an array word among all words of the model.
fn place(index: usize) -> usize {
    HEADER_WORDS + ROOT_HEADER_WORDS + index
}

fn order(index: usize, expected_min: u32, expected_max: u64, got: u64) -> DecodeError {
    DecodeError::Order { word: place(index), expected_min: u64::from(expected_min), expected_max, got }
}
