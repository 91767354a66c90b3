//! What etcd has under a pool's name, at one revision, and what follows from it.
//!
//! Keys are `/farsight/NAME/map`, `/farsight/NAME/coordinator`, and `/farsight/NAME/nodes/EPOCH` of each
//! node, whose epoch is 16 hexadecimal digits. All but the map are under the leases of nodes.

use farsight_protocol::{POOL_NODES_MAX, PoolAddresses};

use crate::{ClusterError, MapRecord, Member, RecordError};

/// Keys of one pool that are read at most: its nodes, new ones, and those of lives before.
pub(crate) const KEYS_MAX: usize = 64;

/// Everything under a pool's name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// When etcd had it.
    pub(crate) revision: i64,
    /// The map, and the revision of its last change.
    pub(crate) map: Option<(MapRecord, i64)>,
    /// The nodes that are registered, in the order in which they came.
    pub(crate) nodes: Vec<Registered>,
    /// The epoch of the node that has the coordinator's lease.
    pub(crate) coordinator: Option<u64>,
}

/// A node that is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// What it said.
    pub member: Member,
    /// The number of its lease.
    pub(crate) lease: i64,
    /// When its key was made.
    pub(crate) created: i64,
}

/// Where nodes are, with all addresses of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundNodes {
    /// Of the pool's nodes in their order; of those that are to be the pool, if it has no table yet.
    pub nodes: Vec<Vec<String>>,
    /// Of nodes that are registered under its name, and belong to no pool.
    pub strangers: Vec<Vec<String>>,
}

/// A key and its value, as etcd has them.
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
}

/// The keys of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn of(name: &str) -> Self {
        Self { prefix: format!("/farsight/{name}/") }
    }

    /// All of them, and the first key behind them.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.prefix.clone().into_bytes();
        // The byte behind the slash.
        *end.last_mut().expect("a prefix ends with a slash") += 1;
        (self.prefix.clone().into_bytes(), end)
    }

    pub(crate) fn map(&self) -> Vec<u8> {
        format!("{}map", self.prefix).into_bytes()
    }

    pub(crate) fn coordinator(&self) -> Vec<u8> {
        format!("{}coordinator", self.prefix).into_bytes()
    }

    pub(crate) fn node(&self, epoch: u64) -> Vec<u8> {
        format!("{}nodes/{epoch:016x}", self.prefix).into_bytes()
    }

    /// What these pairs say, which are all of the pool's.
    pub(crate) fn known(&self, revision: i64, pairs: Vec<Pair>) -> Result<Known, ClusterError> {
        let corrupt = |key: &[u8], source| ClusterError::Corrupt {
            key: String::from_utf8_lossy(key).into_owned(),
            source,
        };
        let mut known = Known { revision, ..Known::default() };
        let nodes = format!("{}nodes/", self.prefix).into_bytes();
        for Pair { key, value, created, modified, lease } in pairs {
            if key == self.map() {
                let map = MapRecord::decoded(&value).map_err(|source| corrupt(&key, source))?;
                known.map = Some((map, modified));
            } else if key == self.coordinator() {
                let epoch = <[u8; 8]>::try_from(&value[..]).map_err(|_| corrupt(&key, RecordError::Bytes))?;
                known.coordinator = Some(u64::from_le_bytes(epoch));
            } else if key.starts_with(&nodes) {
                let member = Member::decoded(&value).map_err(|source| corrupt(&key, source))?;
                if key != self.node(member.epoch) {
                    return Err(corrupt(&key, RecordError::Unsound("another node than the key")));
                }
                known.nodes.push(Registered { member, lease, created });
            }
        }
        known.nodes.sort_by_key(|node| (node.created, node.member.epoch));
        Ok(known)
    }
}

impl Known {
    /// The map of the pool that has the name. A pool without directories ends with its nodes: when none of
    /// them is registered any more, the name is free.
    #[must_use]
    pub fn pool(&self) -> Option<&MapRecord> {
        let (map, _) = self.map.as_ref()?;
        let has_nodes = || map.epochs().iter().any(|epoch| self.node(*epoch).is_some());
        (map.is_durable() || has_nodes()).then_some(map)
    }

    /// The nodes that are registered, in the order in which they came.
    #[must_use]
    pub fn nodes(&self) -> &[Registered] {
        &self.nodes
    }

    /// The epoch of the node that has the coordinator's lease.
    #[must_use]
    pub fn coordinator(&self) -> Option<u64> {
        self.coordinator
    }

    /// The node of this epoch, if it is registered.
    #[must_use]
    pub fn node(&self, epoch: u64) -> Option<&Registered> {
        self.nodes.iter().find(|node| node.member.epoch == epoch)
    }

    /// Where the nodes of this map are: those that are registered as they say, others as was known before.
    #[must_use]
    pub fn addresses(&self, map: &MapRecord) -> PoolAddresses {
        let at = |(place, epoch): (usize, &u64)| {
            let before = || map.addresses().0.get(place).cloned().unwrap_or_default();
            self.node(*epoch).map_or_else(before, |node| node.member.addresses.clone())
        };
        let addresses = PoolAddresses(map.epochs().iter().enumerate().map(at).collect());
        map.with_addresses(addresses).addresses().clone()
    }

