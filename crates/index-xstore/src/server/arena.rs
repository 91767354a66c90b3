//! Where inner nodes live: chunks that double in size, made when they are first needed and never given back.
//!
//! Invariant: a number below the count leads to a node for as long as the arena lives. So a reader may follow a
//! number that it read without a lock.

use std::sync::OnceLock;

use farsight_base::sync::{AtomicU32, Ordering};

use super::node::Node;

/// Nodes of the first chunk; chunk `i` has `2^i` times as many.
const FIRST_CHUNK_NODES: u32 = 64;
/// Chunks that cover all numbers of 32 bits.
const CHUNKS: usize = 27;

/// The inner nodes of one tree.
pub(super) struct Arena {
    chunks: [OnceLock<Box<[Node]>>; CHUNKS],
    count: AtomicU32,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], count: AtomicU32::new(0) }
    }

    /// Takes a fresh node.
    pub(super) fn allocate(&self) -> (u32, &Node) {
        // Relaxed: a number is all that is taken; the chunk orders itself.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (chunk, index) = place(number);
        let nodes =
            self.chunks[chunk].get_or_init(|| (0..FIRST_CHUNK_NODES << chunk).map(|_| Node::new()).collect());
        (number, &nodes[index])
    }

    /// Node `number`; `None` for a number that did not reach the caller by a node's lock, if its chunk has not
    /// either.
    #[inline]
    pub(super) fn node(&self, number: u32) -> Option<&Node> {
        let (chunk, index) = place(number);
        self.chunks[chunk].get().map(|nodes| &nodes[index])
    }

    /// Nodes allocated.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of the chunks made.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().filter_map(OnceLock::get).map(|nodes| size_of_val(&**nodes) as u64).sum()
    }
}

/// The chunk of a node's number, and its place there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let shifted = u64::from(number) + u64::from(FIRST_CHUNK_NODES);
    let chunk = shifted.ilog2() - FIRST_CHUNK_NODES.ilog2();
    (chunk as usize, (shifted - (u64::from(FIRST_CHUNK_NODES) << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunk_after_chunk() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            assert_eq!(place(number), expected);
            expected.1 += 1;
            if expected.1 == (FIRST_CHUNK_NODES as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place(u32::MAX).0, CHUNKS - 1);
    }

    #[test]
    fn nodes_are_distinct_and_stay() {
        let arena = Arena::new();
        for expected in 0..1_000 {
            let (number, node) = arena.allocate();
            assert_eq!(number, expected);
            node.fill(0, &[], &[number]);
        }
        assert!((0..1_000).all(|number| arena.node(number).unwrap().child(0) == number));
        assert_eq!(arena.count(), 1_000);
    }
}
