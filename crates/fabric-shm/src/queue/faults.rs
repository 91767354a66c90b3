//! Verbs that are refused, queues that break, and regions that are gone: the slow ways of a queue pair.
//!
//! Invariant: a broken queue has seen [`NEVER`]. So the one look that a batch takes at the link's word leads
//! here.

use farsight_base::{LINE_BYTES, RegionId, RemoteAddress};
use farsight_fabric::refusals::{Extent, Refusal, Verb};
use farsight_fabric::{FabricError, QueuePair as _, ReadMode, Slot};

use super::{Content, NOTHING, Posted, ShmQueue};
use crate::known_region::KnownRegion;
use crate::link_state::NEVER;
use crate::ring::Disorder;

impl ShmQueue {
    /// Checks a verb that reaches for `length_bytes` at `at`. A denied one breaks the queue.
    pub(super) fn permit(&mut self, verb: Verb, at: RemoteAddress, length_bytes: u64) -> Result<(), Refusal> {
        let extent = self.regions.get(at.region).map(|known| Extent {
            rights: known.rights(),
            length_bytes: match verb {
                Verb::Read => known.length_bytes(),
                // What lies on no file cannot be written.
                _ => known.words().len() as u64 * 8,
            },
            is_withdrawn: known.is_withdrawn(),
        });
        let permitted = self.refusals.permit(self.batch, verb, at, length_bytes, extent);
        if permitted == Err(Refusal::Denied) {
            // From now on every check is a close one.
            self.seen = NEVER;
        }
        permitted
    }

    /// Holds a verb on `region` that goes nowhere.
    pub(super) fn leave(&mut self, slot: Slot, region: RegionId, refusal: Refusal) {
        self.batch_refused += 1;
        self.slots[slot] =
            Posted { content: Content::Refused(refusal), batch: self.batch, region, ..NOTHING };
    }

    pub(super) fn break_down(&mut self, reason: String) {
        // From now on every check is a close one.
        self.seen = NEVER;
        self.refusals.break_down(self.batch, reason);
    }

    /// Asks whether a region has grown since, unless all of it is there, or it never comes to have
    /// `end_bytes`. True if it has.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&self, region: RegionId, end_bytes: u64) -> bool {
        let may_come = |known: &&KnownRegion| !known.is_whole() && end_bytes <= known.length_bytes();
        let Some(known) = self.regions.get(region).filter(may_come) else { return false };
        let before = known.words().len();
        // A link that ended meanwhile says so at the next doorbell.
        if let Ok(grown_bytes) = self.link.grow(region) {
            known.grow_to(grown_bytes);
        }
        known.words().len() > before
    }

    /// A READ beyond what the queue pair knows of its region: of what has grown meanwhile, of zeros where it
    /// may grow to, or refused.
    #[cold]
    #[inline(never)]
    pub(super) fn post_read_beyond(
        &mut self,
        slot: Slot,
        from: RemoteAddress,
        line_count: usize,
        mode: ReadMode,
    ) {
        // Each turn has more of the region, and the last all of it.
        let length_bytes = (line_count as u64).saturating_mul(LINE_BYTES as u64);
        let end_bytes = from.offset_bytes.saturating_add(length_bytes);
        if !self.refusals.is_broken() && self.grow(from.region, end_bytes) {
            return self.post_read(slot, from, line_count, mode);
        }
        // The server may just have said that the region is withdrawn.
        if let Some(known) = self.regions.get_mut(from.region) {
            known.let_go_if_withdrawn();
        }
        match self.permit(Verb::Read, from, length_bytes) {
            Ok(()) => self.hold_read(slot, from, line_count, mode),
            Err(refusal) => self.leave(slot, from.region, refusal),
        }
    }

    /// The error of a slot that does not hold what was to be taken.
    #[cold]
    #[inline(never)]
    pub(super) fn slot_error(&self, slot: Slot, wanted: &str) -> FabricError {
        let Posted { content, region, .. } = self.slots[slot];
        let peer = self.link.peer();
        match content {
            Content::Refused(refusal) => self.refusals.error(refusal, region, peer),
            // It was there when the verb was posted.
            Content::NoRegion | Content::PlainRead | Content::StampedRead => {
                // An atomic whose own region is there has no region for the WRITE that it publishes.
                let is_withdrawn = (self.regions.get(region))
                    .is_some_and(|known| known.is_withdrawn() || content == Content::NoRegion);
                let refusal = if is_withdrawn { Refusal::Withdrawn } else { Refusal::UnknownRegion };
                self.refusals.error(refusal, region, peer)
            }
            content => self.refusals.nothing_to_take(slot, content, wanted, self.link.check(), peer),
        }
    }

    /// Breaks the queue over what the server did to its rings.
    pub(super) fn disorder(&mut self, disorder: &Disorder) -> FabricError {
        let reason = format!("the server broke the rings of this queue: {disorder}");
        self.break_down(reason.clone());
        self.link.disconnected(&reason)
    }

    /// Fails if the connection is dead, or this queue is. A verb that broke it shows in its slot first: until
    /// then `batches` more may begin.
    #[inline(always)]
    pub(super) fn check(&mut self, batches: u64) -> Result<(), FabricError> {
        if self.life.is_unchanged(self.seen) { Ok(()) } else { self.check_closely(batches) }
    }

    /// [`ShmQueue::check`] of a queue that is broken, or whose link has changed: withdrawn regions go.
    #[cold]
    #[inline(never)]
    fn check_closely(&mut self, batches: u64) -> Result<(), FabricError> {
        let word = self.link.check_closely()?;
        self.regions.values_mut().for_each(KnownRegion::let_go_if_withdrawn);
        if !self.refusals.is_broken() {
            self.seen = word;
        }
        self.refusals.check(self.batch, batches, self.link.peer())
    }
}
