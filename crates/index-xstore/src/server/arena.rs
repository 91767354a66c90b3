//! Where inner nodes live: chunks made when they are first needed and never given back. A node that leaves
//! the tree is used again before a fresh one.
//!
//! Invariants:
//! - a number below the count leads to a node for as long as the arena lives. So a reader may follow a number
//!   that it read without a lock;
//! - a node that is not in the tree is locked, and its version goes on where it was. So a reader that comes
//!   late notices.
//!
//! A chunk is small, because a writer that holds a lock may have to make one. The first ones are smaller
//! still, each twice as large as the one before: a small tree takes little.

use std::sync::{OnceLock, PoisonError};

use farsight_base::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

use super::node::{LockedNode, Node};

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
pub(super) struct NodeArena {
    small: [Chunk; SMALL_CHUNKS],
    directories: Box<[Directory]>,
    count: AtomicU32,
    freed: Mutex<Vec<u32>>,
}

impl NodeArena {
    pub(super) fn new() -> Self {
        let directories = (0..DIRECTORIES).map(|_| OnceLock::new()).collect();
        let (count, freed) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        Self { small: Default::default(), directories, count, freed }
    }

    /// Takes a node: one that was given back if there is one, else a fresh one. It is locked until it is
    /// dropped.
    pub(super) fn allocate(&self) -> (u32, LockedNode<'_>) {
        let freed = self.lock_freed().pop();
        let (number, node) = match freed {
            Some(number) => (number, self.node(number).expect("a number that was given out")),
            None => self.allocate_fresh(),
        };
        (number, node.take_unused())
    }

    /// Gives a node back that is no longer in the tree.
    pub(super) fn free(&self, number: u32, node: LockedNode<'_>) {
        node.retire();
        self.lock_freed().push(number);
    }

    fn allocate_fresh(&self) -> (u32, &Node) {
        // Relaxed: a number is all that is taken; the chunk orders itself.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        assert!(number < u32::MAX, "2^32 inner nodes");
        let nodes = |count| (0..count).map(|_| Node::new()).collect();
        match place(number) {
            NodePlace::Small { chunk, index } => {
                let chunk_nodes = self.small[chunk].get_or_init(|| nodes(FIRST_CHUNK_NODES << chunk));
                (number, &chunk_nodes[index])
            }
            NodePlace::Large { directory, chunk, index } => {
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
            NodePlace::Small { chunk, index } => Some(&self.small[chunk].get()?[index]),
            NodePlace::Large { directory, chunk, index } => {
                Some(&self.directories[directory].get()?[chunk].get()?[index])
            }
        }
    }

    /// Nodes in the tree, or on the way there or from there.
    pub(super) fn used_nodes(&self) -> u32 {
        // Relaxed: statistics.
        self.count.load(Ordering::Relaxed) - self.lock_freed().len() as u32
    }

    /// Bytes of the chunks made.
    pub(super) fn bytes(&self) -> u64 {
        // Relaxed: statistics.
        let counted = self.count.load(Ordering::Relaxed) as usize + FIRST_CHUNK_NODES;
        let made = match counted.checked_next_power_of_two() {
            Some(nodes) if nodes <= CHUNK_NODES => nodes,
            _ => counted.next_multiple_of(CHUNK_NODES),
        };
        (made - FIRST_CHUNK_NODES) as u64 * size_of::<Node>() as u64
    }

    fn lock_freed(&self) -> MutexGuard<'_, Vec<u32>> {
        // A push or a pop leaves a list that is whole, even if a thread panics beside it.
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodePlace {
    Small { chunk: usize, index: usize },
    Large { directory: usize, chunk: usize, index: usize },
}

/// The place of a node's number. Counted from the size of the first chunk on, a small chunk begins at a power
/// of two and a large one at a multiple of its size.
#[inline]
fn place(number: u32) -> NodePlace {
    let counted = number as usize + FIRST_CHUNK_NODES;
    if counted < CHUNK_NODES {
        let chunk = counted.ilog2() - FIRST_CHUNK_NODES.ilog2();
        return NodePlace::Small { chunk: chunk as usize, index: counted - (FIRST_CHUNK_NODES << chunk) };
    }
    NodePlace::Large {
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
        assert_eq!(place(0), NodePlace::Small { chunk: 0, index: 0 });
        assert_eq!(place(15), NodePlace::Small { chunk: 0, index: 15 });
        assert_eq!(place(16), NodePlace::Small { chunk: 1, index: 0 });
        assert_eq!(place(1_007), NodePlace::Small { chunk: SMALL_CHUNKS - 1, index: 511 });
        assert_eq!(place(1_008), NodePlace::Large { directory: 0, chunk: 1, index: 0 });
        assert_eq!(place((1 << 21) - 17), NodePlace::Large { directory: 0, chunk: 2_047, index: 1_023 });
        assert_eq!(place((1 << 21) - 16), NodePlace::Large { directory: 1, chunk: 0, index: 0 });
        assert_eq!(place(u32::MAX), NodePlace::Large { directory: DIRECTORIES - 1, chunk: 0, index: 15 });
    }

    #[test]
    fn nodes_are_distinct_and_stay() {
        let arena = NodeArena::new();
        for expected in 0..5_000 {
            let (number, node) = arena.allocate();
            assert_eq!(number, expected);
            node.fill(0, &[], &[number]);
        }
        assert!((0..5_000).all(|number| arena.node(number).unwrap().child(0) == number));
        assert!(arena.node(1 << 30).is_none());
        assert_eq!(
            (arena.used_nodes(), arena.bytes()),
            (5_000, (1_008 + 4 * 1_024) * size_of::<Node>() as u64)
        );
        assert_eq!(NodeArena::new().bytes(), 0);
    }

    #[test]
    fn a_node_that_was_given_back_is_used_before_a_fresh_one() {
        let arena = NodeArena::new();
        let numbers = [(); 3].map(|()| arena.allocate().0);
        assert_eq!((numbers, arena.used_nodes()), ([0, 1, 2], 3));
        let node = arena.node(1).unwrap();
        let version = node.begin_read().unwrap();
        arena.free(1, node.try_lock(version).unwrap());
        assert!(node.begin_read().is_none() && arena.used_nodes() == 2);
        let (number, reused) = arena.allocate();
        assert_eq!((number, arena.used_nodes()), (1, 3));
        drop(reused);
        assert!(!node.is_unchanged(version), "who comes late notices");
        assert_eq!(arena.allocate().0, 3);
    }
}
