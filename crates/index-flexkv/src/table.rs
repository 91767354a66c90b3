//! A table as its compute nodes know it: where each node keeps index and objects.
//!
//! Invariant: a place that came out of remote bytes is read only if it lies in its node's region.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use farsight_base::{RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_index::Key;
use farsight_layout::hash_index::{IndexShape, IndexTooSmall, KeyHash, ObjectPlace, SlotPlace, Subtable};
use farsight_protocol::{KeyKind, ValueKind};

use crate::Values;
use crate::directory::Directories;

/// Bytes of a line.
const LINE_BYTES: u64 = WORDS_PER_LINE as u64 * 8;

/// What one node keeps of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlexNode {
    /// The region of its index.
    pub index: RegionId,
    /// Lines of that.
    pub index_lines: u32,
    /// The region of its objects.
    pub objects: RegionId,
    /// Lines of that.
    pub object_lines: u32,
}

/// One node's copy of a shard: a part of its regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Replica {
    /// The node, by the index of its queue pair.
    pub(crate) node: usize,
    index: RegionId,
    index_first_line: u32,
    objects: RegionId,
    objects_first_line: u32,
}

/// The partitions whose replicas are on the same nodes.
#[derive(Clone, Debug)]
struct Shard {
    shape: IndexShape,
    /// Lines that it has for objects.
    object_lines: u32,
    /// From the head to the tail ([`crate::chain`]).
    chain: Vec<Replica>,
    /// It had more replicas.
    is_shortened: bool,
}

/// A table, and where its parts are. Objects are on the nodes of their slots. Its clones share what is known
/// of its directories.
#[derive(Clone, Debug)]
pub struct FlexTable {
    shards: Vec<Shard>,
    directories: Arc<Directories>,
    keys: KeyKind,
    values: ValueKind,
    /// Tells keys of bytes apart in this process. Nobody knows it who chooses keys.
    secret: RandomState,
}

/// Where a key may stand, by what is known of its partition's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLines {
    /// In this shard.
    pub(crate) shard: usize,
    /// In this subtable.
    pub(crate) subtable: Subtable,
    /// Its combined buckets begin at these lines of the shard's index.
    pub(crate) first_lines: [u32; 2],
    pub(crate) hash: KeyHash,
    pub(crate) fingerprint: u8,
    /// Tells the key from all others in this process: an integer does so exactly. Of bytes it is a second
    /// hash, by a secret. So two keys of one hash are taken for one with a chance of 2^-64, also if somebody
    /// chose them for that.
    pub(crate) identity: u64,
}

/// Why nodes have no such table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnsoundTable {
    /// A node gave it too little memory.
    #[error(transparent)]
    Index(#[from] IndexTooSmall),
    /// All nodes of a shard are lost.
    #[error("no node is left that has pairs of shard {shard}")]
    Lost {
        /// The shard.
        shard: usize,
    },
    /// Nodes gave it different memory, so none has what another one has.
    #[error(
        "nodes that have the same pairs give a table the same memory: expected {expected} lines of index and \
         of objects on node {node}, got {got}. Create it with --memory, or start all nodes alike"
    )]
    Unequal {
        /// The node, by its index.
        node: usize,
        /// What node 0 has.
        expected: String,
        /// What it has.
        got: String,
    },
}

impl FlexTable {
    /// A table with such keys and values on these nodes, in the pool's order. So many of them have each pair.
    /// Those that are lost are `None`, and have no queue pair.
    ///
    /// The partitions whose number leaves remainder `s` by the count of nodes are shard `s`. Its tail is
    /// node `s`, and those before it in the chain are the nodes behind that, round the list. So a node's
    /// regions have a section for its own shard, one for that of the node before, and so on.
    ///
    /// # Errors
    /// [`UnsoundTable`].
    ///
    /// # Panics
    /// Without nodes, or with more replicas than nodes.
    pub fn new(
        nodes: &[Option<FlexNode>],
        (keys, values): (KeyKind, ValueKind),
        replicas: usize,
    ) -> Result<Self, UnsoundTable> {
        assert!((1..=nodes.len()).contains(&replicas), "{replicas} replicas on {} nodes", nodes.len());
        let lines = |node: &FlexNode| (node.index_lines, node.object_lines);
        let first = nodes.iter().flatten().next().expect("a table has nodes");
        let is_unequal =
            |node: &Option<FlexNode>| node.as_ref().is_some_and(|node| lines(node) != lines(first));
        if let (Some(node), true) = (nodes.iter().position(is_unequal), replicas > 1) {
            let got = nodes[node].as_ref().map(lines);
            let [expected, got] = [Some(lines(first)), got].map(|lines| format!("{lines:?}"));
            return Err(UnsoundTable::Unequal { node, expected, got });
        }
        let shard = |shard: usize| Shard::of(nodes, shard, replicas);
        let shards = (0..nodes.len()).map(shard).collect::<Result<_, _>>()?;
        Ok(Self { shards, directories: Arc::default(), keys, values, secret: RandomState::new() })
    }

