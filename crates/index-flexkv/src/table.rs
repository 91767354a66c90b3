//! A table as its compute nodes know it: where each node keeps index and objects.
//!
//! Invariant: a place that came out of remote bytes is read only if it lies in its node's region.

use std::sync::Arc;

use farsight_base::{RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_layout::hash_index::{IndexShape, IndexTooSmall, KeyHash, ObjectPlace, SlotPlace, Subtable};
use farsight_protocol::ValueKind;

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

/// A table, and where its parts are. Objects are on the node of their slots. Its clones share what is known
/// of its directories.
#[derive(Clone, Debug)]
pub struct FlexTable {
    nodes: Vec<FlexNode>,
    /// By node: what each makes of the memory that it has.
    shapes: Vec<IndexShape>,
    directories: Arc<Directories>,
    values: ValueKind,
}

/// Where a key may stand, by what is known of its partition's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLines {
    /// On this node.
    pub(crate) node: usize,
    /// In this subtable.
    pub(crate) subtable: Subtable,
    /// Its combined buckets begin at these lines of the node's index.
    pub(crate) first_lines: [u32; 2],
    pub(crate) hash: KeyHash,
    pub(crate) fingerprint: u8,
}

impl FlexTable {
    /// A table with such values on these nodes, in the pool's order.
    ///
    /// # Errors
    /// [`IndexTooSmall`].
    ///
    /// # Panics
    /// Without nodes.
    pub fn new(nodes: Vec<FlexNode>, values: ValueKind) -> Result<Self, IndexTooSmall> {
        assert!(!nodes.is_empty(), "a table has nodes");
        let shape = |node: &FlexNode| IndexShape::new(nodes.len(), node.index_lines.into());
        let shapes = nodes.iter().map(shape).collect::<Result<_, _>>()?;
        Ok(Self { nodes, shapes, directories: Arc::default(), values })
    }

    /// What its values are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.values
    }

    /// Where a key may stand.
    pub(crate) fn lines_of(&self, key: &[u8]) -> KeyLines {
        let hash = KeyHash::of(key);
        let (node, partition) = (hash.partition() % self.nodes.len(), hash.partition());
        let shape = self.shapes[node];
        let subtable = shape.subtable(hash, |word| self.directories.word(partition, word));
        let first_lines = shape.first_lines(hash, subtable);
        KeyLines { node, subtable, first_lines, hash, fingerprint: KeyHash::fingerprint(key) }
    }

    /// How a node's index is laid out.
    pub(crate) fn shape(&self, node: usize) -> IndexShape {
        self.shapes[node]
    }

    /// What is known of the directories.
    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }

    /// The address of a line of a node's index.
    pub(crate) fn index_address(&self, node: usize, line: u32) -> RemoteAddress {
        RemoteAddress { region: self.nodes[node].index, offset_bytes: u64::from(line) * LINE_BYTES }
    }

    /// The address of a slot, behind the header of its bucket.
    pub(crate) fn slot_address(&self, node: usize, place: SlotPlace) -> RemoteAddress {
        let mut address = self.index_address(node, place.line);
        address.offset_bytes += (1 + u64::from(place.slot)) * 8;
        address
    }

    /// The address of an object, if it lies in its node's region.
    pub(crate) fn object_address(&self, node: usize, place: ObjectPlace) -> Option<RemoteAddress> {
        let FlexNode { objects, object_lines, .. } = self.nodes[node];
        let end = u64::from(place.offset_lines) + u64::from(place.lines);
        let offset_bytes = u64::from(place.offset_lines) * LINE_BYTES;
        (end <= object_lines.into()).then_some(RemoteAddress { region: objects, offset_bytes })
    }
}
