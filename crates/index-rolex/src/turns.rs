//! A write's turn at the gate of its leaf: it waits there for the session that goes before it, and for the
//! outcome if that one takes it along ([`gate`](crate::gate)).
//!
//! Invariant: the wait ends. It lasts as long as one operation waits for a leaf and for the longest lease.
//! Behind that, a write that nobody took ends with an error, and one that was taken with an unknown outcome.

use std::time::Duration;

use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_protocol::{LEASE_MAX, WriteOutcome};

use crate::gate::{End, Entered, Hold, Polled, Ticket};
use crate::overtaken::Watch;
use crate::walk::WAIT_MAX;
use crate::{LeafPlace, RolexError, RolexSession, Write};

/// The shortest pause between two looks at a request.
const LOOK_MIN: Duration = Duration::from_micros(1);
/// The longest.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// A pause is this part of what was waited so far.
const LOOKS_PER_WAIT: u32 = 4;

/// What a write does next.
pub(crate) enum Turn<'g> {
    /// Nothing: another session did it.
    Done(WriteOutcome),
    /// It locks its leaf, with the gate or without, and knows what was seen of its key there meanwhile.
    Go(Option<Hold<'g>>, Watch),
    /// It begins anew: another session found that it concerns more than one leaf, or a trainer.
    Anew,
}

impl RolexSession {
    /// Holds the gate of the leaf at `place`, or waits there; with a ticket, where that was given.
    pub(crate) async fn turn<'g, Q: QueuePair>(
        &'g self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
        write: &Write<'_>,
        ticket: Option<Ticket<'g>>,
    ) -> Result<Turn<'g>, RolexError> {
        let mut ticket = match ticket.map_or_else(|| self.enter(place, write), Entered::Queued) {
            Entered::Held(hold) => return Ok(Turn::Go(Some(hold), Watch::default())),
            Entered::Passed => return Ok(Turn::Go(None, Watch::default())),
            Entered::Queued(ticket) => ticket,
        };
        let begun = slot.now();
        loop {
            if let Some(turn) = turn_of(&mut ticket, write)? {
                return Ok(turn);
            }
            let waited = slot.now().since(begun);
            if waited > WAIT_MAX + LEASE_MAX {
                return Err(out_of_patience(place, write.key, waited, ticket.withdraw()));
            }
            slot.pause((waited / LOOKS_PER_WAIT).clamp(LOOK_MIN, LOOK_MAX)).await;
        }
    }

    fn enter(&self, place: LeafPlace, write: &Write<'_>) -> Entered<'_> {
        self.hints.cache().gates().enter(place, write)
    }
}

/// What a write that waits at a gate does next; `None`: it waits on. Behind any other answer its ticket is of
/// no use.
pub(crate) fn turn_of<'g>(
    ticket: &mut Ticket<'g>,
    write: &Write<'_>,
) -> Result<Option<Turn<'g>>, RolexError> {
    Ok(Some(match ticket.poll(write) {
        Polled::Waiting => return Ok(None),
        Polled::Own(hold, watch) => Turn::Go(hold, watch),
        Polled::Ended(End::Done(outcome)) => Turn::Done(outcome),
        Polled::Ended(End::Own | End::Later) => Turn::Anew,
        Polled::Ended(End::Lost(source)) => {
            return Err(RolexError::Indeterminate { key: write.key, source });
        }
    }))
}

fn out_of_patience(place: LeafPlace, key: u64, waited: Duration, is_taken: bool) -> RolexError {
    if !is_taken {
        return RolexError::Contended { key, place, waited, holder: None };
    }
    let peer = "another session of this process".to_owned();
    let source = FabricError::TimedOut { peer, what: "a write that it took along", waited };
    RolexError::Indeterminate { key, source }
}
