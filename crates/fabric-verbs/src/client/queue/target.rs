//! Where verbs go, and which of them may not go there.
//!
//! Invariant: a verb reaches the card only with an address and a key that the client believes the server's
//! card will take. So an honest client's queue pair does not break over a region. The keys of a withdrawn one
//! are good for a while after the client has heard.

#[cfg(test)]
use farsight_base::RegionId;
use farsight_base::{LINE_BYTES, RemoteAddress};
use farsight_fabric::{FabricError, RegionRights, Slot};

use super::VerbsQueue;
#[cfg(test)]
use crate::client::link::AttachedRegion;
use crate::client::slots::Content;

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
        verb: &'static str,
        at: RemoteAddress,
        length_bytes: u64,
        unit_bytes: u64,
    ) -> Option<(u64, u32)> {
        if self.slots.is_broken() {
            self.slots.leave(slot, Content::Flushed);
            return None;
        }
        let Some(region) = self.regions.get(at.region) else {
            self.slots.leave(slot, Content::UnknownRegion(at.region));
            return None;
        };
        if region.is_withdrawn() {
            self.slots.leave(slot, Content::Withdrawn(at.region));
            return None;
        }
        let denied = |reason: String| FabricError::AccessDenied { verb, address: at, length_bytes, reason };
        let end = at.offset_bytes.checked_add(length_bytes);
        let reason = if verb != "READ" && region.rights != RegionRights::ReadWrite {
            "clients may only READ this region".to_owned()
        } else if !at.offset_bytes.is_multiple_of(unit_bytes) {
            format!("the address is no multiple of {unit_bytes} B")
        } else if verb == "READ" && length_bytes > u64::from(u16::MAX) * LINE_BYTES as u64 {
            format!("one READ fetches at most {} lines", u16::MAX)
        } else if end.is_none_or(|end| end > region.length_bytes) {
            format!("the region ends at {:#x}", region.length_bytes)
        } else {
            return Some((region.address + at.offset_bytes, region.key));
        };
        let denied = denied(reason);
        self.slots.break_down(format!("an earlier verb was refused: {denied}"), Some(denied));
        self.slots.leave(slot, Content::Denied);
        None
    }
}
