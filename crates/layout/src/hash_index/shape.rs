//! How a table's index is laid out on its nodes.

use super::{BucketCount, GROUP_BUCKETS, HASH_PARTITIONS, KeyHash};

/// The index of a table, as all nodes and compute nodes of the table know it: subtables of one size, those of
/// a node one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexShape {
    nodes: usize,
    buckets: BucketCount,
}

/// Where a key's subtable stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubtablePlace {
    /// The node, by its index.
    pub node: usize,
    /// The subtable's first line in the node's region.
    pub first_line: u64,
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
    /// The index on so many nodes, each of which has so many lines for it.
    ///
    /// # Errors
    /// [`IndexTooSmall`].
    ///
    /// # Panics
    /// Without nodes.
    pub fn new(nodes: usize, lines: u64) -> Result<Self, IndexTooSmall> {
        let subtables = HASH_PARTITIONS.div_ceil(nodes) as u64;
        let groups = lines / subtables / GROUP_BUCKETS as u64;
        let buckets = u32::try_from(groups * 2).unwrap_or(u32::MAX).min(BucketCount::MAX);
        let buckets = BucketCount::new(buckets).map_err(|_| IndexTooSmall {
            nodes,
            needed_lines: subtables * GROUP_BUCKETS as u64,
            got_lines: lines,
        })?;
        Ok(Self { nodes, buckets })
    }

    /// Buckets of each subtable.
    #[must_use]
    pub fn buckets(self) -> BucketCount {
        self.buckets
    }

    /// Where a key's subtable stands.
    #[must_use]
    pub fn subtable(self, hash: KeyHash) -> SubtablePlace {
        let (partition, lines) = (hash.partition(), u64::from(self.buckets.lines()));
        let first_line = (partition / self.nodes) as u64 * lines;
        SubtablePlace { node: partition % self.nodes, first_line }
    }

    /// The lines of a node's region in which a key's two combined buckets begin.
    #[must_use]
    pub fn first_lines(self, hash: KeyHash) -> [u64; 2] {
        let first_line = self.subtable(hash).first_line;
        hash.places(self.buckets).first_lines.map(|line| first_line + u64::from(line))
    }
}
