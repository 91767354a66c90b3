//! Which clients are which compute nodes, and which compute nodes are out for good.
//!
//! Invariant: a client is one compute node's, and says so once. A number is never given twice. A compute node
//! that is fenced has no client that could execute a verb once the fence is through, and never gets another:
//! its number is refused.
//!
//! Numbers of 32 bits last for years of clients that come and go; the memory of who is fenced is bounded all
//! the same. Past [`FENCED_MAX`] of them the lowest is forgotten, and from then on every number up to it
//! counts as fenced unless it has a client: numbers are given in ascending order and announced at once, so
//! whoever comes with one that low, and has no client here yet, is as good as dead.

use std::collections::{BTreeSet, HashMap};

use farsight_base::{ClientId, Epoch};
use farsight_protocol::{ComputeNode, ErrorCode, ServerError};

/// Fenced compute nodes that a node remembers one by one.
const FENCED_MAX: usize = 1 << 16;

/// A compute node of a pool, which its home's life names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Identity {
    pub(crate) home: Epoch,
    pub(crate) compute_node: ComputeNode,
}

impl Identity {
    fn check_home(self, home: Epoch) -> Result<(), ServerError> {
        if self.home == home {
            return Ok(());
        }
        let text = format!("this connection is of {} of the pool with home {}", self.compute_node, self.home);
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }
}

/// All compute nodes that a memory node knows.
#[derive(Debug, Default)]
pub(crate) struct ComputeNodes {
    /// The number that home gave last.
    last: u32,
    by_client: HashMap<ClientId, Identity>,
    clients: HashMap<Identity, Vec<ClientId>>,
    fenced: BTreeSet<Identity>,
    /// By home: up to this number everybody without a client is out. Only of homes that `fenced` has.
    out_up_to: HashMap<Epoch, ComputeNode>,
    fences: u64,
}

