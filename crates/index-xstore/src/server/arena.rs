//! Where inner nodes live: chunks made when they are first needed and never given back.
//!
//! Invariant: a number below the count leads to a node for as long as the arena lives. So a reader may follow
//! a number that it read without a lock.
//!
//! A chunk is small, because a writer that holds a lock may have to make one. The first ones are smaller
//! still, each twice as large as the one before: a small tree takes little.

use std::sync::OnceLock;

use farsight_base::sync::{AtomicU32, Ordering};

use super::node::Node;

/// Nodes of a chunk: half a megabyte. A model makes a chunk for each schedule that it tries.
const CHUNK_NODES: usize = if cfg!(shuttle) { 1 << 2 } else { 1 << 10 };
/// Nodes of the first chunk.
const FIRST_CHUNK_NODES: usize = if cfg!(shuttle) { 1 } else { 1 << 4 };
/// Chunks that are smaller than the others.
const SMALL_CHUNKS: usize = (CHUNK_NODES / FIRST_CHUNK_NODES).ilog2() as usize;
/// Chunks of a directory.
const DIRECTORY_CHUNKS: usize = 1 << 11;
/// Directories that cover all numbers of 32 bits.
const DIRECTORIES: usize = if cfg!(shuttle) { 1 } else { (1 << 11) + 1 };

const _: () = assert!(cfg!(shuttle) || CHUNK_NODES * DIRECTORY_CHUNKS * DIRECTORIES > 1 << u32::BITS);

type Chunk = OnceLock<Box<[Node]>>;
type Directory = OnceLock<Box<[Chunk]>>;

/// The inner nodes of one tree.
pub(super) struct Arena {
    small: [Chunk; SMALL_CHUNKS],
    directories: Box<[Directory]>,
    count: AtomicU32,
}

impl Arena {
    pub(super) fn new() -> Self {
        let directories = (0..DIRECTORIES).map(|_| OnceLock::new()).collect();
        Self { small: Default::default(), directories, count: AtomicU32::new(0) }
    }

    /// Takes a fresh node.
    pub(super) fn allocate(&self) -> (u32, &Node) {
        // Relaxed: a number is all that is taken; the chunk orders itself.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        assert!(number < u32::MAX, "2^32 inner nodes");
        let nodes = |count| (0..count).map(|_| Node::new()).collect();
        match place(number) {
            Place::Small { chunk, index } => {
                let chunk_nodes = self.small[chunk].get_or_init(|| nodes(FIRST_CHUNK_NODES << chunk));
                (number, &chunk_nodes[index])
            }
            Place::Large { directory, chunk, index } => {
                let chunks = self.directories[directory]
                    .get_or_init(|| (0..DIRECTORY_CHUNKS).map(|_| OnceLock::new()).collect());
                (number, &chunks[chunk].get_or_init(|| nodes(CHUNK_NODES))[index])
            }
        }
    }

    /// Node `number`; `None` for a number that did not reach the caller by a node's lock, if its chunk has
    /// not either.
    #[inline]
    pub(super) fn node(&self, number: u32) -> Option<&Node> {
        match place(number) {
            Place::Small { chunk, index } => Some(&self.small[chunk].get()?[index]),
            Place::Large { directory, chunk, index } => {
                Some(&self.directories[directory].get()?[chunk].get()?[index])
            }
        }
    }

    /// Nodes allocated.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of the chunks made.
    pub(super) fn bytes(&self) -> u64 {
        let counted = self.count() as usize + FIRST_CHUNK_NODES;
        let made = match counted.checked_next_power_of_two() {
            Some(nodes) if nodes <= CHUNK_NODES => nodes,
            _ => counted.next_multiple_of(CHUNK_NODES),
        };
        (made - FIRST_CHUNK_NODES) as u64 * size_of::<Node>() as u64
    }
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Small { chunk: usize, index: usize },
    Large { directory: usize, chunk: usize, index: usize },
}

/// The place of a node's number. Counted from the size of the first chunk on, a small chunk begins at a power
/// of two and a large one at a multiple of its size.
#[inline]
fn place(number: u32) -> Place {
    let counted = number as usize + FIRST_CHUNK_NODES;
    if counted < CHUNK_NODES {
        let chunk = counted.ilog2() - FIRST_CHUNK_NODES.ilog2();
        return Place::Small { chunk: chunk as usize, index: counted - (FIRST_CHUNK_NODES << chunk) };
    }
    Place::Large {
        directory: counted / CHUNK_NODES / DIRECTORY_CHUNKS,
        chunk: counted / CHUNK_NODES % DIRECTORY_CHUNKS,
        index: counted % CHUNK_NODES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunk_after_chunk() {
        assert_eq!(place(0), Place::Small { chunk: 0, index: 0 });
        assert_eq!(place(15), Place::Small { chunk: 0, index: 15 });
        assert_eq!(place(16), Place::Small { chunk: 1, index: 0 });
        assert_eq!(place(1_007), Place::Small { chunk: SMALL_CHUNKS - 1, index: 511 });
        assert_eq!(place(1_008), Place::Large { directory: 0, chunk: 1, index: 0 });
        assert_eq!(place((1 << 21) - 17), Place::Large { directory: 0, chunk: 2_047, index: 1_023 });
        assert_eq!(place((1 << 21) - 16), Place::Large { directory: 1, chunk: 0, index: 0 });
        assert_eq!(place(u32::MAX), Place::Large { directory: DIRECTORIES - 1, chunk: 0, index: 15 });
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
        assert_eq!((arena.count(), arena.bytes()), (5_000, (1_008 + 4 * 1_024) * size_of::<Node>() as u64));
        assert_eq!(Arena::new().bytes(), 0);
    }
}
