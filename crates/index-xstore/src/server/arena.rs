//! Where inner nodes live: chunks made when they are first needed and never given back.
//!
//! Invariant: a number below the count leads to a node for as long as the arena lives. So a reader may follow
//! a number that it read without a lock.
//!
//! A chunk is small, because a writer that holds a lock may have to make one.

use std::sync::OnceLock;

use farsight_base::sync::{AtomicU32, Ordering};

use super::node::Node;

/// Nodes of a chunk: half a megabyte. A model makes a chunk for each schedule that it tries.
const CHUNK_NODES: usize = if cfg!(shuttle) { 1 << 2 } else { 1 << 10 };
/// Chunks of a directory.
const DIRECTORY_CHUNKS: usize = 1 << 10;
/// Directories that cover all numbers of 32 bits.
const DIRECTORIES: usize = if cfg!(shuttle) { 1 } else { 1 << 12 };

const _: () = assert!(cfg!(shuttle) || CHUNK_NODES * DIRECTORY_CHUNKS * DIRECTORIES == 1 << u32::BITS);

type Chunk = OnceLock<Box<[Node]>>;
type Directory = OnceLock<Box<[Chunk]>>;

/// The inner nodes of one tree.
pub(super) struct Arena {
    directories: Box<[Directory]>,
    count: AtomicU32,
}

impl Arena {
    pub(super) fn new() -> Self {
        let directories = (0..DIRECTORIES).map(|_| OnceLock::new()).collect();
        Self { directories, count: AtomicU32::new(0) }
    }

    /// Takes a fresh node.
    pub(super) fn allocate(&self) -> (u32, &Node) {
        // Relaxed: a number is all that is taken; the chunk orders itself.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        assert!(number < u32::MAX, "2^32 inner nodes");
        let (directory, chunk, index) = place(number);
        let chunks = self.directories[directory]
            .get_or_init(|| (0..DIRECTORY_CHUNKS).map(|_| OnceLock::new()).collect());
        let nodes = chunks[chunk].get_or_init(|| (0..CHUNK_NODES).map(|_| Node::new()).collect());
        (number, &nodes[index])
    }

    /// Node `number`; `None` for a number that did not reach the caller by a node's lock, if its chunk has
    /// not either.
    #[inline]
    pub(super) fn node(&self, number: u32) -> Option<&Node> {
        let (directory, chunk, index) = place(number);
        let nodes = self.directories[directory].get()?[chunk].get()?;
        Some(&nodes[index])
    }

    /// Nodes allocated.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of the chunks made.
    pub(super) fn bytes(&self) -> u64 {
        (self.count() as usize).next_multiple_of(CHUNK_NODES) as u64 * size_of::<Node>() as u64
    }
}

/// The directory of a node's number, the chunk there, and the place in that.
#[inline]
fn place(number: u32) -> (usize, usize, usize) {
    let number = number as usize;
    (number / CHUNK_NODES / DIRECTORY_CHUNKS, number / CHUNK_NODES % DIRECTORY_CHUNKS, number % CHUNK_NODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunk_after_chunk() {
        assert_eq!(place(CHUNK_NODES as u32 - 1), (0, 0, CHUNK_NODES - 1));
        assert_eq!(place(CHUNK_NODES as u32), (0, 1, 0));
        assert_eq!(place(1 << 20), (1, 0, 0));
        assert_eq!(place(u32::MAX), (DIRECTORIES - 1, DIRECTORY_CHUNKS - 1, CHUNK_NODES - 1));
    }

    #[test]
    fn nodes_are_distinct_and_stay() {
        let arena = Arena::new();
        for expected in 0..5_000 {
            let (number, node) = arena.allocate();
            assert_eq!(number, expected);
            node.fill(0, &[], &[number]);
        }
        assert!((0..5_000).all(|number| arena.node(number).unwrap().child(0) == number));
        assert!(arena.node(1 << 30).is_none());
        assert_eq!((arena.count(), arena.bytes()), (5_000, 5 * 1_024 * size_of::<Node>() as u64));
    }
}
