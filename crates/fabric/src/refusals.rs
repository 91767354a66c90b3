//! Verbs that go nowhere, and queue pairs that break over them: what is said of them alike on every fabric.
//!
//! Invariant: a queue pair breaks once; its first reason stays.
//!
//! Protocol: a verb is checked when it is posted. The first of these that holds is its [`Refusal`]:
//! 1. The queue pair is broken: the verb is flushed.
//! 2. The region is not attached.
//! 3. The client has heard that the region is withdrawn.
//! 4. The region's rights, the address, the length or the region's end forbid the verb. That breaks the queue
//!    pair, as it does on RDMA.
//!
//! An atomic publishes what the WRITE before it in its batch wrote. So if that WRITE was refused for its
//! region (2, 3), the atomic counts as one on a withdrawn region.
//!
//! Protocol of a verb that breaks its queue pair: its own slot yields [`FabricError::AccessDenied`], every
//! verb posted after it [`FabricError::Disconnected`], and so does every doorbell after that batch's own.

use std::fmt::Debug;

use farsight_base::{LINE_BYTES, RegionId, RemoteAddress};

use crate::{FabricError, RegionRights, Slot};

/// A verb on a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// It fetches whole lines.
    Read,
    /// It stores whole words.
    Write,
    /// An atomic.
    CompareSwap,
    /// Another.
    FetchAdd,
}

/// Why a verb goes nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It broke the queue pair.
    Denied,
    /// It was posted to a broken queue pair.
    Flushed,
    /// Its region is not attached.
    UnknownRegion,
    /// Its region is withdrawn.
    Withdrawn,
}

/// What a client knows of a region that it has attached.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// What clients may do there.
    pub rights: RegionRights,
    /// Where it ends.
    pub length_bytes: u64,
    /// The client has heard that it is withdrawn.
    pub is_withdrawn: bool,
}

/// Why a queue pair is dead.
#[derive(Debug)]
struct Breakage {
    /// The batch in which it broke.
    batch: u64,
    reason: String,
    /// The verb that broke it, if it was one.
    denied: Option<FabricError>,
}

/// What a queue pair refuses, and whether it is broken.
#[derive(Debug)]
pub struct Refusals {
    read_lines_max: usize,
    broken: Option<Box<Breakage>>,
    /// The batch of the newest WRITE, if that was refused for its region.
    unwritten: Option<u64>,
}

impl Refusals {
    /// Of a queue pair whose longest READ has so many lines.
    #[must_use]
    pub const fn new(read_lines_max: usize) -> Self {
        Self { read_lines_max, broken: None, unwritten: None }
    }

