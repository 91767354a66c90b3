//! The top model that survives skew: an adaptive radix tree over the keys' bits. Its buckets dispatch
//! linearly or, where keys are too uneven for that, by a short list of boundaries. All in integers, so
//! nothing rounds.
//!
//! A node covers the keys `low..=low + span`, cut into buckets of `2^bucket_bits` keys, the last one perhaps
//! shorter. Keys outside are clamped to the nearer end, so a node is exactly as wide as the fences that it
//! has to tell apart. A bucket is one word, lowest bits first:
//!
//! - *pieces* `{first sub-model 32, pieces 24, 0 6, 0 2}`: the bucket is cut into that many equal pieces, one
//!   sub-model each, from the first. Zero and one piece are the same: a bucket of one sub-model.
//! - *list* `{offset 32, boundaries 24, 0 6, 1 2}`: at this offset of the word array stands a sub-model, then
//!   that many boundaries in order. A key goes as many sub-models further as there are boundaries at or below
//!   it.
//! - *child* `{offset 32, bucket_bits 6, 0 24, 2 2}`: at this offset stands a node of finer buckets: its low,
//!   its span, its buckets.
//!
//! Buckets may share sub-models: one begins with the sub-model that the one before ends with, or with the
//! next. Dispatch to a bucket of pieces in the root reads one word of the array.
//!
//! Invariant (built so, and checked when decoded, in `radix_check`): nodes and lists stand in preorder, each
//! referred to once. So no path returns and the depth is bounded. From bucket to bucket in key order the
//! first sub-model is the last of the bucket before, or the next. The last of all is the greatest. Hence
//! dispatch is total, monotone and in bounds.
//!
//! Words: `low`, `span`, `bucket_bits` of the root, then the array.

/// Nodes on a path at most.
pub(crate) const DEPTH_MAX: u32 = 8;
/// Pieces or boundaries of a bucket at most.
pub(crate) const SUB_MODELS_PER_BUCKET_MAX: u64 = (1 << 24) - 1;
/// Words of a child node before its buckets.
pub(crate) const NODE_HEADER_WORDS: usize = 2;
/// Words of a list before its boundaries.
pub(crate) const LIST_HEADER_WORDS: usize = 1;
/// Bits of a bucket at most: a node has two buckets at least when its span needs 64 bits.
pub(crate) const BUCKET_BITS_MAX: u32 = 63;
/// Words of the root's header, in front of the array.
pub(crate) const ROOT_HEADER_WORDS: usize = 3;

const KIND_SHIFT: u32 = 62;
const KIND_LIST: u64 = 1;
const KIND_CHILD: u64 = 2;
const FIELD_SHIFT: u32 = 32;

/// Lists up to this many boundaries are counted through, longer ones searched by halving.
const COUNTED_BOUNDARIES_MAX: usize = 16;

/// The radix tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadixTop {
    pub(crate) sub_model_count: u32,
    pub(crate) root: Node,
    /// The root's buckets, then the other nodes and the lists in preorder.
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

    /// The number of buckets; 2^64 counts as one less.
    pub(crate) fn bucket_count(self) -> u64 {
        (self.span >> self.bucket_bits).saturating_add(1)
    }

    /// The greatest distance in this bucket.
    pub(crate) fn bucket_end(self, bucket: u64) -> u64 {
        (bucket << self.bucket_bits | ((1 << self.bucket_bits) - 1)).min(self.span)
    }
}

/// A bucket, read from its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// Equal pieces, one sub-model each.
    Pieces { first_sub_model: u32, pieces: u64 },
    /// A list of boundaries, here.
    List { offset: u32, boundaries: u64 },
    /// A child node, here.
    Child { offset: u32, bucket_bits: u32 },
}