impl ComputeNodes {
    /// The number of this client's compute node at its home; a new one unless it has one.
    pub(crate) fn register(&mut self, home: Epoch, client: ClientId) -> Result<ComputeNode, ServerError> {
        if let Some(known) = self.by_client.get(&client) {
            return known.check_home(home).map(|()| known.compute_node);
        }
        let Some(number) = self.last.checked_add(1) else {
            let text = format!("the pool has numbered {} compute nodes, its most: restart it", u32::MAX);
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        self.last = number;
        let compute_node = ComputeNode(number);
        self.bind(client, Identity { home, compute_node });
        Ok(compute_node)
    }

    /// Notes that `client` is of that compute node.
    pub(crate) fn announce(&mut self, client: ClientId, identity: Identity) -> Result<(), ServerError> {
        if self.is_out(identity) {
            let text = format!("{} was fenced: it counts as dead. Connect anew", identity.compute_node);
            return Err(ServerError::new(ErrorCode::Fenced, text));
        }
        match self.by_client.get(&client) {
            Some(known) if *known == identity => {}
            Some(known) => {
                let text =
                    format!("this connection is of {}, not of {}", known.compute_node, identity.compute_node);
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
            None => self.bind(client, identity),
        }
        Ok(())
    }

    fn is_out(&self, identity: Identity) -> bool {
        let is_forgotten = self
            .out_up_to
            .get(&identity.home)
            .is_some_and(|up_to| identity.compute_node <= *up_to && !self.clients.contains_key(&identity));
        is_forgotten || self.fenced.contains(&identity)
    }

    fn bind(&mut self, client: ClientId, identity: Identity) {
        self.by_client.insert(client, identity);
        self.clients.entry(identity).or_default().push(client);
    }

    /// Whose client it is.
    pub(crate) fn of(&self, client: ClientId) -> Result<Identity, ServerError> {
        self.by_client.get(&client).copied().ok_or_else(|| {
            let text = "this connection has not said of which compute node it is";
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Lets no client of that compute node in any more, and returns those that are in.
    pub(crate) fn begin_fence(&mut self, identity: Identity) -> Result<Vec<ClientId>, ServerError> {
        if !self.is_out(identity) {
            if self.fenced.len() >= FENCED_MAX {
                self.forget_lowest(identity.home)?;
            }
            self.fenced.insert(identity);
            self.fences += 1;
        }
        Ok(self.clients.get(&identity).cloned().unwrap_or_default())
    }

    /// Makes room among the fenced. Fences are done one after the other: the one forgotten is through, or
    /// has failed and is not relied upon.
    fn forget_lowest(&mut self, home: Epoch) -> Result<(), ServerError> {
        let first = Identity { home, compute_node: ComputeNode(0) };
        let Some(lowest) = self.fenced.range(first..).next().copied().filter(|found| found.home == home)
        else {
            let text = format!("this node has fenced {FENCED_MAX} compute nodes of other pools: restart it");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        self.fenced.remove(&lowest);
        let up_to = self.out_up_to.entry(home).or_insert(lowest.compute_node);
        *up_to = lowest.compute_node.max(*up_to);
        Ok(())
    }

    /// Forgets a client that has ended. Returns its compute node if that was its last.
    pub(crate) fn forget(&mut self, client: ClientId) -> Option<Identity> {
        let identity = self.by_client.remove(&client)?;
        let clients = self.clients.get_mut(&identity)?;
        clients.retain(|other| *other != client);
        if !clients.is_empty() {
            return None;
        }
        self.clients.remove(&identity);
        Some(identity)
    }

    /// Compute nodes with a client.
    pub(crate) fn connected(&self) -> u64 {
        self.clients.len() as u64
    }

    /// Compute nodes that are out for good.
    pub(crate) fn fenced(&self) -> u64 {
        self.fences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Epoch = Epoch(7);

    fn identity(number: u32) -> Identity {
        Identity { home: HOME, compute_node: ComputeNode(number) }
    }

    #[test]
    fn numbers_are_given_once() {
        let mut nodes = ComputeNodes::default();
        assert_eq!(nodes.register(HOME, ClientId(1)), Ok(ComputeNode(1)));
        assert_eq!(nodes.register(HOME, ClientId(1)), Ok(ComputeNode(1)));
        assert_eq!(nodes.register(HOME, ClientId(2)), Ok(ComputeNode(2)));
        assert_eq!(nodes.forget(ClientId(2)), Some(identity(2)));
        assert_eq!(nodes.register(HOME, ClientId(3)), Ok(ComputeNode(3)));
        nodes.last = u32::MAX - 1;
        assert_eq!(nodes.register(HOME, ClientId(4)), Ok(ComputeNode(u32::MAX)));
        assert_eq!(nodes.register(HOME, ClientId(5)).unwrap_err().code, ErrorCode::OutOfResources);
    }

    #[test]
    fn compute_nodes_come_and_go_and_are_fenced_without_end() {
        // Four times as many as are remembered, and two that stay: one of them the first of all.
        let mut nodes = ComputeNodes::default();
        let stays = ClientId(u64::MAX);
        assert_eq!(nodes.register(HOME, stays), Ok(ComputeNode(1)));
        let last = 4 * FENCED_MAX as u32;
        for number in 2..=last {
            let client = ClientId(number.into());
            assert_eq!(nodes.register(HOME, client), Ok(ComputeNode(number)));
            assert_eq!(nodes.begin_fence(identity(number)), Ok(vec![client]));
            assert_eq!(nodes.forget(client), Some(identity(number)));
        }
        assert_eq!((nodes.fenced(), nodes.fenced.len()), (u64::from(last) - 1, FENCED_MAX));
        assert_eq!(nodes.connected(), 1);
        let late = ClientId(u64::MAX - 1);
        for number in (2..=last).step_by(97).chain([2, 3, last]) {
            assert_eq!(
                nodes.announce(late, identity(number)).unwrap_err().code,
                ErrorCode::Fenced,
                "{number}"
            );
            // Again: done at once, and it takes no room.
            assert_eq!(nodes.begin_fence(identity(number)), Ok(Vec::new()));
        }
        assert_eq!(nodes.fenced.len(), FENCED_MAX);
        // Who has a client here is no less alive for a low number, until it is fenced itself.
        assert_eq!(nodes.announce(late, identity(1)), Ok(()));
        assert_eq!(nodes.begin_fence(identity(1)), Ok(vec![stays, late]));
        assert_eq!(nodes.forget(stays), None);
        assert_eq!(nodes.announce(ClientId(0), identity(1)).unwrap_err().code, ErrorCode::Fenced);
        assert_eq!(nodes.forget(late), Some(identity(1)));
        assert_eq!(nodes.announce(ClientId(0), identity(1)).unwrap_err().code, ErrorCode::Fenced);
        // The next fence forgets number 1, the lowest; nobody who was out is in again.
        assert_eq!(nodes.begin_fence(identity(last + 1)), Ok(Vec::new()));
        for number in [1, 2, 3, last / 2, last, last + 1] {
            assert_eq!(
                nodes.announce(late, identity(number)).unwrap_err().code,
                ErrorCode::Fenced,
                "{number}"
            );
        }
        assert_eq!(nodes.announce(late, identity(last + 2)), Ok(()));
    }

    #[test]
    fn the_fenced_stay_out() {
        let mut nodes = ComputeNodes::default();
        nodes.announce(ClientId(1), identity(5)).unwrap();
        nodes.announce(ClientId(2), identity(5)).unwrap();
        assert_eq!(nodes.begin_fence(identity(5)), Ok(vec![ClientId(1), ClientId(2)]));
        assert_eq!(nodes.announce(ClientId(3), identity(5)).unwrap_err().code, ErrorCode::Fenced);
        assert_eq!(nodes.forget(ClientId(1)), None, "it has another client");
        assert_eq!(nodes.forget(ClientId(2)), Some(identity(5)));
        assert_eq!(nodes.forget(ClientId(2)), None);
        assert_eq!((nodes.connected(), nodes.fenced()), (0, 1));
        // The same number in another life of home is somebody else.
        let other = Identity { home: Epoch(8), ..identity(5) };
        nodes.announce(ClientId(3), other).unwrap();
        assert_eq!(nodes.announce(ClientId(3), identity(6)).unwrap_err().code, ErrorCode::BadRequest);
        assert!(nodes.of(ClientId(9)).is_err());
    }
}
