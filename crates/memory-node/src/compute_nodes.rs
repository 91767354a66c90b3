//! Which clients are which compute nodes, and which compute nodes are out for good.
//!
//! Invariant: a client is one compute node's, and says so once. A compute node that is fenced has no client
//! that could execute a verb once the fence is through, and never gets another: its number is refused.

use std::collections::{HashMap, HashSet};

use farsight_base::{ClientId, Epoch};
use farsight_protocol::{ComputeNode, ErrorCode, ServerError};

/// Fences that a node remembers at most.
const FENCED_MAX: usize = 1 << 16;

/// A compute node of a pool, which its home's life names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    last: u16,
    by_client: HashMap<ClientId, Identity>,
    clients: HashMap<Identity, Vec<ClientId>>,
    fenced: HashSet<Identity>,
}

impl ComputeNodes {
    /// The number of this client's compute node at its home; a new one unless it has one.
    pub(crate) fn register(&mut self, home: Epoch, client: ClientId) -> Result<ComputeNode, ServerError> {
        if let Some(known) = self.by_client.get(&client) {
            return known.check_home(home).map(|()| known.compute_node);
        }
        let Some(number) = self.last.checked_add(1) else {
            let text = format!("the pool has numbered {} compute nodes, its most: restart it", u16::MAX);
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        self.last = number;
        let compute_node = ComputeNode(number);
        self.bind(client, Identity { home, compute_node });
        Ok(compute_node)
    }

    /// Notes that `client` is of that compute node.
    pub(crate) fn announce(&mut self, client: ClientId, identity: Identity) -> Result<(), ServerError> {
        if self.fenced.contains(&identity) {
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
        if self.fenced.len() >= FENCED_MAX && !self.fenced.contains(&identity) {
            let text = format!("this node has fenced {FENCED_MAX} compute nodes, its most: restart the pool");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        self.fenced.insert(identity);
        Ok(self.clients.get(&identity).cloned().unwrap_or_default())
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
        self.fenced.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Epoch = Epoch(7);

    fn identity(number: u16) -> Identity {
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
        nodes.last = u16::MAX;
        assert_eq!(nodes.register(HOME, ClientId(4)).unwrap_err().code, ErrorCode::OutOfResources);
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
