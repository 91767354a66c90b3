//! The map of a pool: its nodes in their order, their epochs, and the addresses by which clients reach them.
//!
//! Invariant: the map's number is the pool's *term*, the count of nodes that it has taken in. So who changes
//! the list of epochs changes the addresses with it, and who goes by an older list is refused. How
//! clients learn the map: docs/protocol/cluster.md.

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, POOL_NODES_MAX, PoolPlace, ServerError};

/// Addresses of one node at most.
pub const NODE_ADDRESSES_MAX: usize = 4;
/// Bytes of one address at most.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// Bytes of all addresses of a pool at most: every fabric's messages carry them.
pub const POOL_ADDRESSES_BYTES_MAX: usize = 4096;

/// The addresses of a pool's nodes, in their order; none while nobody has told them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolAddresses(pub Vec<Vec<String>>);

impl PoolAddresses {
    /// One address of each node.
    pub fn of_one_fabric(addresses: impl IntoIterator<Item = String>) -> Self {
        Self(addresses.into_iter().map(|address| vec![address]).collect())
    }

    /// True if somebody has told them.
    #[must_use]
    pub fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// The address of the node at this place that begins so, as `tcp://`.
    #[must_use]
    pub fn by_scheme(&self, place: usize, scheme: &str) -> Option<&str> {
        let addresses = self.0.get(place)?.iter().map(String::as_str);
        addresses.into_iter().find(|address| address.starts_with(scheme))
    }

    /// True if the node at this place is reached by this address.
    #[must_use]
    pub fn has(&self, place: usize, address: &str) -> bool {
        self.0.get(place).is_some_and(|known| known.iter().any(|known| known == address))
    }

    /// The same with a node at this place that is reached by `address`. What was known of the place before
    /// stays where it has that address.
    #[must_use]
    pub fn with(mut self, place: usize, address: &str) -> Self {
        if let Some(known) = self.0.get_mut(place)
            && known.iter().all(|known| known != address)
        {
            *known = vec![address.to_owned()];
        }
        self
    }

    /// Refuses addresses that a pool of so many nodes cannot have.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`].
    pub fn check(&self, nodes: usize) -> Result<(), ServerError> {
        let refuse = |text: String| Err(ServerError::new(ErrorCode::BadRequest, text));
        let got = self.0.len();
        if got != 0 && got != nodes {
            return refuse(format!("a pool of {nodes} nodes has addresses of {nodes} nodes, not of {got}"));
        }
        if let Some(got) = self.0.iter().map(Vec::len).find(|got| !(1..=NODE_ADDRESSES_MAX).contains(got)) {
            return refuse(format!("a node has 1 to {NODE_ADDRESSES_MAX} addresses, not {got}"));
        }
        let lengths = || self.0.iter().flatten().map(String::len);
        if let Some(got) = lengths().find(|got| !(1..=ADDRESS_BYTES_MAX).contains(got)) {
            return refuse(format!("an address has 1 to {ADDRESS_BYTES_MAX} B, not {got}"));
        }
        let got: usize = lengths().sum();
        if got > POOL_ADDRESSES_BYTES_MAX {
            return refuse(format!(
                "the addresses of a pool have at most {POOL_ADDRESSES_BYTES_MAX} B, not {got}"
            ));
        }
        Ok(())
    }
}

/// What a node knows of the map of its pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolMap {
    /// Its own epoch, as in [`NodeHello`](crate::NodeHello).
    pub epoch: u64,
    /// What names its pool; none before the first table.
    pub pool: Option<u64>,
    /// The node's place, and with that the epochs of all; none before the first table.
    pub place: Option<PoolPlace>,
    /// The map's number: how many nodes the pool has taken in.
    pub term: u32,
    /// How clients reach the nodes.
    pub addresses: PoolAddresses,
}

impl PoolMap {
    /// True if it can be a pool's: nodes may lie.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let nodes = self.place.as_ref().map_or(self.addresses.0.len(), |place| place.epochs.len());
        let is_place_sound = self.place.as_ref().is_none_or(PoolPlace::is_sound);
        is_place_sound
            && self.place.is_some() == self.pool.is_some()
            && nodes <= POOL_NODES_MAX
            && self.addresses.check(nodes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&[&str]]) -> PoolAddresses {
        PoolAddresses(
            all.iter().map(|node| node.iter().map(|address| (*address).to_owned()).collect()).collect(),
        )
    }

    #[test]
    fn addresses_that_no_pool_has_are_refused() {
        let text = |bytes| "a".repeat(bytes);
        assert_eq!(addresses(&[]).check(3), Ok(()), "nobody has told them");
        assert_eq!(addresses(&[&["tcp://a:1"], &["tcp://b:1", "rdma://b:1"]]).check(2), Ok(()));
        for (wrong, why) in [
            (addresses(&[&["tcp://a:1"]]), "of one of two"),
            (addresses(&[&["tcp://a:1"], &[]]), "none of the second"),
            (addresses(&[&["a"; NODE_ADDRESSES_MAX + 1], &["b"]]), "too many of the first"),
            (addresses(&[&["a"], &[""]]), "an empty one"),
            (addresses(&[&["a"], &[&text(ADDRESS_BYTES_MAX + 1)]]), "a long one"),
        ] {
            assert_eq!(wrong.check(2).expect_err(why).code, ErrorCode::BadRequest, "{why}");
        }
        let long = text(ADDRESS_BYTES_MAX);
        let all = PoolAddresses(vec![vec![long; NODE_ADDRESSES_MAX]; POOL_NODES_MAX]);
        assert!(all.check(POOL_NODES_MAX).is_err(), "too many bytes together");
    }

    #[test]
    fn a_new_node_has_its_address_alone() {
        let known = addresses(&[&["tcp://a:1"], &["tcp://b:1", "rdma://b:1"]]);
        assert_eq!(known.clone().with(1, "rdma://b:1"), known, "it stands where the lost one stood");
        let moved = known.with(1, "tcp://c:1");
        assert_eq!(moved, addresses(&[&["tcp://a:1"], &["tcp://c:1"]]));
        assert_eq!(moved.by_scheme(1, "tcp://"), Some("tcp://c:1"));
        assert_eq!(moved.by_scheme(1, "rdma://"), None);
        assert!(moved.has(0, "tcp://a:1") && !moved.has(1, "tcp://a:1"));
        assert_eq!(addresses(&[]).with(1, "tcp://c:1"), addresses(&[]), "nobody has told the others");
    }

    #[test]
    fn a_map_that_cannot_be_is_told_apart() {
        let place = |nodes: usize, index| Some(PoolPlace { epochs: vec![7; nodes], index });
        let map = |pool, place, addresses| PoolMap { epoch: 7, pool, place, term: 0, addresses };
        let two = || addresses(&[&["a"], &["b"]]);
        assert!(map(None, None, addresses(&[])).is_sound(), "a node that knows nothing");
        assert!(map(None, None, two()).is_sound(), "it was told when it was started");
        assert!(map(Some(7), place(2, 1), two()).is_sound());
        assert!(!map(Some(7), place(3, 1), two()).is_sound(), "two of three");
        assert!(!map(Some(7), place(2, 2), two()).is_sound(), "no place");
        assert!(!map(Some(7), place(POOL_NODES_MAX + 1, 0), addresses(&[])).is_sound(), "too many");
        assert!(!map(Some(7), None, two()).is_sound(), "a pool without epochs");
        let many = PoolAddresses::of_one_fabric((0..=POOL_NODES_MAX).map(|node| node.to_string()));
        assert!(!map(None, None, many).is_sound(), "more nodes than a pool has");
    }
}
