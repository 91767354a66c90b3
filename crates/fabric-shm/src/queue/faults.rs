//! Verbs that are refused, queues that break, and regions that are gone: the slow ways of a queue pair.
//!
//! Invariant: a broken queue has seen [`NEVER`]. So the one look that a batch takes at the link's word leads
//! here.

use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};
use farsight_fabric::chained::line_address;
use farsight_fabric::{FabricError, QueuePair, Slot};

use super::{Content, NOTHING, Posted, ShmQueue};
use crate::chained::Stop;
use crate::known_region::KnownRegion;
use crate::link::NEVER;
use crate::ring::Disorder;

/// Why a verb was not posted.
pub(super) enum Refusal {
    NoRegion,
    Denied(String),
}

/// Why the queue is dead.
#[derive(Debug)]
pub(super) struct Breakage {
    /// The batch in which it broke.
    pub(super) batch: u64,
    pub(super) reason: String,
    /// The verb that broke it, if it was one.
    pub(super) denied: Option<FabricError>,
}

impl ShmQueue {
    /// Records a refused verb; a denied one breaks the queue.
    pub(super) fn refuse(
        &mut self,
        slot: Slot,
        refusal: Refusal,
        verb: &'static str,
        at: RemoteAddress,
        length_bytes: u64,
    ) {
        match refusal {
            Refusal::NoRegion => self.leave(slot, at, Content::NoRegion),
            Refusal::Denied(reason) => {
                let denied = FabricError::AccessDenied { verb, address: at, length_bytes, reason };
                self.break_down(format!("an earlier verb broke the queue: {denied}"), Some(denied));
                self.leave(slot, at, Content::Denied);
            }
        }
    }

    pub(super) fn leave(&mut self, slot: Slot, at: RemoteAddress, content: Content) {
        self.batch_refused += 1;
        let place = u64::from(at.region.0);
        self.slots[slot] = Posted { place, content, batch: self.batch, ..NOTHING };
    }

    pub(super) fn break_down(&mut self, reason: String, denied: Option<FabricError>) {
        let batch = self.batch;
        // From now on every check is a close one.
        self.seen = NEVER;
        self.broken.get_or_insert_with(|| Box::new(Breakage { batch, reason, denied }));
    }

    #[cold]
    #[inline(never)]
    pub(super) fn post_refused_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize) {
        if self.broken.is_some() {
            return self.leave(slot, from, Content::Flushed);
        }
        let region = self.regions.get(from.region).filter(|region| !region.is_withdrawn());
        let refusal = match region {
            None => Refusal::NoRegion,
            Some(_) if !from.offset_bytes.is_multiple_of(LINE_BYTES as u64) => {
                Refusal::Denied(format!("the address is no multiple of {LINE_BYTES} B"))
            }
            Some(_) if line_count > usize::from(u16::MAX) => {
                Refusal::Denied(format!("one READ fetches at most {} lines", u16::MAX))
            }
            Some(region) => Refusal::Denied(format!("the region ends at {:#x}", region.words().len() * 8)),
        };
        let length_bytes = (line_count as u64).saturating_mul(LINE_BYTES as u64);
        self.refuse(slot, refusal, "READ", from, length_bytes);
    }

    /// What a READ that is refused comes to when it is taken.
    #[cold]
    #[inline(never)]
    pub(super) fn read_refused(&mut self, from: RemoteAddress, into: &mut [Line]) -> Result<(), FabricError> {
        self.post_refused_read(0, from, into.len());
        self.doorbell()?;
        self.take_read(0, into)
    }

    /// What a READ without a slot that stopped comes to.
    #[cold]
    #[inline(never)]
    pub(super) fn stopped(&mut self, region: RegionId, stop: Stop) -> FabricError {
        match stop {
            Stop::Dead(error) => error,
            Stop::Outside { line, count } => {
                let refused = self.read_refused(line_address(region, line), &mut vec![Line::ZERO; count]);
                refused.expect_err("a READ outside of its region is refused")
            }
        }
    }

    /// The error of a slot that does not hold what was to be taken.
    #[cold]
    #[inline(never)]
    pub(super) fn slot_error(&self, slot: Slot, wanted: &str) -> FabricError {
        let posted = self.slots[slot];
        match (posted.content, self.broken.as_deref()) {
            (Content::NoRegion, _) => self.no_region(RegionId(posted.place as u32)),
            // It was there when the READ was posted.
            (Content::PlainRead | Content::StampedRead, _) => self.no_region(posted.region),
            (Content::Denied, Some(Breakage { denied: Some(denied), .. })) => denied.clone(),
            (Content::Flushed | Content::AwaitedCall, Some(broken)) => self.link.disconnected(&broken.reason),
            (Content::AwaitedCall, None) => match self.link.check() {
                Err(error) => error,
                Ok(()) => panic!("slot {slot} still waits for its reply: {wanted} cannot be taken"),
            },
            (content, _) => panic!("slot {slot} holds {content:?} where {wanted} was to be taken"),
        }
    }

    /// Breaks the queue over what the server did to its rings.
    pub(super) fn disorder(&mut self, disorder: &Disorder) -> FabricError {
        let reason = format!("the server broke the rings of this queue: {disorder}");
        self.break_down(reason.clone(), None);
        self.link.disconnected(&reason)
    }

    /// The error of a verb whose region is not there.
    fn no_region(&self, region: RegionId) -> FabricError {
        let peer = self.link.peer().to_owned();
        match self.regions.get(region) {
            Some(known) if known.is_withdrawn() => FabricError::RegionWithdrawn { peer, region },
            _ => FabricError::UnknownRegion { peer, region },
        }
    }

    /// Fails if the connection is dead, or this queue is. A verb that broke it shows in its slot first: until
    /// then `batches` more may begin.
    #[inline(always)]
    pub(super) fn check(&mut self, batches: u64) -> Result<(), FabricError> {
        if self.link.is_unchanged(self.seen) { Ok(()) } else { self.check_closely(batches) }
    }

    /// [`ShmQueue::check`] of a queue that is broken, or whose link has changed: withdrawn regions go.
    #[cold]
    #[inline(never)]
    fn check_closely(&mut self, batches: u64) -> Result<(), FabricError> {
        let word = self.link.check_closely()?;
        self.regions.values_mut().for_each(KnownRegion::let_go_if_withdrawn);
        match self.broken.as_deref() {
            Some(broken) if broken.denied.is_none() || self.batch > broken.batch + batches => {
                Err(self.link.disconnected(&broken.reason))
            }
            Some(_) => Ok(()),
            None => {
                self.seen = word;
                Ok(())
            }
        }
    }
}
