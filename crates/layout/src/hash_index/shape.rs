//! How a table's index is laid out on one of its nodes.

use super::{
    BucketCount, CLOSINGS, CLOSINGS_LINES, DIRECTORY_LINES, GROUP_BUCKETS, HASH_PARTITIONS, HASH_SPLIT_BITS,
    Halves, KeyHash, Subtable,
};

/// The index of a table on one node: first the directories of the node's partitions, one behind the other,
/// and counters of closings. Then *units* of one size, each of which holds a subtable. The first units are
/// the partitions' subtables before any split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexShape {
    nodes: usize,
    buckets: BucketCount,
    units: u32,
}

/// A region has no room for an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an index on {nodes} nodes needs at least {needed_lines} lines on each, got {got_lines}")]
pub struct IndexTooSmall {
    /// The nodes.
    pub nodes: usize,
    /// The least lines.
    pub needed_lines: u64,
    /// The lines.
    pub got_lines: u64,
}

impl IndexShape {
    /// The index of a table on so many nodes, on one that has so many lines for it.
    ///
    /// All lines are units when every partition has its most subtables: so a subtable has about one part in
    /// `2^HASH_SPLIT_BITS` of a partition's lines.
    ///
    /// # Errors
    /// [`IndexTooSmall`].
    ///
    /// # Panics
    /// Without nodes.
    pub fn new(nodes: usize, lines: u64) -> Result<Self, IndexTooSmall> {
        let partitions = HASH_PARTITIONS.div_ceil(nodes) as u64;
        let needed_lines = Self::units_begin(nodes) + partitions * GROUP_BUCKETS as u64;
        // Lines of a region have numbers of 32 bits.
        let in_units = lines.min(u32::MAX.into()).saturating_sub(Self::units_begin(nodes));
        let groups = (in_units / GROUP_BUCKETS as u64).div_ceil(partitions << HASH_SPLIT_BITS).max(1);
        let buckets = u32::try_from(groups * 2).unwrap_or(u32::MAX).min(BucketCount::MAX);
        let buckets = BucketCount::new(buckets).expect("an even number in bounds");
        let units = (in_units / u64::from(buckets.lines())) as u32;
        if u64::from(units) < partitions {
            return Err(IndexTooSmall { nodes, needed_lines, got_lines: lines });
        }
        Ok(Self { nodes, buckets, units })
    }

    /// The first line behind directories and counters at which a group begins.
    fn units_begin(nodes: usize) -> u64 {
        let behind = HASH_PARTITIONS.div_ceil(nodes) * DIRECTORY_LINES + CLOSINGS_LINES;
        behind.next_multiple_of(GROUP_BUCKETS) as u64
    }

    /// The first of the lines that count closings.
    #[must_use]
    pub fn closings_line(self) -> u32 {
        self.partitions() * DIRECTORY_LINES as u32
    }

    /// The number, among the counters of those lines, of a partition's.
    #[must_use]
    pub fn closings_counter(self, partition: usize) -> usize {
        partition / self.nodes % CLOSINGS
    }

    /// Buckets of each subtable.
    #[must_use]
    pub fn buckets(self) -> BucketCount {
        self.buckets
    }

    /// Units of the node.
    #[must_use]
    pub fn units(self) -> u32 {
        self.units
    }

    /// Partitions of the node, or one more: as many units are theirs before any split.
    #[must_use]
    pub fn partitions(self) -> u32 {
        HASH_PARTITIONS.div_ceil(self.nodes) as u32
    }

    /// The node of a key, by its index.
    #[must_use]
    pub fn node_of(self, hash: KeyHash) -> usize {
        hash.partition() % self.nodes
    }

    /// The first line of a partition's directory in its node's region.
    #[must_use]
    pub fn directory_line(self, partition: usize) -> u32 {
        (partition / self.nodes * DIRECTORY_LINES) as u32
    }

    /// The first line of a unit.
    #[must_use]
    pub fn unit_line(self, unit: u32) -> u32 {
        // Fits: `new` has counted units that end within lines of 32 bits.
        Self::units_begin(self.nodes) as u32 + unit * self.buckets.lines()
    }

    /// The subtable of a partition before any split.
    #[must_use]
    pub fn root(self, partition: usize) -> Subtable {
        Subtable::root((partition / self.nodes) as u32)
    }

    /// The key's subtable, as the words of its partition's directory have it. A word that is none of this
    /// node's ends the way, at a subtable that is sealed.
    #[must_use]
    pub fn subtable(self, hash: KeyHash, word: impl Fn(usize) -> u64) -> Subtable {
        let mut at = self.root(hash.partition());
        while let Some(index) = at.directory_word()
            && let Some(halves) = Halves::parse(word(index), self.units)
        {
            at = at.half(hash.half(at.depth()), halves);
        }
        at
    }

    /// The lines in which a key's two combined buckets begin.
    #[must_use]
    pub fn first_lines(self, hash: KeyHash, of: Subtable) -> [u32; 2] {
        let first_line = self.unit_line(of.unit());
        hash.places(self.buckets).first_lines.map(|line| first_line + line)
    }

    /// Where the slots of a line of some unit stand in the unit of this subtable. A split leaves each slot at
    /// its place in the unit.
    #[must_use]
    pub fn line_in(self, of: Subtable, line: u32) -> u32 {
        let (first_line, lines) = (self.unit_line(of.unit()), self.buckets.lines());
        if (first_line..first_line + lines).contains(&line) {
            return line;
        }
        first_line + line.saturating_sub(self.unit_line(0)) % lines
    }
}