impl Bucket {
    /// The word; the only encoder.
    pub(crate) fn to_word(self) -> u64 {
        let word = |low: u32, field: u64, kind: u64| {
            debug_assert!(field <= SUB_MODELS_PER_BUCKET_MAX, "{field} does not fit a bucket");
            u64::from(low) | field << FIELD_SHIFT | kind << KIND_SHIFT
        };
        match self {
            Self::Pieces { first_sub_model, pieces } => word(first_sub_model, pieces, 0),
            Self::List { offset, boundaries } => word(offset, boundaries, KIND_LIST),
            Self::Child { offset, bucket_bits } => word(offset, u64::from(bucket_bits), KIND_CHILD),
        }
    }

    /// The bucket of any word; bits that no encoder sets are ignored.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        let field = word >> FIELD_SHIFT & SUB_MODELS_PER_BUCKET_MAX;
        match word >> KIND_SHIFT {
            0 => Self::Pieces { first_sub_model: word as u32, pieces: field },
            KIND_LIST => Self::List { offset: word as u32, boundaries: field },
            _ => Self::Child { offset: word as u32, bucket_bits: field as u32 & BUCKET_BITS_MAX },
        }
    }
}

/// The piece, of `pieces` equal ones, of the bucket in which this distance lies: `floor(offset * pieces /
/// 2^bucket_bits)`, by a multiplication whose high half is the answer. The shift drops the bits above the
/// bucket's own. For a bucket of one key it drops none, and its one piece is 0 all the same.
#[inline]
pub(crate) fn piece(distance: u64, bucket_bits: u32, pieces: u64) -> u32 {
    let fraction = distance.wrapping_shl(u64::BITS - bucket_bits);
    ((u128::from(fraction) * u128::from(pieces)) >> u64::BITS) as u32
}

impl RadixTop {
    /// The sub-model of `key`.
    #[inline]
    #[must_use]
    pub fn dispatch(&self, key: u64) -> u32 {
        let (word, at_once) = self.dispatch_by_root(key);
        if let Some(sub_model) = at_once { sub_model } else { self.dispatch_below(word, key) }
    }

    /// [`RadixTop::dispatch`] if the root's bucket says it, as it does for most keys that are spread evenly.
    #[inline(always)]
    #[must_use]
    pub fn dispatch_at_once(&self, key: u64) -> Option<u32> {
        self.dispatch_by_root(key).1
    }

    /// The word of the root's bucket of `key`, and what it says.
    #[inline(always)]
    fn dispatch_by_root(&self, key: u64) -> (u64, Option<u32>) {
        let distance = self.root.distance(key);
        let word = self.words[self.root.bucket(distance)];
        let at_once = match Bucket::from_word(word) {
            Bucket::Pieces { first_sub_model, pieces } => {
                Some(first_sub_model + piece(distance, self.root.bucket_bits, pieces))
            }
            _ => None,
        };
        (word, at_once)
    }

    fn dispatch_below(&self, word: u64, key: u64) -> u32 {
        let mut word = word;
        // The distance and the bucket's bits in the node that the word was found in; a word of pieces is
        // never the first.
        let (mut distance, mut bits) = (0, 0);
        loop {
            match Bucket::from_word(word) {
                Bucket::Pieces { first_sub_model, pieces } => {
                    return first_sub_model + piece(distance, bits, pieces);
                }
                Bucket::List { offset, boundaries } => {
                    return self.dispatch_list(offset as usize, boundaries as usize, key);
                }
                Bucket::Child { offset, bucket_bits } => {
                    let offset = offset as usize;
                    let (low, span) = (self.words[offset], self.words[offset + 1]);
                    let node = Node { low, span, bucket_bits };
                    distance = node.distance(key);
                    bits = bucket_bits;
                    word = self.words[offset + NODE_HEADER_WORDS + node.bucket(distance)];
                }
            }
        }
    }

    #[inline]
    fn dispatch_list(&self, offset: usize, boundaries: usize, key: u64) -> u32 {
        let first_sub_model = self.words[offset] as u32;
        let list = &self.words[offset + LIST_HEADER_WORDS..][..boundaries];
        let passed = if boundaries <= COUNTED_BOUNDARIES_MAX {
            list.iter().map(|boundary| u32::from(*boundary <= key)).sum()
        } else {
            list.partition_point(|boundary| *boundary <= key) as u32
        };
        first_sub_model + passed
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
}