    /// Where the nodes are with which a client begins.
    ///
    /// # Errors
    /// [`ClusterError::Few`] if the pool has no table yet, and not all of its nodes are there;
    /// [`ClusterError::Nodes`] if they do not agree on how many.
    pub fn found(&self, name: &str) -> Result<FoundNodes, ClusterError> {
        let addresses =
            |nodes: &[&Registered]| nodes.iter().map(|node| node.member.addresses.clone()).collect();
        if let Some(map) = self.pool() {
            let others = |node: &&Registered| !map.epochs().contains(&node.member.epoch);
            let others: Vec<&Registered> = self.nodes.iter().filter(others).collect();
            return Ok(FoundNodes { nodes: self.addresses(map).0, strangers: addresses(&others) });
        }
        let got = self.nodes.len();
        let expected = self.nodes.first().map_or(1, |node| usize::from(node.member.pool_nodes));
        let differs = |node: &&Registered| usize::from(node.member.pool_nodes) != expected;
        if let Some(other) = self.nodes.iter().find(differs) {
            let other = usize::from(other.member.pool_nodes);
            return Err(ClusterError::Nodes { name: name.to_owned(), first: expected, other });
        }
        if got < expected {
            return Err(ClusterError::Few { name: name.to_owned(), expected, got });
        }
        let all: Vec<&Registered> = self.nodes.iter().collect();
        let (nodes, others) = all.split_at(expected.min(POOL_NODES_MAX));
        Ok(FoundNodes { nodes: addresses(nodes), strangers: addresses(others) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{member, record};

    fn pair(key: Vec<u8>, value: Vec<u8>, created: i64) -> Pair {
        Pair { key, value, created, modified: created, lease: created }
    }

    fn node(keys: &Keys, epoch: u64, pool_nodes: u8, created: i64) -> Pair {
        pair(keys.node(epoch), member(epoch, pool_nodes).encoded(), created)
    }

    fn known(pairs: Vec<Pair>) -> Known {
        Keys::of("p").known(9, pairs).expect("sound values")
    }

    #[test]
    fn keys_have_the_names_of_the_document() {
        let keys = Keys::of("users");
        assert_eq!(keys.range(), (b"/farsight/users/".to_vec(), b"/farsight/users0".to_vec()));
        assert_eq!(keys.node(0xabc), b"/farsight/users/nodes/0000000000000abc");
        for key in [keys.map(), keys.coordinator(), keys.node(u64::MAX)] {
            assert!((keys.range().0..keys.range().1).contains(&key));
        }
    }

    #[test]
    fn before_the_first_table_the_nodes_that_came_first_are_the_pool() {
        let keys = Keys::of("p");
        let of = |nodes: &[(u64, u8, i64)]| {
            known(nodes.iter().map(|(epoch, count, created)| node(&keys, *epoch, *count, *created)).collect())
        };
        assert!(matches!(of(&[]).found("p"), Err(ClusterError::Few { expected: 1, got: 0, .. })));
        let two = of(&[(1, 3, 7), (2, 3, 5)]);
        assert!(matches!(two.found("p"), Err(ClusterError::Few { expected: 3, got: 2, .. })));
        let found = of(&[(1, 2, 7), (2, 2, 5), (3, 2, 6)]).found("p").expect("two of three");
        let at = |epoch: u64| vec![format!("tcp://h:{epoch}")];
        assert_eq!(found, FoundNodes { nodes: vec![at(2), at(3)], strangers: vec![at(1)] });
        let differing = of(&[(1, 3, 5), (2, 2, 7)]).found("p");
        assert!(matches!(differing, Err(ClusterError::Nodes { first: 3, other: 2, .. })), "{differing:?}");
    }

    #[test]
    fn a_node_that_is_registered_is_where_it_says() {
        let keys = Keys::of("p");
        let moved = Member { addresses: vec!["tcp://new:1".to_owned()], ..member(6, 2) };
        let pairs = vec![
            pair(keys.map(), record(5, 0, &[5, 6]).encoded(), 1),
            pair(keys.node(6), moved.encoded(), 2),
            node(&keys, 9, 2, 3),
        ];
        let found = known(pairs).found("p").expect("a pool");
        let at = |address: &str| vec![address.to_owned()];
        assert_eq!(found.nodes, [at("tcp://h:5"), at("tcp://new:1")]);
        assert_eq!(found.strangers, [at("tcp://h:9")]);
    }

    #[test]
    fn a_pool_without_directories_ends_with_its_nodes() {
        let keys = Keys::of("p");
        let map = || pair(keys.map(), record(5, 0, &[5, 6]).encoded(), 1);
        assert_eq!(known(vec![map(), node(&keys, 9, 1, 2)]).pool(), None, "none of its nodes");
        assert!(known(vec![map(), node(&keys, 5, 1, 2)]).pool().is_some(), "one of its nodes");
    }

    #[test]
    fn a_corrupt_value_is_named() {
        let keys = Keys::of("p");
        let read = |pair| keys.known(1, vec![pair]).map_err(|error| error.to_string()).expect_err("corrupt");
        let error = read(pair(keys.map(), vec![1, 2, 3], 1));
        assert!(error.contains("/farsight/p/map") && error.contains("etcdctl del"), "{error}");
        let error = read(pair(keys.node(7), member(8, 1).encoded(), 1));
        assert!(error.contains("nodes/0000000000000007") && error.contains("another node"), "{error}");
        assert!(read(pair(keys.coordinator(), vec![1], 1)).contains("coordinator"));
        assert_eq!(known(vec![pair(b"/farsight/p/other".to_vec(), vec![1], 1)]).nodes().len(), 0);
    }
}
