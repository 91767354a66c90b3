//! What programs hold of a simulation, to see that nothing is left over.

use crate::pair::Phase;
use crate::state::State;

/// How much of each is held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Held {
    /// Connections that neither side has ended.
    pub connections: usize,
    /// Queue pairs that were not closed.
    pub queue_pairs: usize,
    /// Verbs and calls of these whose results are still awaited.
    pub slots: usize,
    /// Requests that wait at the ports of servers that live.
    pub requests: usize,
    /// Processes that have not ended.
    pub processes: usize,
}

impl State {
    pub(crate) fn held(&self) -> Held {
        let open = || self.pairs.iter().filter(|pair| !pair.is_closed);
        let awaited =
            |pair: &crate::pair::Pair| pair.slots.iter().filter(|slot| slot.phase != Phase::Complete).count();
        let living = self.hosts.iter().filter(|host| host.is_alive);
        Held {
            connections: self.clients.iter().filter(|client| client.lost.is_none()).count(),
            queue_pairs: open().count(),
            slots: open().map(awaited).sum(),
            requests: living.flat_map(|host| &host.ports).map(|port| port.inbox.len()).sum(),
            processes: self.processes.iter().filter(|process| !process.is_done).count(),
        }
    }
}
