//! Which clients are which compute nodes, and which numbers there are.
//!
//! Invariant: a client is one compute node's, and says so once. A number is never given twice, and nobody
//! joins a compute node that is being fenced.
//!
//! A compute node that has drawn many lock values gets another number beside the first. It stays one compute
//! node: a fence for any of its numbers ends all of its clients, and its blocks are its first number's.
//!
//! Nothing is kept of a compute node without a client. Nothing has to be: a compute node announces itself at
//! every node before it draws its first lock, over connections that it never replaces under its number. So
//! one that may hold a lock and has no client here never gets one again. And whatever were kept of numbers
//! that anybody may name could be filled with numbers that nobody has yet.

use std::collections::HashMap;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, Epoch};
use farsight_protocol::{ComputeNode, ErrorCode, POOL_NUMBERS_MAX, ServerError};

#[cfg(injected)]
use crate::injected;

/// A compute node of a pool, which its coordinator's epoch names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Identity {
    pub(crate) coordinator: Epoch,
    pub(crate) compute_node: ComputeNode,
}

impl Identity {
    fn check_coordinator(self, coordinator: Epoch) -> Result<(), ServerError> {
        if self.coordinator == coordinator {
            return Ok(());
        }
        let text = format!(
            "this connection is of {} of the pool with coordinator {}",
            self.compute_node, self.coordinator
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }
}

/// Which compute nodes may use what they have read at a node, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    /// The least of those that are connected to the node, or were lately.
    pub(crate) oldest: u32,
    /// The greatest of those that ever were.
    pub(crate) newest: u32,
}

/// Compute nodes that have ended here and may read at other nodes yet, for as long as they believe what the
/// nodes have said before.
#[derive(Debug, Default)]
struct EndedLately {
    /// The least number of those that ended since then, and of those before.
    least: [Option<u32>; 2],
    since: Option<MonotonicNs>,
}

impl EndedLately {
    fn note(&mut self, number: u32) {
        self.least[0] = Some(self.least[0].map_or(number, |least| least.min(number)));
    }

    /// The least number of those that ended within so much time; perhaps of one that ended before.
    fn least(&mut self, now: MonotonicNs, within: Duration) -> Option<u32> {
        if now.since(*self.since.get_or_insert(now)) >= within {
            self.least = [None, self.least[0]];
            self.since = Some(now);
        }
        self.least.into_iter().flatten().min()
    }
}

/// All compute nodes that a memory node knows.
#[derive(Debug, Default)]
pub(crate) struct ComputeNodes {
    /// The greatest number that the coordinator gave, or that was announced here.
    greatest: u32,
    /// Those with this number and lower ones have ended for good, or are being ended.
    ended_up_to: u32,
    by_client: HashMap<ClientId, Identity>,
    members: HashMap<Identity, Members>,
    ended_lately: EndedLately,
    fences: u64,
}

/// The clients of one compute node.
#[derive(Debug, Default)]
struct Members {
    clients: Vec<ClientId>,
    is_fenced: bool,
    /// Its numbers but the first, ascending.
    further: Vec<ComputeNode>,
}

impl Members {
    fn has(&self, first: Identity, identity: Identity) -> bool {
        #[cfg(injected)]
        if injected::FIRST_NUMBER_FENCED.is_injected() {
            return first == identity;
        }
        first == identity
            || first.coordinator == identity.coordinator
                && self.further.binary_search(&identity.compute_node).is_ok()
    }
}

impl ComputeNodes {
    /// The number of this client's compute node at its coordinator; a new one unless it has one.
    pub(crate) fn register(
        &mut self,
        coordinator: Epoch,
        client: ClientId,
    ) -> Result<ComputeNode, ServerError> {
        if let Some(known) = self.by_client.get(&client) {
            self.check_living(*known)?;
            return known.check_coordinator(coordinator).map(|()| known.compute_node);
        }
        let compute_node = self.new_number()?;
        self.bind(client, Identity { coordinator, compute_node });
        Ok(compute_node)
    }

