//! A table as its compute nodes know it: where each node keeps index and objects.
//!
//! Invariant: a place that came out of remote bytes is read only if it lies in its node's region.

use farsight_base::{RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_layout::hash_index::{IndexShape, IndexTooSmall, KeyHash, ObjectPlace, SlotPlace};
use farsight_protocol::ValueKind;

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

/// A table, and where its parts are. Objects are on the node of their slots.
#[derive(Clone, Debug)]
pub struct FlexTable {
    nodes: Vec<FlexNode>,
    shape: IndexShape,
    values: ValueKind,
}

/// Where a key may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLines {
    /// On this node.
    pub(crate) node: usize,
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
        // All nodes have the same subtables: those for which the one with the least memory has room.
        let lines = nodes.iter().map(|node| node.index_lines).min().expect("a table has nodes");
        let shape = IndexShape::new(nodes.len(), lines.into())?;
        Ok(Self { nodes, shape, values })
    }

    /// What its values are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.values
    }

    /// Where a key may stand.
    pub(crate) fn lines_of(&self, key: &[u8]) -> KeyLines {
        let hash = KeyHash::of(key);
        let node = self.shape.subtable(hash).node;
        // A region has fewer than 2^32 lines.
        let first_lines = self.shape.first_lines(hash).map(|line| line as u32);
        KeyLines { node, first_lines, hash, fingerprint: KeyHash::fingerprint(key) }
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
