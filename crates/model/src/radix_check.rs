//! Decoding a radix tree from words that may come from anyone.
//!
//! One walk in key order proves [`RadixTop`]'s invariant. It visits each word once, since every node and list
//! must begin exactly where the preorder puts it. So cycles, overlaps and gaps cannot be written down. It
//! allocates nothing before the words have proved right, and recurses no deeper than trees may be.

use crate::decode_error::DecodeError;
use crate::radix::{
    BUCKET_BITS_MAX, Bucket, DEPTH_MAX, LIST_HEADER_WORDS, NODE_HEADER_WORDS, Node, ROOT_HEADER_WORDS,
    RadixTop, piece,
};
use crate::top::{HEADER_WORDS, length};

impl RadixTop {
    /// The tree of `sub_model_count` (at least one) sub-models in these words.
    pub(crate) fn from_words(sub_model_count: u32, words: &[u64]) -> Result<Self, DecodeError> {
        let &[low, span, bucket_bits, ref array @ ..] = words else {
            return Err(length("the radix tree's header", place(0), HEADER_WORDS + words.len()));
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
        let mut check = Check { array, next: 0, last_sub_model: None, greatest: sub_model_count - 1 };
        check.node(root, 0)?;
        check.end()?;
        Ok(Self { sub_model_count, root, words: array.into() })
    }
}

struct Check<'a> {
    array: &'a [u64],
    /// Where the next node or list in preorder begins.
    next: usize,
    /// The last sub-model of the bucket before.
    last_sub_model: Option<u32>,
    greatest: u32,
}

impl Check<'_> {
    /// The next so many words: their index.
    fn take(&mut self, what: &'static str, count: u64) -> Result<usize, DecodeError> {
        let index = self.next;
        if count > (self.array.len() - index) as u64 {
            return Err(DecodeError::Length {
                what,
                expected: (place(index) as u64).saturating_add(count),
                got: place(self.array.len()) as u64,
            });
        }
        self.next += count as usize;
        Ok(index)
    }

    /// A node whose buckets come next, and all below it.
    fn node(&mut self, node: Node, depth: u32) -> Result<(), DecodeError> {
        let bucket_count = node.bucket_count();
        let first = self.take("a node of the radix tree", bucket_count)?;
        for bucket in 0..bucket_count {
            let index = first + bucket as usize;
            let word = self.array[index];
            let read = Bucket::from_word(word);
            if read.to_word() != word {
                return Err(field("bucket", index, "no other bits than its kind's, of a kind up to 2", word));
            }
            match read {
                Bucket::Pieces { first_sub_model, pieces } => {
                    if pieces > 1 << node.bucket_bits.min(32) {
                        return Err(field("bucket", index, "no more pieces than keys", word));
                    }
                    let last_piece = piece(node.bucket_end(bucket), node.bucket_bits, pieces);
                    self.sub_models(index, first_sub_model, u64::from(last_piece))?;
                }
                Bucket::List { offset, boundaries } => self.list(index, offset, boundaries)?,
                Bucket::Child { offset, bucket_bits } => {
                    if depth + 1 >= DEPTH_MAX {
                        return Err(field("bucket", index, "no child node below eight nodes", word));
                    }
                    self.stands_next(index, offset)?;
                    let header = self.take("a node's header", NODE_HEADER_WORDS as u64)?;
                    let (low, span) = (self.array[header], self.array[header + 1]);
                    self.node(Node { low, span, bucket_bits }, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, index: usize, offset: u32, boundaries: u64) -> Result<(), DecodeError> {
        self.stands_next(index, offset)?;
        let header = self.take("a list", LIST_HEADER_WORDS as u64 + boundaries)?;
        let list = &self.array[header + LIST_HEADER_WORDS..self.next];
        if let Some(disorder) = list.windows(2).position(|pair| pair[0] >= pair[1]) {
            let index = header + LIST_HEADER_WORDS + disorder + 1;
            return Err(field("boundary", index, "more than the boundary before", self.array[index]));
        }
        let first = self.array[header];
        let first = u32::try_from(first).map_err(|_| field("list's sub-model", header, "32 bits", first))?;
        self.sub_models(header, first, boundaries)
    }

    /// The sub-models of the next bucket in key order, `first..=first + more`.
    fn sub_models(&mut self, index: usize, first: u32, more: u64) -> Result<(), DecodeError> {
        let expected_min = self.last_sub_model.unwrap_or(0);
        let expected_max = self.last_sub_model.map_or(0, |last| last.saturating_add(1)).min(self.greatest);
        let last = u64::from(first) + more;
        let order = |expected_max: u32, got| DecodeError::Order {
            word: place(index),
            expected_min: u64::from(expected_min),
            expected_max: u64::from(expected_max),
            got,
        };
        if first < expected_min || first > expected_max {
            return Err(order(expected_max, u64::from(first)));
        }
        if last > u64::from(self.greatest) {
            return Err(order(self.greatest, last));
        }
        self.last_sub_model = Some(last as u32);
        Ok(())
    }

    fn stands_next(&self, index: usize, offset: u32) -> Result<(), DecodeError> {
        if offset as usize == self.next {
            return Ok(());
        }
        let (expected, got) = (self.next as u64, u64::from(offset));
        Err(DecodeError::Offset { word: place(index), expected, got })
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.next != self.array.len() {
            return Err(length("the radix tree", place(self.next), place(self.array.len())));
        }
        match self.last_sub_model {
            Some(last) if last == self.greatest => Ok(()),
            _ => Err(DecodeError::Field {
                what: "sub-model count",
                word: 1,
                expected: "one more than the last sub-model of the last bucket",
                got: u64::from(self.greatest) + 1,
            }),
        }
    }
}

/// The place of an array word among all words of the model.
fn place(index: usize) -> usize {
    HEADER_WORDS + ROOT_HEADER_WORDS + index
}

fn field(what: &'static str, index: usize, expected: &'static str, got: u64) -> DecodeError {
    DecodeError::Field { what, word: place(index), expected, got }
}
