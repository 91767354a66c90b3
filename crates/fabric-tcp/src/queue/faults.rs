//! What a queue pair refuses, and what it says once it is broken.

use farsight_base::{LINE_BYTES, RemoteAddress};
use farsight_fabric::{FabricError, Slot};

use super::{Content, TcpQueue, allows, count};
use crate::frames::{READ_LINES_MAX, VerbKind};
use crate::link::AttachedRegion;

/// Why a verb is not posted.
pub(super) enum Refusal {
    Flushed,
    UnknownRegion,
    Withdrawn,
    Denied(String),
}

/// Why the queue is dead.
#[derive(Debug)]
pub(super) struct Breakage {
    /// The batch in which it broke.
    batch: u64,
    reason: String,
    /// The verb that broke it, if it was one.
    denied: Option<FabricError>,
}

impl TcpQueue {
    /// The region that a verb may touch, with the verb counted.
    #[inline]
    pub(super) fn permit(
        &mut self,
        kind: VerbKind,
        at: RemoteAddress,
        length_bytes: u64,
    ) -> Result<AttachedRegion, Refusal> {
        if self.broken.is_some() {
            return Err(Refusal::Flushed);
        }
        let region = *self.regions.get(at.region).ok_or(Refusal::UnknownRegion)?;
        if region.is_withdrawn {
            return Err(Refusal::Withdrawn);
        }
        let denied = |reason: String| Err(Refusal::Denied(reason));
        if !allows(region.rights, kind) {
            return denied("clients may only READ this region".to_owned());
        }
        let unit_bytes = if kind.is_read() { LINE_BYTES as u64 } else { 8 };
        if !at.offset_bytes.is_multiple_of(unit_bytes) {
            return denied(format!("the address is no multiple of {unit_bytes} B"));
        }
        if kind.is_read() && length_bytes > (READ_LINES_MAX * LINE_BYTES) as u64 {
            return denied(format!("one READ fetches at most {READ_LINES_MAX} lines"));
        }
        if at.offset_bytes > region.length_bytes || length_bytes > region.length_bytes - at.offset_bytes {
            return denied(format!("the region ends at {:#x}", region.length_bytes));
        }
        count(&mut self.batch_meters, kind, length_bytes);
        Ok(region)
    }

    /// Records a refused verb; a denied one breaks the queue.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        slot: Slot,
        refusal: Refusal,
        kind: VerbKind,
        at: RemoteAddress,
        length_bytes: u64,
    ) {
        let content = match refusal {
            Refusal::Flushed => Content::Flushed,
            Refusal::UnknownRegion => Content::UnknownRegion,
            Refusal::Withdrawn => Content::Withdrawn,
            Refusal::Denied(reason) => {
                self.deny(self.batch, kind, at, length_bytes, reason);
                Content::Denied
            }
        };
        self.batch_refused += 1;
        self.hold(slot, content, at);
    }

    /// Breaks the queue over a verb of `batch`.
    pub(super) fn deny(
        &mut self,
        batch: u64,
        kind: VerbKind,
        address: RemoteAddress,
        length_bytes: u64,
        reason: String,
    ) {
        let denied = FabricError::AccessDenied { verb: name(kind), address, length_bytes, reason };
        let reason = format!("an earlier verb broke the queue: {denied}");
        let denied = Some(denied);
        self.broken.get_or_insert_with(|| Box::new(Breakage { batch, reason, denied }));
    }

    /// Breaks the queue over something else than a verb.
    fn break_down(&mut self, reason: String) {
        let batch = self.batch;
        self.broken.get_or_insert_with(|| Box::new(Breakage { batch, reason, denied: None }));
    }

    /// Breaks the queue over what the server sent.
    #[cold]
    pub(super) fn unintelligible(&mut self, what: &'static str, got: String) -> FabricError {
        self.break_down(format!("the server sent something unintelligible as {what}: {got}"));
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
        if self.broken.is_none() {
            self.break_down(format!("the server closed this queue: {what}"));
        }
        self.check(0).err().unwrap_or_else(|| self.link.disconnected(what))
    }

    /// Fails if the connection is dead, or this queue is. A verb that broke it shows in its slot first: until
    /// then `batches` more may begin.
    #[inline]
    pub(super) fn check(&self, batches: u64) -> Result<(), FabricError> {
        self.link.check()?;
        match self.broken.as_deref() {
            Some(broken) if broken.denied.is_none() || self.batch > broken.batch + batches => {
                Err(self.link.disconnected(&broken.reason))
            }
            _ => Ok(()),
        }
    }

    /// The error of a slot that does not hold what was to be taken.
    #[cold]
    pub(super) fn slot_error(&self, slot: Slot, wanted: &str) -> FabricError {
        let held = &self.slots[slot];
        let denied = self.broken.as_deref().and_then(|broken| broken.denied.clone());
        match (held.content, self.broken.as_deref()) {
            (Content::UnknownRegion, _) => {
                FabricError::UnknownRegion { peer: self.link.peer().to_owned(), region: held.address.region }
            }
            (Content::Withdrawn, _) => FabricError::RegionWithdrawn {
                peer: self.link.peer().to_owned(),
                region: held.address.region,
            },
            (Content::Denied, _) if let Some(denied) = denied => denied,
            (Content::Flushed | Content::Awaited, Some(broken)) => self.link.disconnected(&broken.reason),
            (Content::Awaited, None) => match self.link.check() {
                Err(error) => error,
                Ok(()) => panic!("slot {slot} is under way still: {wanted} cannot be taken"),
            },
            (content, _) => panic!("slot {slot} holds {content:?} where {wanted} was to be taken"),
        }
    }
}

fn name(kind: VerbKind) -> &'static str {
    match kind {
        VerbKind::ReadPlain | VerbKind::ReadStamped | VerbKind::ReadFiltered => "READ",
        VerbKind::Write => "WRITE",
        VerbKind::CompareSwap => "compare_swap",
        VerbKind::FetchAdd => "fetch_add",
        VerbKind::Call => "a call",
    }
}
