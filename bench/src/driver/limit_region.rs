//! Memory for the limits: a region as a server makes them, so that the limits run on the same kind of pages.

use std::sync::Arc;

use farsight::FORMAT_VERSION;
use farsight_fabric::{Host, Region, RegionRights};
use farsight_fabric_shm::{ListenOptions, ShmHost};

use super::DriverError;
use super::server_process::socket_directory;
use crate::limits::LimitArrays;

/// A region nobody connects to.
pub struct LimitRegion {
    region: Arc<dyn Region>,
    bytes: u64,
    // Behind the region, whose host it is.
    _host: ShmHost,
}

impl LimitRegion {
    /// Room for the limits of a table of `keys` pairs.
    ///
    /// # Errors
    /// [`DriverError`] without memory.
    pub fn new(keys: u64) -> Result<Self, DriverError> {
        let directory = socket_directory()?;
        // Nobody connects: the socket goes at once with its directory, so that a killed driver leaves none.
        let host = ShmHost::listen(directory.path().join("limits.sock"), ListenOptions::new(FORMAT_VERSION))?;
        let bytes = LimitArrays::leaf_bytes(keys);
        let region = host.create_region(bytes, RegionRights::ReadOnly)?;
        Ok(Self { region, bytes, _host: host })
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &dyn Region {
        &*self.region
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
