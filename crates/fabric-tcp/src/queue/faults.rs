//! What a queue pair refuses, and what it says once it is broken.

use farsight_base::RemoteAddress;
use farsight_fabric::refusals::{Extent, Refusal, Verb};
use farsight_fabric::{FabricError, Slot};

use super::{Content, TcpQueue, count};
use crate::frames::VerbKind;
use crate::link::AttachedRegion;

impl TcpQueue {
    /// The region that a verb may touch, with the verb counted.
    #[inline]
    pub(super) fn permit(
        &mut self,
        kind: VerbKind,
        at: RemoteAddress,
        length_bytes: u64,
    ) -> Result<AttachedRegion, Refusal> {
        let region = self.regions.get(at.region).copied();
        let extent = region.map(|region| Extent {
            rights: region.rights,
            length_bytes: region.length_bytes,
            is_withdrawn: region.is_withdrawn,
        });
        self.refusals.permit(self.batch, verb(kind), at, length_bytes, extent)?;
        count(&mut self.batch_meters, kind, length_bytes);
        Ok(region.expect("a verb is permitted where there is a region"))
    }

    /// Holds a verb that goes nowhere.
    #[cold]
    pub(super) fn leave(&mut self, slot: Slot, refusal: Refusal, at: RemoteAddress) {
        self.batch_refused += 1;
        self.hold(slot, Content::Refused(refusal), at);
    }

    /// Breaks the queue over a verb of the batch rung last that the server denied. The batches rung so far
    /// may be looked at; no other begins.
    pub(super) fn deny(&mut self, kind: VerbKind, at: RemoteAddress, length_bytes: u64, reason: String) {
        self.refusals.deny(self.batch - 1, verb(kind), at, length_bytes, reason);
    }

    /// Breaks the queue over what the server sent.
    #[cold]
    pub(super) fn unintelligible(&mut self, what: &'static str, got: String) -> FabricError {
        self.refusals
            .break_down(self.batch, format!("the server sent something unintelligible as {what}: {got}"));
        let (peer, expected) = (self.link.peer().to_owned(), "the results of what was sent".to_owned());
        FabricError::Protocol { peer, what, expected, got }
    }

    /// The queue's own connection ended, or failed: the reason, if the server gave one.
    #[cold]
    pub(super) fn lost(&mut self, what: &str) -> FabricError {
        self.link.await_farewell();
        if let Err(error) = self.link.check() {
            return error;
        }
        self.refusals.break_down(self.batch, format!("the server closed this queue: {what}"));
        self.check(0).err().unwrap_or_else(|| self.link.disconnected(what))
    }

    /// Fails if the connection is dead, or this queue is. A verb that broke it shows in its slot first: until
    /// then `batches` more may begin.
    #[inline]
    pub(super) fn check(&self, batches: u64) -> Result<(), FabricError> {
        self.link.check()?;
        self.refusals.check(self.batch, batches, self.link.peer())
    }

    /// The error of a slot that does not hold what was to be taken.
    #[cold]
    pub(super) fn slot_error(&self, slot: Slot, wanted: &str) -> FabricError {
        let (held, peer) = (&self.slots[slot], self.link.peer());
        match held.content {
            Content::Refused(refusal) => self.refusals.error(refusal, held.address.region, peer),
            content => self.refusals.nothing_to_take(slot, content, wanted, self.link.check(), peer),
        }
    }
}

/// The verb of a kind that is none of calls.
#[inline]
fn verb(kind: VerbKind) -> Verb {
    match kind {
        VerbKind::ReadPlain | VerbKind::ReadStamped | VerbKind::ReadFiltered => Verb::Read,
        VerbKind::Write => Verb::Write,
        VerbKind::CompareSwap => Verb::CompareSwap,
        VerbKind::FetchAdd => Verb::FetchAdd,
        VerbKind::Call => unreachable!("a call has no region"),
    }
}