    /// True once the queue pair is broken.
    #[inline]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Why the queue pair is broken.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.broken.as_deref().map(|broken| broken.reason.as_str())
    }

    /// Checks a verb of batch `batch` that reaches for `length_bytes` at `at`, where `region` is what the
    /// queue pair knows of.
    ///
    /// # Errors
    /// Why it goes nowhere. [`Refusal::Denied`] breaks the queue pair.
    #[inline]
    pub fn permit(
        &mut self,
        batch: u64,
        verb: Verb,
        at: RemoteAddress,
        length_bytes: u64,
        region: Option<Extent>,
    ) -> Result<(), Refusal> {
        if self.is_broken() {
            return Err(Refusal::Flushed);
        }
        let region = match region {
            Some(region) if !region.is_withdrawn => region,
            gone => return Err(self.refuse_region(batch, verb, gone)),
        };
        if self.unwritten.is_some() && self.is_unwritten(batch, verb) {
            return Err(Refusal::Withdrawn);
        }
        let (allowed, unit_bytes, bytes_max) = match verb {
            Verb::Read => (true, LINE_BYTES as u64, (self.read_lines_max * LINE_BYTES) as u64),
            _ => (region.rights == RegionRights::ReadWrite, 8, u64::MAX),
        };
        let is_inside =
            at.offset_bytes <= region.length_bytes && length_bytes <= region.length_bytes - at.offset_bytes;
        if allowed && at.offset_bytes.is_multiple_of(unit_bytes) && length_bytes <= bytes_max && is_inside {
            return Ok(());
        }
        let reason = if !allowed {
            "clients may only READ this region".to_owned()
        } else if !at.offset_bytes.is_multiple_of(unit_bytes) {
            format!("the address is no multiple of {unit_bytes} B")
        } else if length_bytes > bytes_max {
            format!("one READ fetches at most {} lines", self.read_lines_max)
        } else {
            format!("the region ends at {:#x}", region.length_bytes)
        };
        self.deny(batch, verb, at, length_bytes, reason);
        Err(Refusal::Denied)
    }

    /// Why a verb of batch `batch` does not reach its region, which is not attached or withdrawn.
    #[cold]
    fn refuse_region(&mut self, batch: u64, verb: Verb, region: Option<Extent>) -> Refusal {
        if verb == Verb::Write {
            self.unwritten = Some(batch);
        }
        region.map_or(Refusal::UnknownRegion, |_| Refusal::Withdrawn)
    }

    /// Whether the WRITE that a verb of batch `batch` may publish was refused for its region.
    #[cold]
    fn is_unwritten(&mut self, batch: u64, verb: Verb) -> bool {
        #[cfg(injected)]
        if crate::injected::ATOMIC_BEHIND_REFUSED.is_injected() {
            return false;
        }
        if verb == Verb::Write {
            self.unwritten = None;
        }
        matches!(verb, Verb::CompareSwap | Verb::FetchAdd) && self.unwritten == Some(batch)
    }

    /// Breaks the queue pair over a verb of batch `batch`.
    #[cold]
    pub fn deny(
        &mut self,
        batch: u64,
        verb: Verb,
        address: RemoteAddress,
        length_bytes: u64,
        reason: String,
    ) {
        let verb = match verb {
            Verb::Read => "READ",
            Verb::Write => "WRITE",
            Verb::CompareSwap => "compare_swap",
            Verb::FetchAdd => "fetch_add",
        };
        let denied = FabricError::AccessDenied { verb, address, length_bytes, reason };
        let reason = format!("an earlier verb broke the queue: {denied}");
        self.broken.get_or_insert_with(|| Box::new(Breakage { batch, reason, denied: Some(denied) }));
    }

    /// Breaks the queue pair over something else than a verb.
    #[cold]
    pub fn break_down(&mut self, batch: u64, reason: String) {
        self.broken.get_or_insert_with(|| Box::new(Breakage { batch, reason, denied: None }));
    }

    /// Fails if the queue pair is dead in its open batch `batch`. A verb that broke it shows in its slot
    /// first: until then `batches` more may begin.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`].
    #[inline]
    pub fn check(&self, batch: u64, batches: u64, peer: &str) -> Result<(), FabricError> {
        match self.broken.as_deref() {
            Some(broken) if broken.denied.is_none() || batch > broken.batch + batches => {
                Err(disconnected(peer, &broken.reason))
            }
            _ => Ok(()),
        }
    }

    /// The error of a slot whose verb, on `region`, was refused so.
    ///
    /// # Panics
    /// If nothing broke a queue pair that denied or flushed the verb.
    #[cold]
    #[must_use]
    pub fn error(&self, refusal: Refusal, region: RegionId, peer: &str) -> FabricError {
        match (refusal, self.broken.as_deref()) {
            (Refusal::UnknownRegion, _) => FabricError::UnknownRegion { peer: peer.to_owned(), region },
            (Refusal::Withdrawn, _) => FabricError::RegionWithdrawn { peer: peer.to_owned(), region },
            (Refusal::Denied, Some(Breakage { denied: Some(denied), .. })) => denied.clone(),
            (_, Some(broken)) => disconnected(peer, &broken.reason),
            (_, None) => panic!("{refusal:?} in a queue pair that is not broken"),
        }
    }

    /// The error of a slot that holds `content` where `wanted` was to be taken: why the connection is dead,
    /// by `link`, or why the queue pair is.
    ///
    /// # Panics
    /// If neither is.
    #[cold]
    #[must_use]
    pub fn nothing_to_take(
        &self,
        slot: Slot,
        content: impl Debug,
        wanted: &str,
        link: Result<(), FabricError>,
        peer: &str,
    ) -> FabricError {
        match (link, self.reason()) {
            (Err(error), _) => error,
            (Ok(()), Some(reason)) => disconnected(peer, reason),
            (Ok(()), None) => panic!("slot {slot} holds {content:?} where {wanted} was to be taken"),
        }
    }
}

