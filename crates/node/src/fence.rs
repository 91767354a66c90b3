//! Fences: how a compute node that holds a lock for too long is kept from writing.
//!
//! Invariant: a fence is done when no client of the compute node is left here. What that may cost the compute
//! node is its connections, which it makes anew under another number. It costs a process only under four
//! conditions. Nothing less keeps the client from writing (shared memory, where its kernel refuses a
//! userfaultfd). This node has itself seen the compute node's lock stand in a leaf for a whole lease. The
//! client was told to leave and has not for [`TOLD_FOR_MIN`]. Its process serves no memory itself. The
//! operator is told which process was killed.
//!
//! Protocol: a fence blocks no worker. Who asks is told when to ask again, until it is done.

use std::sync::TryLockError;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;
use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Departure, FabricError, Lingering};
use farsight_layout::pool::LockWord;
use farsight_protocol::{ErrorCode, Fenced, LockSeen, ServerError};

use crate::compute_nodes::Identity;
use crate::leases::Leases;
use crate::{NodeState, Service as _};

/// How long a client that was told to leave has time to, before its process is ended.
const TOLD_FOR_MIN: Duration = Duration::from_secs(1);
/// When to ask again about something that ends soon.
const SOON: Duration = Duration::from_millis(10);
/// When to ask again about something that may last.
const LATER: Duration = Duration::from_millis(100);

/// A lock that was seen to stand for a whole lease.
struct Lapsed {
    seen: LockSeen,
    held_for: Duration,
}

impl NodeState {
    /// Ends every connection of a compute node, or says when to ask again.
    pub(crate) fn fence(
        &self,
        identity: Identity,
        seen: Option<LockSeen>,
        now: MonotonicNs,
    ) -> Result<Fenced, ServerError> {
        self.check_coordinator(identity.coordinator)?;
        if seen.is_some() {
            // The lock's word may be damaged. Who is fenced without a lock has ended at another node.
            self.compute_nodes().check_number(identity)?;
        }
        let mut leases = match self.fencing.try_lock() {
            Ok(guard) => guard,
            // A bug that ends all answers.
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Ok(Fenced::wait(SOON, "another fence is under way at its memory node"));
            }
        };
        if self.compute_nodes().clients(identity).is_empty() {
            return Ok(Fenced::Done);
        }
        let lapsed = match seen {
            None => None,
            Some(seen) => match self.look(identity, seen, &mut leases, now)? {
                Ok(lapsed) => Some(lapsed),
                Err(wait) => return Ok(wait),
            },
        };
        self.dismiss(identity, lapsed.as_ref(), leases.lease()).or_else(|error| {
            // It may go another time: a client that is slow to come to rest, or a signal that was refused.
            Ok(Fenced::wait(LATER, format!("it could not be fenced: {error}")))
        })
    }

    /// Ends every connection of all compute nodes. What is waited for, if that takes longer.
    pub(crate) fn dismiss_all(&self) -> Option<Fenced> {
        self.dismiss_up_to(u32::MAX)
    }

    /// The same of those whose numbers are not above `newest`.
    pub(crate) fn dismiss_up_to(&self, newest: u32) -> Option<Fenced> {
        let Ok(leases) = self.fencing.try_lock() else {
            return Some(Fenced::wait(SOON, "a fence is under way at this memory node"));
        };
        let all = self.compute_nodes().all();
        for identity in all.into_iter().filter(|identity| identity.compute_node.0 <= newest) {
            match self.dismiss(identity, None, leases.lease()) {
                Ok(Fenced::Done) => {}
                Ok(wait) => return Some(wait),
                Err(error) => return Some(Fenced::wait(LATER, format!("{identity:?}: {error}"))),
            }
        }
        None
    }

    /// Whether a lock has stood for a lease; if not, when it will have.
    fn look(
        &self,
        identity: Identity,
        seen: LockSeen,
        leases: &mut Leases,
        now: MonotonicNs,
    ) -> Result<Result<Lapsed, Fenced>, ServerError> {
        if LockWord(seen.word).owner() != Some(identity.compute_node.0) {
            let text = format!("lock word {:#018x} is not one of {}", seen.word, identity.compute_node);
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        let found = self.tables.get(seen.table)?.blocks()?.lock_word(seen.block)?;
        let Some(held_for) = leases.held_for(seen, found, now) else {
            return Ok(Err(Fenced::wait(SOON, "that lock is not held any more")));
        };
        if held_for < leases.lease() {
            let why = format!("its lease of {:?} is not over", leases.lease());
            return Ok(Err(Fenced::wait(leases.lease().saturating_sub(held_for), why)));
        }
        Ok(Ok(Lapsed { seen, held_for }))
    }

    /// Ends connections that cost a process nothing more; tells other clients to leave, and ends the
    /// processes of those that do not, if a lease is over.
    fn dismiss(
        &self,
        identity: Identity,
        lapsed: Option<&Lapsed>,
        lease: Duration,
    ) -> Result<Fenced, FabricError> {
        let clients = {
            let mut compute_nodes = self.compute_nodes();
            compute_nodes.begin_fence(identity);
            compute_nodes.clients(identity)
        };
        let (mut lingering, mut are_leaving) = (Vec::new(), false);
        for client in clients {
            match self.listeners.dismiss(client)? {
                Departure::Gone => self.note_departed(vec![client]),
                Departure::Leaving => are_leaving = true,
                Departure::Awaited(process) => lingering.push((client, process)),
            }
        }
        for (client, process) in lingering {
            if let Some(wait) = wait_for(&process, lapsed) {
                return Ok(wait);
            }
            self.listeners.end_process(client)?;
            are_leaving = true;
            if let Some(lapsed) = lapsed {
                self.report_killed(identity, client, &process, lapsed, lease);
            }
        }
        if are_leaving {
            return Ok(Fenced::wait(SOON, "it is ended, but for a last request, or its process's end"));
        }
        Ok(Fenced::Done)
    }

    fn report_killed(
        &self,
        Identity { coordinator, compute_node }: Identity,
        client: ClientId,
        process: &Lingering,
        Lapsed { seen, held_for }: &Lapsed,
        lease: Duration,
    ) {
        let Epoch(coordinator) = coordinator;
        let table = self.tables.get(seen.table);
        let table = table.map_or_else(|_| "?".to_owned(), |table| table.name().get());
        let Lingering { pid, uid, told_for, .. } = process;
        report(format_args!(
            "killed process {pid} of user {uid} ({client}, {compute_node} of pool {coordinator:#x}): it held the lock of leaf \
             {} of table {table:?} for {held_for:.1?}, the lease is {lease:?} (--lease), and in {told_for:.1?} it did \
             not end its connection as it was told. Others waited for that lock",
            seen.block
        ));
    }
}

/// What is waited for before a process is ended that lingers; nothing if it can be ended now.
fn wait_for(process: &Lingering, lapsed: Option<&Lapsed>) -> Option<Fenced> {
    let Lingering { pid, uid, told_for, spared } = process;
    let what =
        format!("process {pid} of user {uid} was told to end its connection and has not for {told_for:.1?}");
    if let Some(why) = spared {
        return Some(Fenced::wait(LATER, format!("{what}; it is not killed, because {why}")));
    }
    if lapsed.is_none() {
        let why = "it is not killed here, where no lock of it was seen to stand";
        return Some(Fenced::wait(LATER, format!("{what}; {why}")));
    }
    let left = TOLD_FOR_MIN.saturating_sub(*told_for);
    // Soon: most leave at once.
    (!left.is_zero()).then(|| Fenced::wait(left.min(LATER), what))
}
