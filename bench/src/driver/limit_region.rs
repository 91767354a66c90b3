//! Memory for the limits: a region as a server makes them, so that the limits run on the same kind of pages.

use std::sync::Arc;

use farsight::FORMAT_VERSION;
use farsight_base::LINE_BYTES;
use farsight_fabric::{Host, Region, RegionRights};
use farsight_fabric_shm::{ListenOptions, ShmHost};
use farsight_layout::value_block::block_lines;

use super::server_process::socket_directory;
use super::{DriverError, Values};
use crate::limits::{BlockArray, LimitArrays};

/// Regions nobody connects to.
pub struct LimitRegion {
    leaves: Arc<dyn Region>,
    leaf_bytes: u64,
    blocks: Option<BlockRegion>,
    // Behind the regions, whose host it is.
    _host: ShmHost,
}

/// Memory of blocks, and what each takes.
struct BlockRegion {
    region: Arc<dyn Region>,
    block_bytes: usize,
    value_bytes: usize,
}

impl LimitRegion {
    /// Room for the limits of a table of `keys` pairs of such values.
    ///
    /// # Errors
    /// [`DriverError`] without memory.
    pub fn new(keys: u64, values: Values) -> Result<Self, DriverError> {
        let directory = socket_directory()?;
        // Nobody connects: the socket goes at once with its directory, so that a killed driver leaves none.
        let host = ShmHost::listen(directory.path().join("limits.sock"), ListenOptions::new(FORMAT_VERSION))?;
        let leaf_bytes = LimitArrays::leaf_bytes(keys);
        let leaves = host.create_region(leaf_bytes, RegionRights::ReadOnly)?;
        let of_blocks = |()| {
            let value_bytes = usize::midpoint(values.least_bytes(), values.most_bytes());
            let block_bytes = block_lines(size_of::<u64>(), value_bytes) * LINE_BYTES;
            let region = host.create_region(keys * block_bytes as u64, RegionRights::ReadOnly)?;
            Ok::<_, DriverError>(BlockRegion { region, block_bytes, value_bytes })
        };
        let blocks = values.are_blocks().then_some(()).map(of_blocks).transpose()?;
        Ok(Self { leaves, leaf_bytes, blocks, _host: host })
    }

    /// The limits of a table of these ascending keys, on huge pages if there are.
    #[must_use]
    pub fn arrays(&self, keys: &[u64]) -> LimitArrays<'_> {
        let mut arrays = LimitArrays::new(self.leaves.words(), keys);
        self.leaves.collapse_to_huge_pages(self.leaf_bytes);
        if let Some(BlockRegion { region, block_bytes, value_bytes }) = &self.blocks {
            arrays.set_blocks(BlockArray::new(region.words(), *block_bytes, *value_bytes));
            region.collapse_to_huge_pages(keys.len() as u64 * *block_bytes as u64);
        }
        arrays
    }
}