    fn new_number(&mut self) -> Result<ComputeNode, ServerError> {
        let Some(number) = self.greatest.checked_add(1) else {
            let text = format!("the pool has numbered {} compute nodes, its most: restart it", u32::MAX);
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        self.greatest = number;
        Ok(ComputeNode(number))
    }

    /// Another number for this client's compute node, at its coordinator.
    pub(crate) fn register_again(&mut self, client: ClientId) -> Result<ComputeNode, ServerError> {
        let first = self.of_living(client)?;
        self.check_further(first)?;
        let compute_node = self.new_number()?;
        self.add_number(first, compute_node);
        Ok(compute_node)
    }

    /// Notes that this client's compute node has another number, which its coordinator gave.
    pub(crate) fn announce_again(&mut self, client: ClientId, identity: Identity) -> Result<(), ServerError> {
        let first = self.of_living(client)?;
        first.check_coordinator(identity.coordinator)?;
        if self.members.get(&first).is_some_and(|members| members.has(first, identity)) {
            return Ok(());
        }
        self.check_further(first)?;
        let Identity { compute_node, .. } = identity;
        if compute_node <= first.compute_node {
            let text = format!("{} gets greater numbers, not that of {compute_node}", first.compute_node);
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        self.add_number(first, compute_node);
        self.greatest = self.greatest.max(compute_node.0);
        Ok(())
    }

    /// Refuses another number to a compute node that is being fenced, or has as many as one may have.
    fn check_further(&self, first: Identity) -> Result<(), ServerError> {
        let Identity { compute_node, .. } = first;
        let members = self.members.get(&first);
        if members.is_none_or(|members| members.is_fenced) {
            let text = format!("{compute_node} was fenced: it counts as dead. Connect anew");
            return Err(ServerError::new(ErrorCode::Fenced, text));
        }
        if members.is_some_and(|members| members.further.len() + 1 >= POOL_NUMBERS_MAX) {
            let text = format!("{compute_node} has {POOL_NUMBERS_MAX} numbers, the most: connect anew");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        Ok(())
    }

    fn add_number(&mut self, first: Identity, number: ComputeNode) {
        if let Some(members) = self.members.get_mut(&first)
            && let Err(at) = members.further.binary_search(&number)
        {
            members.further.insert(at, number);
        }
    }

    /// Whether that number is one of this client's compute node.
    pub(crate) fn has(&self, client: ClientId, identity: Identity) -> Result<bool, ServerError> {
        let first = self.of(client)?;
        Ok(self.members.get(&first).is_some_and(|members| members.has(first, identity)))
    }

    /// Notes that `client` is of that compute node. The coordinator, which gave the number to a client, lets
    /// others join that one alone.
    pub(crate) fn announce(
        &mut self,
        client: ClientId,
        identity: Identity,
        is_coordinator: bool,
    ) -> Result<(), ServerError> {
        let compute_node = identity.compute_node;
        if compute_node.0 == 0 {
            let text = "no compute node has the number 0";
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        if is_coordinator {
            self.check_number(identity)?;
        }
        self.check_living(identity)?;
        let members = self.members.get(&identity);
        #[cfg(injected)]
        let is_coordinator = is_coordinator
            || (injected::NEWCOMERS_FENCED.is_injected() && self.greatest as usize > self.members.len());
        if members.is_some_and(|members| members.is_fenced) || (is_coordinator && members.is_none()) {
            let text = format!("{compute_node} was fenced, or has ended: it counts as dead. Connect anew");
            return Err(ServerError::new(ErrorCode::Fenced, text));
        }
        match self.by_client.get(&client) {
            Some(known) if *known == identity => {}
            Some(known) => {
                let text = format!("this connection is of {}, not of {compute_node}", known.compute_node);
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
            None => self.bind(client, identity),
        }
        self.greatest = self.greatest.max(compute_node.0);
        Ok(())
    }

    /// Lets none come, or go on, whose number is not above `newest`.
    pub(crate) fn end_up_to(&mut self, newest: u32) {
        self.ended_up_to = self.ended_up_to.max(newest);
        self.greatest = self.greatest.max(newest);
    }

    /// Does so with all that there are: the greatest number.
    pub(crate) fn end_all(&mut self) -> u32 {
        self.end_up_to(self.greatest);
        self.greatest
    }

    /// The greatest number that anybody has or had.
    pub(crate) fn greatest(&self) -> u32 {
        self.greatest
    }

    /// Knows that there are numbers up to this one.
    pub(crate) fn know(&mut self, greatest: u32) {
        self.greatest = self.greatest.max(greatest);
    }

    fn check_living(&self, identity: Identity) -> Result<(), ServerError> {
        if identity.compute_node.0 > self.ended_up_to {
            return Ok(());
        }
        let text = format!(
            "{} is from before a new node took a lost one's place: connect anew",
            identity.compute_node
        );
        Err(ServerError::new(ErrorCode::Fenced, text))
    }

    /// Refuses a number that nobody was given, or that nobody with it came here.
    pub(crate) fn check_number(&self, identity: Identity) -> Result<(), ServerError> {
        let number = identity.compute_node.0;
        if (1..=self.greatest).contains(&number) {
            return Ok(());
        }
        let text = format!(
            "{} was never here: the greatest number that this node knows is {}. Whatever names it is broken",
            identity.compute_node, self.greatest
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    fn bind(&mut self, client: ClientId, identity: Identity) {
        self.by_client.insert(client, identity);
        self.members.entry(identity).or_default().clients.push(client);
    }

    /// Whose client it is.
    pub(crate) fn of(&self, client: ClientId) -> Result<Identity, ServerError> {
        self.by_client.get(&client).copied().ok_or_else(|| {
            let text = "this connection has not said of which compute node it is";
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Whose it is, if that compute node may go on.
    pub(crate) fn of_living(&self, client: ClientId) -> Result<Identity, ServerError> {
        let identity = self.of(client)?;
        self.check_living(identity).map(|()| identity)
    }

    /// All that have a client.
    pub(crate) fn all(&self) -> Vec<Identity> {
        let mut all: Vec<Identity> = self.members.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The clients that are in of the compute node with that number. Of several, if one of them has said a
    /// number that was not its own.
    pub(crate) fn clients(&self, identity: Identity) -> Vec<ClientId> {
        let members = self.members.iter().filter(|(first, members)| members.has(**first, identity));
        let mut clients: Vec<ClientId> = members.flat_map(|(_, members)| members.clients.clone()).collect();
        clients.sort_unstable();
        clients
    }

    /// Lets no client of that compute node in any more.
    pub(crate) fn begin_fence(&mut self, identity: Identity) {
        for (first, members) in &mut self.members {
            if members.has(*first, identity) && !members.is_fenced {
                members.is_fenced = true;
                self.fences += 1;
            }
        }
    }

    /// Forgets a client that has ended. Returns its compute node if that was its last.
    pub(crate) fn forget(&mut self, client: ClientId) -> Option<Identity> {
        let identity = self.by_client.remove(&client)?;
        let members = self.members.get_mut(&identity)?;
        members.clients.retain(|other| *other != client);
        if !members.clients.is_empty() {
            return None;
        }
        self.members.remove(&identity);
        self.ended_lately.note(identity.compute_node.0);
        Some(identity)
    }

    /// Which may use what they have read, if they believe it for so long.
    pub(crate) fn readers(&mut self, now: MonotonicNs, believed: Duration) -> Connected {
        let numbers = self.members.keys().map(|identity| identity.compute_node.0);
        let oldest = numbers.chain(self.ended_lately.least(now, believed)).min();
        Connected { oldest: oldest.unwrap_or(u32::MAX), newest: self.greatest }
    }

    /// Compute nodes with a client.
    pub(crate) fn connected(&self) -> u64 {
        self.members.len() as u64
    }

    /// Compute nodes whose connections were ended.
    pub(crate) fn fenced(&self) -> u64 {
        self.fences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COORDINATOR: Epoch = Epoch(7);

    fn identity(number: u32) -> Identity {
        Identity { coordinator: COORDINATOR, compute_node: ComputeNode(number) }
    }

    #[test]
    fn numbers_are_given_once() {
        let mut nodes = ComputeNodes::default();
        assert_eq!(nodes.register(COORDINATOR, ClientId(1)), Ok(ComputeNode(1)));
        assert_eq!(nodes.register(COORDINATOR, ClientId(1)), Ok(ComputeNode(1)));
        assert_eq!(nodes.register(COORDINATOR, ClientId(2)), Ok(ComputeNode(2)));
        assert_eq!(nodes.forget(ClientId(2)), Some(identity(2)));
        assert_eq!(nodes.register(COORDINATOR, ClientId(3)), Ok(ComputeNode(3)));
        nodes.greatest = u32::MAX - 1;
        assert_eq!(nodes.register(COORDINATOR, ClientId(4)), Ok(ComputeNode(u32::MAX)));
        assert_eq!(nodes.register(COORDINATOR, ClientId(5)).unwrap_err().code, ErrorCode::OutOfResources);
    }

    #[test]
    fn compute_nodes_come_and_go_and_are_fenced_and_nothing_is_left_of_them() {
        let mut nodes = ComputeNodes::default();
        let stays = ClientId(u64::MAX);
        assert_eq!(nodes.register(COORDINATOR, stays), Ok(ComputeNode(1)));
        for number in 2..=100_000 {
            let client = ClientId(number.into());
            assert_eq!(nodes.register(COORDINATOR, client), Ok(ComputeNode(number)));
            nodes.begin_fence(identity(number));
            assert_eq!(nodes.clients(identity(number)), [client]);
            assert_eq!(nodes.forget(client), Some(identity(number)));
        }
        assert_eq!((nodes.fenced(), nodes.connected()), (99_999, 1));
        assert_eq!((nodes.by_client.len(), nodes.members.len()), (1, 1));
        let late = ClientId(u64::MAX - 1);
        for number in [2, 3, 50_000, 100_000] {
            let refused = nodes.announce(late, identity(number), true).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Fenced, "{number}");
        }
        assert_eq!(nodes.announce(late, identity(1), true), Ok(()));
        assert_eq!(nodes.clients(identity(1)), [late, stays]);
    }

    #[test]
    fn numbers_that_nobody_has_are_refused_and_leave_nothing_behind() {
        let mut coordinator = ComputeNodes::default();
        let mut other = ComputeNodes::default();
        for number in 1..=3 {
            let client = ClientId(number);
            let compute_node = coordinator.register(COORDINATOR, client).unwrap();
            other.announce(client, Identity { coordinator: COORDINATOR, compute_node }, false).unwrap();
        }
        for number in [0, 4, 5, 70_000, u32::MAX] {
            for nodes in [&coordinator, &other] {
                let refused = nodes.check_number(identity(number)).unwrap_err();
                assert_eq!(refused.code, ErrorCode::BadRequest, "{number}");
            }
            let refused = coordinator.announce(ClientId(9), identity(number), true).unwrap_err();
            assert_eq!(refused.code, ErrorCode::BadRequest, "{number}");
        }
        other.begin_fence(identity(70_000));
        assert_eq!(other.fenced(), 0);
        // Who announces itself under a number that the coordinator has not given takes it from nobody.
        other.announce(ClientId(8), identity(5), false).unwrap();
        other.begin_fence(identity(5));
        other.forget(ClientId(8));
        other.announce(ClientId(5), identity(5), false).unwrap();
        assert_eq!(other.clients(identity(5)), [ClientId(5)]);
        assert_eq!(other.announce(ClientId(7), identity(0), false).unwrap_err().code, ErrorCode::BadRequest);
    }

    #[test]
    fn who_has_ended_lately_may_read_yet() {
        let mut nodes = ComputeNodes::default();
        let (believed, at) = (Duration::from_nanos(10), MonotonicNs);
        for number in 1..=4 {
            nodes.register(COORDINATOR, ClientId(number)).unwrap();
        }
        let readers = |nodes: &mut ComputeNodes, now: u64| {
            let Connected { oldest, newest } = nodes.readers(at(now), believed);
            assert_eq!(newest, 4);
            oldest
        };
        assert_eq!(readers(&mut nodes, 0), 1);
        nodes.forget(ClientId(2));
        nodes.forget(ClientId(1));
        assert_eq!((readers(&mut nodes, 9), readers(&mut nodes, 10)), (1, 1));
        nodes.forget(ClientId(3));
        assert_eq!(readers(&mut nodes, 19), 1, "perhaps it was at 10 that it ended");
        assert_eq!((readers(&mut nodes, 20), readers(&mut nodes, 29), readers(&mut nodes, 30)), (3, 3, 4));
        nodes.forget(ClientId(4));
        assert_eq!((readers(&mut nodes, 1_000), readers(&mut nodes, 1_010)), (4, u32::MAX));
    }

    #[test]
    fn those_from_before_a_new_node_neither_come_nor_go_on() {
        let mut coordinator = ComputeNodes::default();
        let mut other = ComputeNodes::default();
        for number in 1..=2 {
            let client = ClientId(number);
            let compute_node = coordinator.register(COORDINATOR, client).unwrap();
            other.announce(client, Identity { coordinator: COORDINATOR, compute_node }, false).unwrap();
        }
        assert_eq!(coordinator.register(COORDINATOR, ClientId(3)), Ok(ComputeNode(3)));
        assert_eq!(coordinator.end_all(), 3);
        other.end_up_to(3);
        assert_eq!(other.greatest(), 3);
        let code = |refused: Result<(), ServerError>| refused.unwrap_err().code;
        assert_eq!(code(coordinator.register(COORDINATOR, ClientId(1)).map(drop)), ErrorCode::Fenced);
        assert_eq!(code(other.of_living(ClientId(2)).map(drop)), ErrorCode::Fenced);
        // It has its number from before, and comes too late.
        assert_eq!(code(other.announce(ClientId(3), identity(3), false)), ErrorCode::Fenced);
        assert_eq!(code(other.announce(ClientId(3), identity(0), false)), ErrorCode::BadRequest);
        assert_eq!(coordinator.register(COORDINATOR, ClientId(4)), Ok(ComputeNode(4)));
        other.announce(ClientId(4), identity(4), false).unwrap();
        assert_eq!(other.of_living(ClientId(4)), Ok(identity(4)));
    }

    #[test]
    fn a_compute_node_is_fenced_under_each_of_its_numbers() {
        let mut coordinator = ComputeNodes::default();
        let mut other = ComputeNodes::default();
        for number in 1..=2 {
            let client = ClientId(number);
            let compute_node = coordinator.register(COORDINATOR, client).unwrap();
            other.announce(client, Identity { coordinator: COORDINATOR, compute_node }, false).unwrap();
        }
        for number in 3..=5 {
            assert_eq!(coordinator.register_again(ClientId(1)), Ok(ComputeNode(number)));
            assert_eq!(other.announce_again(ClientId(1), identity(number)), Ok(()));
            assert_eq!(other.announce_again(ClientId(1), identity(number)), Ok(()), "said twice");
        }
        assert_eq!(coordinator.register(COORDINATOR, ClientId(1)), Ok(ComputeNode(1)), "its first number");
        for nodes in [&mut coordinator, &mut other] {
            assert_eq!((nodes.connected(), nodes.greatest()), (2, 5));
            assert_eq!(nodes.of_living(ClientId(1)), Ok(identity(1)));
            for number in [1, 3, 4, 5] {
                assert_eq!(nodes.clients(identity(number)), [ClientId(1)], "{number}");
                assert_eq!(nodes.has(ClientId(1), identity(number)), Ok(true));
                assert_eq!(nodes.has(ClientId(2), identity(number)), Ok(false));
            }
            nodes.begin_fence(identity(4));
            nodes.begin_fence(identity(1));
            assert_eq!(nodes.fenced(), 1);
            let refused = nodes.announce_again(ClientId(1), identity(9)).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Fenced);
            assert_eq!(nodes.forget(ClientId(1)), Some(identity(1)));
            assert_eq!(nodes.clients(identity(5)), []);
        }
        assert_eq!(coordinator.register_again(ClientId(2)), Ok(ComputeNode(6)), "no number is given twice");
    }

    #[cfg(injected)]
    #[test]
    fn a_compute_node_that_is_fenced_under_its_first_number_alone_is_found() {
        farsight_base::injection::assert_found(
            &injected::FIRST_NUMBER_FENCED,
            a_compute_node_is_fenced_under_each_of_its_numbers,
        );
    }

    #[test]
    fn a_compute_node_has_so_many_numbers_and_not_one_that_it_cannot_have() {
        let mut nodes = ComputeNodes::default();
        assert_eq!(nodes.register_again(ClientId(1)).unwrap_err().code, ErrorCode::BadRequest);
        nodes.announce(ClientId(1), identity(5), false).unwrap();
        let code = |refused: Result<(), ServerError>| refused.unwrap_err().code;
        assert_eq!(code(nodes.announce_again(ClientId(1), identity(4))), ErrorCode::BadRequest);
        assert_eq!(code(nodes.announce_again(ClientId(1), identity(0))), ErrorCode::BadRequest);
        let elsewhere = Identity { coordinator: Epoch(8), ..identity(6) };
        assert_eq!(code(nodes.announce_again(ClientId(1), elsewhere)), ErrorCode::BadRequest);
        assert_eq!(nodes.announce_again(ClientId(1), identity(5)), Ok(()));
        for further in 1..POOL_NUMBERS_MAX {
            assert_eq!(nodes.announce_again(ClientId(1), identity(5 + further as u32)), Ok(()));
        }
        let (next, last) = (5 + POOL_NUMBERS_MAX as u32, 4 + POOL_NUMBERS_MAX as u32);
        assert_eq!(code(nodes.announce_again(ClientId(1), identity(next))), ErrorCode::OutOfResources);
        assert_eq!(code(nodes.register_again(ClientId(1)).map(drop)), ErrorCode::OutOfResources);
        assert_eq!(nodes.greatest(), last);
        // Who says a number that is another's is fenced along with that one, and takes it from nobody.
        nodes.announce(ClientId(2), identity(next), false).unwrap();
        nodes.announce(ClientId(3), identity(3), false).unwrap();
        nodes.announce_again(ClientId(3), identity(next)).unwrap();
        nodes.begin_fence(identity(next));
        assert_eq!((nodes.clients(identity(next)), nodes.fenced()), (vec![ClientId(2), ClientId(3)], 2));
    }

    #[test]
    fn nobody_joins_a_compute_node_that_is_being_fenced() {
        let mut nodes = ComputeNodes::default();
        nodes.announce(ClientId(1), identity(5), false).unwrap();
        nodes.announce(ClientId(2), identity(5), false).unwrap();
        nodes.begin_fence(identity(5));
        nodes.begin_fence(identity(5));
        assert_eq!(nodes.announce(ClientId(3), identity(5), false).unwrap_err().code, ErrorCode::Fenced);
        assert_eq!(nodes.forget(ClientId(1)), None, "it has another client");
        assert_eq!(nodes.announce(ClientId(3), identity(5), false).unwrap_err().code, ErrorCode::Fenced);
        assert_eq!(nodes.forget(ClientId(2)), Some(identity(5)));
        assert_eq!(nodes.forget(ClientId(2)), None);
        assert_eq!((nodes.connected(), nodes.fenced()), (0, 1));
        // The same number in another epoch of the coordinator is somebody else.
        let other = Identity { coordinator: Epoch(8), ..identity(5) };
        nodes.announce(ClientId(3), other, false).unwrap();
        let refused = nodes.announce(ClientId(3), identity(6), false).unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
        assert!(nodes.of(ClientId(9)).is_err());
    }
}
