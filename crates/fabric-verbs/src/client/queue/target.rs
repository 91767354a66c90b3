//! Where verbs go, and which of them may not go there.
//!
//! Invariant: a verb reaches the card only with an address and a key that the client believes the server's
//! card will take. So an honest client's queue pair does not break over a region. The keys of a withdrawn one
//! are good for a while after the client has heard.

#[cfg(test)]
use farsight_base::RegionId;
use farsight_base::RemoteAddress;
use farsight_fabric::Slot;
use farsight_fabric::refusals::{Extent, Verb};

use super::VerbsQueue;
#[cfg(test)]
use crate::client::link::AttachedRegion;

impl VerbsQueue {
    /// What the client believes of an attached region.
    #[cfg(test)]
    pub(in crate::client) fn region_mut(&mut self, region: RegionId) -> &mut AttachedRegion {
        self.regions.get_mut(region).expect("an attached region")
    }

    /// Where the server's card finds `length_bytes` at `at`, and under which key; `None`, with the slot
    /// marked, if the verb may not go there.
    pub(super) fn target(
        &mut self,
        slot: Slot,
        verb: Verb,
        at: RemoteAddress,
        length_bytes: u64,
    ) -> Option<(u64, u32)> {
        let region = self.regions.get(at.region);
        let extent = region.map(|region| Extent {
            rights: region.rights,
            length_bytes: region.length_bytes,
            is_withdrawn: region.is_withdrawn(),
        });
        match self.slots.refusals.permit(self.slots.batch, verb, at, length_bytes, extent) {
            Ok(()) => region.map(|region| (region.address + at.offset_bytes, region.key)),
            Err(refusal) => {
                self.slots.leave(slot, refusal, at.region);
                None
            }
        }
    }
}
