//! The regions that a server has.
//!
//! Invariant: numbers begin at one and only grow, so a number names one region for ever. A region is here
//! from its creation until it is withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use farsight_base::RegionId;
use farsight_fabric::{FabricError, RegionRights};

use crate::region::MappedRegion;
use crate::{REGIONS_MAX, os};

/// All of them, by number.
#[derive(Default, Debug)]
pub(crate) struct ServedRegions {
    by_id: BTreeMap<RegionId, Arc<MappedRegion>>,
    last: u32,
}

impl ServedRegions {
    pub(crate) fn create(
        &mut self,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<MappedRegion>, FabricError> {
        let refused = |text: String, remedy: &str| {
            Err(os::system_error("creating a region".to_owned(), &std::io::Error::other(text), remedy))
        };
        if self.by_id.len() == REGIONS_MAX {
            return refused(format!("there are {REGIONS_MAX} already"), "Make fewer, larger regions");
        }
        let Some(id) = self.last.checked_add(1) else {
            return refused("all numbers of regions have been used".to_owned(), "Start the server again");
        };
        let region = Arc::new(MappedRegion::create(RegionId(id), length_bytes, rights)?);
        self.last = id;
        self.by_id.insert(RegionId(id), Arc::clone(&region));
        Ok(region)
    }

    pub(crate) fn get(&self, region: RegionId) -> Option<&Arc<MappedRegion>> {
        self.by_id.get(&region)
    }

    pub(crate) fn withdraw(&mut self, region: RegionId) -> Option<Arc<MappedRegion>> {
        self.by_id.remove(&region)
    }
}