fn disconnected(peer: &str, reason: &str) -> FabricError {
    FabricError::Disconnected { peer: peer.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RegionId = RegionId(3);
    const OWN: Extent = Extent { rights: RegionRights::ReadWrite, length_bytes: 8 * 64, is_withdrawn: false };
    const LINES_MAX: usize = 4;

    fn at(offset_bytes: u64) -> RemoteAddress {
        RemoteAddress { region: REGION, offset_bytes }
    }

    /// What a verb comes to at a queue pair that is not broken, and the reason if it breaks it.
    fn outcome(
        verb: Verb,
        offset_bytes: u64,
        length_bytes: u64,
        region: Option<Extent>,
    ) -> (Result<(), Refusal>, String) {
        let mut refusals = Refusals::new(LINES_MAX);
        let permitted = refusals.permit(1, verb, at(offset_bytes), length_bytes, region);
        assert_eq!(refusals.is_broken(), permitted == Err(Refusal::Denied));
        (permitted, refusals.reason().unwrap_or_default().to_owned())
    }

    #[test]
    fn whatever_lies_inside_and_is_allowed_goes() {
        let read_only = Extent { rights: RegionRights::ReadOnly, ..OWN };
        for (verb, offset_bytes, length_bytes, region) in [
            (Verb::Read, 0, 4 * 64, read_only),
            (Verb::Read, 8 * 64, 0, read_only),
            (Verb::Read, 7 * 64, 64, OWN),
            (Verb::Write, 8, 8 * 64 - 8, OWN),
            (Verb::CompareSwap, 8 * 63, 8, OWN),
            (Verb::FetchAdd, 0, 8, OWN),
        ] {
            assert_eq!(outcome(verb, offset_bytes, length_bytes, Some(region)).0, Ok(()), "{verb:?}");
        }
    }

    #[test]
    fn the_first_refusal_in_the_written_order_is_named() {
        let forbidding = Extent { rights: RegionRights::ReadOnly, ..OWN };
        let gone = Extent { is_withdrawn: true, ..forbidding };
        let far = u64::MAX - 1;
        assert_eq!(outcome(Verb::Write, far, far, None).0, Err(Refusal::UnknownRegion));
        assert_eq!(outcome(Verb::Write, far, far, Some(gone)).0, Err(Refusal::Withdrawn));
        for (verb, offset_bytes, length_bytes, region, words) in [
            (Verb::Write, far, far, forbidding, "clients may only READ this region"),
            (Verb::Write, far, far, OWN, "no multiple of 8 B"),
            (Verb::Read, 65 * 64 + 8, far, OWN, "no multiple of 64 B"),
            (Verb::Read, 65 * 64, 5 * 64, OWN, "at most 4 lines"),
            (Verb::Read, 6 * 64, 3 * 64, OWN, "the region ends at 0x200"),
            (Verb::FetchAdd, 8 * 64, 8, OWN, "the region ends at 0x200"),
            (Verb::Write, 0, 9 * 64, OWN, "the region ends at 0x200"),
        ] {
            let (refusal, reason) = outcome(verb, offset_bytes, length_bytes, Some(region));
            assert_eq!(refusal, Err(Refusal::Denied), "{verb:?}");
            assert!(reason.contains(words), "{verb:?}: {reason}");
        }
    }

    #[test]
    fn an_atomic_goes_where_the_write_before_it_goes() {
        let mut refusals = Refusals::new(LINES_MAX);
        let mut outcome = |batch, verb, region| refusals.permit(batch, verb, at(0), 8, region);
        let gone = Some(Extent { is_withdrawn: true, ..OWN });
        for (unwritten, expected) in [(gone, Refusal::Withdrawn), (None, Refusal::UnknownRegion)] {
            assert_eq!(outcome(1, Verb::Write, unwritten), Err(expected));
            for verb in [Verb::CompareSwap, Verb::FetchAdd] {
                assert_eq!(
                    outcome(1, verb, Some(OWN)),
                    Err(Refusal::Withdrawn),
                    "{verb:?} publishes nothing"
                );
            }
            assert_eq!(outcome(1, Verb::Write, Some(OWN)), Ok(()), "of itself");
            assert_eq!(outcome(2, Verb::Write, unwritten), Err(expected));
            assert_eq!(outcome(3, Verb::CompareSwap, Some(OWN)), Ok(()), "another batch's");
            assert_eq!(outcome(3, Verb::Write, unwritten), Err(expected));
            assert_eq!(outcome(3, Verb::Write, Some(OWN)), Ok(()));
            assert_eq!(outcome(3, Verb::CompareSwap, Some(OWN)), Ok(()), "behind a WRITE that goes");
        }
    }

    #[test]
    fn a_denied_verb_shows_in_its_slot_and_the_queue_is_dead_behind_its_batch() {
        let mut refusals = Refusals::new(LINES_MAX);
        assert_eq!(refusals.permit(5, Verb::Read, at(8), 64, Some(OWN)), Err(Refusal::Denied));
        assert_eq!(refusals.permit(5, Verb::Read, at(0), 64, Some(OWN)), Err(Refusal::Flushed));
        refusals.break_down(6, "a later reason".to_owned());
        let text = |refusal| refusals.error(refusal, REGION, "peer").to_string();
        assert!(text(Refusal::Denied).starts_with("READ of 64 B"), "{}", text(Refusal::Denied));
        assert!(
            text(Refusal::Flushed).contains("an earlier verb broke the queue: READ"),
            "the first reason stays"
        );
        assert!(
            text(Refusal::Withdrawn).contains("is withdrawn")
                && text(Refusal::UnknownRegion).contains("peer")
        );
        let is_usable = |batch, batches| refusals.check(batch, batches, "peer").is_ok();
        assert!(is_usable(5, 0) && is_usable(6, 1) && !is_usable(6, 0) && !is_usable(7, 1));
    }

    #[test]
    fn a_queue_that_breaks_without_a_verb_is_dead_at_once() {
        let mut refusals = Refusals::new(LINES_MAX);
        assert!(refusals.check(9, 0, "peer").is_ok());
        refusals.break_down(9, "the rings".to_owned());
        let dead = refusals.check(9, 1, "peer").expect_err("it is broken");
        assert!(matches!(&dead, FabricError::Disconnected { reason, .. } if reason == "the rings"), "{dead}");
        let error = refusals.nothing_to_take(1, "a call", "a reply", Ok(()), "peer");
        assert!(matches!(error, FabricError::Disconnected { .. }));
        let error = refusals.nothing_to_take(1, "a call", "a reply", Err(FabricError::Forked), "peer");
        assert!(matches!(error, FabricError::Forked), "the connection's reason counts first");
    }
}
