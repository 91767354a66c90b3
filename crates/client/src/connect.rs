//! Addresses to a client.
//!
//! Protocol: a node alone is asked at once who it is, so that a way that leads nowhere is an error here. The
//! nodes of a pool are asked with the first table. If one of them cannot be reached, the others are asked at
//! once whether they go on without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_fabric::{Connection, FabricError};
use farsight_protocol::PoolAddresses;

use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A way to any address: a new connection to what listens there.
pub type DialTo<C> = Arc<dyn Fn(&str) -> Result<C, FabricError> + Send + Sync>;

/// Ways to the nodes of a pool, by their places. Clones go the same ways, also when a node has moved.
pub struct Dial<C> {
    to: DialTo<C>,
    addresses: Arc<Mutex<Vec<String>>>,
    /// Other clients can go these ways, too.
    are_common: bool,
}

impl<C> Clone for Dial<C> {
    fn clone(&self) -> Self {
        let (to, addresses) = (Arc::clone(&self.to), Arc::clone(&self.addresses));
        Self { to, addresses, are_common: self.are_common }
    }
}

impl<C> Dial<C> {
    /// Ways to a pool's nodes at these addresses, in their order. The nodes may be told of them, and tell
    /// other clients.
    #[must_use]
    pub fn new(addresses: Vec<String>, to: DialTo<C>) -> Self {
        Self { to, addresses: Arc::new(Mutex::new(addresses)), are_common: true }
    }

    /// The same with addresses that nobody else is told of.
    #[must_use]
    pub fn private(addresses: Vec<String>, to: DialTo<C>) -> Self {
        Self { are_common: false, ..Self::new(addresses, to) }
    }

    /// How many nodes the pool has.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.locked().len()
    }

    /// By which addresses it goes, in the order of the nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.locked().clone()
    }

    /// A new connection to the node at this place.
    ///
    /// # Errors
    /// As the fabric's.
    pub fn connect(&self, place: usize) -> Result<C, FabricError> {
        // No lock is held meanwhile.
        let address = self.address(place);
        (self.to)(&address)
    }

    /// By which address that is.
    #[must_use]
    pub fn address(&self, place: usize) -> String {
        self.locked()[place].clone()
    }

    /// Goes another way from now on.
    pub fn set_address(&self, place: usize, address: String) {
        self.locked()[place] = address;
    }

    /// Goes the way of the pool's map, if its own is none of those. True if it is another one.
    pub(crate) fn follow(&self, place: usize, map: &PoolAddresses) -> bool {
        let own = self.address(place);
        if map.has(place, &own) {
            return false;
        }
        let Some(new) = map.by_scheme(place, scheme_of(&own)) else { return false };
        self.set_address(place, new.to_owned());
        true
    }

    /// What its nodes can be told.
    pub(crate) fn common(&self) -> PoolAddresses {
        if self.are_common {
            PoolAddresses::of_one_fabric(self.addresses())
        } else {
            PoolAddresses::default()
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<String>> {
        // Each change is complete.
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an address begins with that says its fabric, as `tcp://`; nothing, if it says none.
pub(crate) fn scheme_of(address: &str) -> &str {
    const BEHIND: &str = "://";
    address.find(BEHIND).map_or("", |at| &address[..at + BEHIND.len()])
}

/// A client of the nodes that were `reached`, the coordinator first and in the order of the pool. It reaches
/// the others by `dial` later.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`]; of a node alone any of
/// [`PoolError`](crate::PoolError), and failures of the fabric.
pub fn connect<C: Connection>(
    reached: Vec<Result<C, FabricError>>,
    dial: Option<Dial<C>>,
    options: ClientOptions,
) -> Result<Client, CatalogueError> {
    let is_alone = reached.len() == 1;
    let pool = PoolClient::of_reached(reached, dial, options)?;
    if is_alone {
        pool.check_place()?;
    }
    Ok(pool.into())
}
