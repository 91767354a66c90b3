//! Where a leaf of a pool stands: on which memory node, and which block there.
//!
//! Invariant: the engine believes a place that came out of remote bytes only after a check.
//! [`PoolTable::place`] compares it with the pool's nodes and the sizes of their regions.

use farsight_base::{LeafNumber, RegionId, RemoteAddress};
use farsight_layout::pool::BlockGeometry;
use farsight_protocol::Blocks;

/// Memory nodes of a pool at most.
pub const NODES_MAX: usize = 1 << NODE_BITS;

const NODE_BITS: u32 = 4;
const NUMBER_BITS: u32 = LeafNumber::NONE.0.count_ones() - NODE_BITS;

/// A block of a pool: a memory node in the highest four bits, a number on that node in the others. Never
/// [`LeafNumber::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LeafPlace(LeafNumber);

impl LeafPlace {
    /// Blocks that a memory node holds at most.
    pub const BLOCKS_MAX: u32 = (1 << NUMBER_BITS) - 1;

    /// Block `number` of memory node `node`; `None` if no pool has it.
    #[must_use]
    pub fn new(node: usize, number: u32) -> Option<Self> {
        (node < NODES_MAX && number < Self::BLOCKS_MAX)
            .then_some(Self(LeafNumber((node as u32) << NUMBER_BITS | number)))
    }

    /// The memory node, in the pool's order.
    #[must_use]
    pub fn node(self) -> usize {
        (self.0.0 >> NUMBER_BITS) as usize
    }

    /// The block's number on its memory node.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The block alone, on its memory node.
    pub(crate) fn block(self) -> Blocks {
        Blocks { first: self.number(), count: 1 }
    }

    /// The place as a next word holds it.
    #[must_use]
    pub fn leaf_number(self) -> LeafNumber {
        self.0
    }
}

impl std::fmt::Display for LeafPlace {
    /// Counts the pool's memory nodes from 1, as people do.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "leaf {} of the pool's memory node {}", self.number(), self.node() + 1)
    }
}

/// What one memory node holds of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeLeaves {
    /// The region of its leaves.
    pub region: RegionId,
    /// Blocks in that region.
    pub blocks: u32,
}

/// A table in a pool: the shape of its leaves, and where each memory node keeps its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolTable {
    geometry: BlockGeometry,
    nodes: Vec<NodeLeaves>,
}

impl PoolTable {
    /// A table of this shape, with a region of so many bytes on each memory node, in the pool's order.
    ///
    /// # Panics
    /// If there are none or more than [`NODES_MAX`].
    #[must_use]
    pub fn new(geometry: BlockGeometry, regions: &[(RegionId, u64)]) -> Self {
        assert!((1..=NODES_MAX).contains(&regions.len()), "a pool of {} memory nodes", regions.len());
        let blocks = |bytes: u64| (bytes / geometry.bytes() as u64).min(LeafPlace::BLOCKS_MAX.into()) as u32;
        let leaves = |&(region, bytes): &(RegionId, u64)| NodeLeaves { region, blocks: blocks(bytes) };
        Self { geometry, nodes: regions.iter().map(leaves).collect() }
    }

    /// The shape of its leaves.
    #[must_use]
    pub fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    /// What each memory node holds of it.
    #[must_use]
    pub fn nodes(&self) -> &[NodeLeaves] {
        &self.nodes
    }

    /// The place that remote bytes name, if this table has it.
    #[must_use]
    pub fn place(&self, leaf: LeafNumber) -> Option<LeafPlace> {
        let place = LeafPlace(leaf.some()?);
        let node = self.nodes.get(place.node())?;
        (place.number() < node.blocks).then_some(place)
    }

    /// The address of `word` of a leaf's block, on the memory node of its place.
    ///
    /// # Panics
    /// If the place is none of this table's.
    #[must_use]
    pub fn address(&self, place: LeafPlace, word: usize) -> RemoteAddress {
        self.geometry.address(self.nodes[place.node()].region, place.number(), word)
    }
}

const _: () = assert!(NUMBER_BITS == 28);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        for (node, number) in [(0, 0), (15, LeafPlace::BLOCKS_MAX - 1), (3, 77)] {
            let place = LeafPlace::new(node, number).unwrap();
            assert_eq!((place.node(), place.number()), (node, number));
            assert_ne!(place.leaf_number(), LeafNumber::NONE);
        }
        assert_eq!(LeafPlace::new(16, 0), None);
        assert_eq!(LeafPlace::new(15, LeafPlace::BLOCKS_MAX), None);
    }

    #[test]
    fn a_table_refuses_places_that_it_has_not() {
        let geometry = BlockGeometry::new(8).unwrap();
        let table = PoolTable::new(geometry, &[(RegionId(4), 512 * 10 + 1), (RegionId(6), 512 * 2)]);
        let place = |node, number| table.place(LeafPlace::new(node, number).unwrap().leaf_number());
        assert!(place(0, 9).is_some() && place(1, 1).is_some());
        assert!(place(0, 10).is_none() && place(1, 2).is_none() && place(2, 0).is_none());
        assert!(table.place(LeafNumber::NONE).is_none());
        let address = table.address(place(1, 1).unwrap(), 3);
        assert_eq!((address.region, address.offset_bytes), (RegionId(6), 512 + 24));
    }
}
