//! A pool's name to the addresses of its nodes.
//!
//! Invariant: what etcd says is where a client begins, as its user's word would be. From there on the nodes
//! prove who they are.

use farsight_cluster::{ClusterUrl, Etcd, EtcdOptions, FoundNodes};
use farsight_protocol::POOL_NODES_MAX;

use crate::{Addresses, ConnectError, ConnectOptions, ServerUrl};

/// The fabrics, the one first that a client takes if all nodes have it.
const SCHEMES: [&str; 3] = ["shm://", "tcp://", "rdma://"];

impl Addresses {
    /// The same where addresses were given. Of a pool's name, the addresses of its nodes at this moment. All
    /// are of one fabric that all of them have: shared memory if their sockets are on this host, else TCP
    /// before RDMA.
    ///
    /// # Errors
    /// [`ConnectError::Cluster`]; [`ConnectError::NoCommonFabric`].
    pub fn resolve(&self, options: &ConnectOptions) -> Result<Self, ConnectError> {
        self.resolved(options, false)
    }

    /// The same, perhaps with nodes that are registered under the name and belong to no pool.
    pub(crate) fn resolved(
        &self,
        options: &ConnectOptions,
        with_strangers: bool,
    ) -> Result<Self, ConnectError> {
        let Some(name) = self.cluster() else { return Ok(self.clone()) };
        let etcd = Etcd::open(name, EtcdOptions { allow_plaintext: options.allow_plaintext })?;
        let found = etcd.read()?.found(name.name())?;
        over_one_fabric(name, found, with_strangers, std::path::Path::exists)
    }
}

/// The addresses of all nodes over one fabric, and those of strangers over the same.
fn over_one_fabric(
    name: &ClusterUrl,
    found: FoundNodes,
    with_strangers: bool,
    is_here: impl Fn(&std::path::Path) -> bool,
) -> Result<Addresses, ConnectError> {
    let FoundNodes { nodes, strangers } = found;
    let of_scheme = |node: &Vec<String>, scheme: &str| -> Option<ServerUrl> {
        node.iter().find(|address| address.starts_with(scheme))?.parse().ok()
    };
    let all = |scheme: &&str| nodes.iter().map(|node| of_scheme(node, scheme)).collect::<Option<Vec<_>>>();
    // A path says nothing of its host.
    let is_reached = |urls: &Vec<ServerUrl>| {
        urls.iter().any(|url| if let ServerUrl::Shm(socket) = url { is_here(socket) } else { true })
    };
    let ways: Vec<(&str, Vec<ServerUrl>)> =
        SCHEMES.into_iter().filter_map(|scheme| Some((scheme, all(&scheme)?))).collect();
    let best = ways.iter().find(|(_, urls)| is_reached(urls)).or(ways.first()).cloned();
    let Some((scheme, mut urls)) = best else {
        return Err(ConnectError::NoCommonFabric { name: name.to_string(), nodes });
    };
    if with_strangers {
        urls.extend(strangers.iter().filter_map(|node| of_scheme(node, scheme)));
        urls.truncate(POOL_NODES_MAX);
    }
    Ok(Addresses::new(urls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(nodes: &[&[&str]], strangers: &[&[&str]], is_here: bool) -> Result<String, ConnectError> {
        let texts = |nodes: &[&[&str]]| -> Vec<Vec<String>> {
            nodes.iter().map(|node| node.iter().map(ToString::to_string).collect()).collect()
        };
        let found = FoundNodes { nodes: texts(nodes), strangers: texts(strangers) };
        let name = "etcd://a/p".parse().expect("a name");
        over_one_fabric(&name, found, true, |_| is_here).map(|addresses| addresses.to_string())
    }

    #[test]
    fn all_nodes_are_reached_over_one_fabric() {
        let both: &[&[&str]] = &[&["shm:///a", "tcp://a:1"], &["tcp://b:1", "shm:///b"]];
        assert_eq!(resolved(both, &[], true).expect("both"), "shm:///a,shm:///b");
        assert_eq!(resolved(both, &[], false).expect("both"), "tcp://a:1,tcp://b:1");
        assert_eq!(resolved(&[&["shm:///a"]], &[], false).expect("one"), "shm:///a", "there is no other way");
        let cards: &[&[&str]] = &[&["rdma://a:1", "tcp://a:2"], &["rdma://b:1"]];
        assert_eq!(resolved(cards, &[], false).expect("cards"), "rdma://a:1,rdma://b:1");
        let apart = resolved(&[&["tcp://a:1"], &["rdma://b:1"]], &[], false).expect_err("no way");
        assert!(matches!(&apart, ConnectError::NoCommonFabric { .. }), "{apart}");
    }

    #[test]
    fn strangers_come_last_and_over_the_same_fabric() {
        let strangers: &[&[&str]] = &[&["rdma://c:1"], &["tcp://d:1"]];
        assert_eq!(resolved(&[&["tcp://a:1"]], strangers, false).expect("two"), "tcp://a:1,tcp://d:1");
    }
}