    /// What its values are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.values
    }

    /// True if its keys are bytes of any length.
    #[must_use]
    pub fn has_byte_keys(&self) -> bool {
        self.keys == KeyKind::Bytes
    }

    /// The key whose bytes stand in an object, if the table may have it.
    pub(crate) fn key_of<'k>(&self, bytes: &'k [u8]) -> Option<Key<'k>> {
        if self.has_byte_keys() { Some(Key::Bytes(bytes)) } else { bytes.try_into().ok().map(Key::Integer) }
    }

    /// Tells a key from all others in this process ([`KeyLines`]).
    pub(crate) fn identity(&self, key: Key<'_>) -> u64 {
        match key {
            Key::Integer(bytes) => u64::from_le_bytes(bytes),
            Key::Bytes(bytes) => self.secret.hash_one(bytes),
        }
    }

    /// Where a key may stand.
    pub(crate) fn lines_of(&self, key: Key<'_>) -> KeyLines {
        let hash = KeyHash::of(key.as_bytes());
        let (shard, partition) = (hash.partition() % self.shards.len(), hash.partition());
        let shape = self.shards[shard].shape;
        let subtable = shape.subtable(hash, |word| self.directories.word(partition, word));
        let first_lines = shape.first_lines(hash, subtable);
        let fingerprint = KeyHash::fingerprint(key.as_bytes());
        KeyLines { shard, subtable, first_lines, hash, fingerprint, identity: self.identity(key) }
    }

    /// How many shards there are: one a node.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// How a shard's index is laid out, on each of its nodes.
    pub(crate) fn shape(&self, shard: usize) -> IndexShape {
        self.shards[shard].shape
    }

    /// The replicas of a shard, from the head to the tail.
    pub(crate) fn chain(&self, shard: usize) -> &[Replica] {
        &self.shards[shard].chain
    }

    /// The replica at which changes begin, whose node gives out memory.
    pub(crate) fn head(&self, shard: usize) -> &Replica {
        self.chain(shard).first().expect("a chain has a replica")
    }

    /// The replica that is read.
    pub(crate) fn tail(&self, shard: usize) -> &Replica {
        self.chain(shard).last().expect("a chain has a replica")
    }

    /// True if pairs are, or were, on several nodes.
    #[must_use]
    pub fn has_replicas(&self) -> bool {
        self.shards.iter().any(|shard| shard.chain.len() > 1 || shard.is_shortened)
    }

    /// What a compute node keeps of its values: nothing yet.
    #[must_use]
    pub fn no_values(&self) -> Values {
        Values::new(self.shards(), self.values)
    }

    /// True if pairs of a shard are on several nodes.
    pub(crate) fn is_replicated(&self, shard: usize) -> bool {
        self.chain(shard).len() > 1
    }

    /// True if a node was lost that had a replica.
    pub(crate) fn is_shortened(&self, shard: usize) -> bool {
        self.shards[shard].is_shortened
    }

    /// What is known of the directories.
    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Lines that a shard has for objects.
    pub(crate) fn object_lines(&self, shard: usize) -> usize {
        self.shards[shard].object_lines as usize
    }

    /// True if a shard has such a place for objects.
    pub(crate) fn has_object(&self, shard: usize, place: ObjectPlace) -> bool {
        u64::from(place.offset_lines) + u64::from(place.lines) <= self.shards[shard].object_lines.into()
    }
}

impl Shard {
    /// A shard on those of its nodes that are there.
    fn of(nodes: &[Option<FlexNode>], number: usize, replicas: usize) -> Result<Self, UnsoundTable> {
        let section_of = |section: usize| ((number + section) % nodes.len(), section);
        let of_node = |(place, section): (usize, usize)| {
            let node = nodes[place]?;
            let (index_lines, object_lines) =
                (node.index_lines / replicas as u32, node.object_lines / replicas as u32);
            let replica = Replica {
                // Queue pairs are of the nodes that are there.
                node: nodes[..place].iter().flatten().count(),
                index: node.index,
                index_first_line: section as u32 * index_lines,
                objects: node.objects,
                objects_first_line: section as u32 * object_lines,
            };
            Some((replica, index_lines, object_lines))
        };
        let chain: Vec<_> = (0..replicas).rev().map(section_of).filter_map(of_node).collect();
        let Some(&(_, index_lines, object_lines)) = chain.first() else {
            return Err(UnsoundTable::Lost { shard: number });
        };
        let shape = IndexShape::new(nodes.len(), index_lines.into())?;
        let is_shortened = chain.len() < replicas;
        let chain = chain.into_iter().map(|(replica, ..)| replica).collect();
        Ok(Self { shape, object_lines, chain, is_shortened })
    }
}

impl Replica {
    /// The address of a line of its index.
    pub(crate) fn index_address(&self, line: u32) -> RemoteAddress {
        let line = u64::from(self.index_first_line) + u64::from(line);
        RemoteAddress { region: self.index, offset_bytes: line * LINE_BYTES }
    }

    /// The address of a slot, behind the header of its bucket.
    pub(crate) fn slot_address(&self, place: SlotPlace) -> RemoteAddress {
        let mut address = self.index_address(place.line);
        address.offset_bytes += (1 + u64::from(place.slot)) * 8;
        address
    }

    /// The address of an object that its shard [has](FlexTable::has_object).
    pub(crate) fn object_address(&self, place: ObjectPlace) -> RemoteAddress {
        let line = u64::from(self.objects_first_line) + u64::from(place.offset_lines);
        RemoteAddress { region: self.objects, offset_bytes: line * LINE_BYTES }
    }
}
