//! What goes wrong with a pool's map in etcd.

use std::time::Duration;

use crate::RecordError;

/// A failure to read or to keep a pool's map.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No member of the etcd has answered in time.
    #[error(
        "etcd at {endpoints} does not answer: {why} (tried for {waited:.1?}). Is it running there? Commands find the pool \
         by the addresses of its nodes, too"
    )]
    Unreachable {
        /// Its members.
        endpoints: String,
        /// What the last attempt met.
        why: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The etcd has refused.
    #[error("etcd at {endpoint} refuses: {why}")]
    Refused {
        /// The member that answered.
        endpoint: String,
        /// What it said.
        why: String,
    },
    /// A value is none of this program's.
    #[error(
        "the bytes of {key} in etcd are no record of a pool: {source}. If nothing else uses the key, `etcdctl del {key}` \
         removes it, and the pool's nodes write it again"
    )]
    Corrupt {
        /// The key.
        key: String,
        /// What is wrong with its value.
        source: RecordError,
    },
    /// More keys than any pool has.
    #[error(
        "etcd has more than {max} keys under {prefix}: `etcdctl get --keys-only --prefix {prefix}` lists them"
    )]
    Keys {
        /// What they begin with.
        prefix: String,
        /// The most that a pool has.
        max: usize,
    },
    /// The pool has no table yet, and not all of its nodes are there.
    #[error(
        "{got} of the {expected} nodes of pool {name} are registered in etcd, and it has no table yet: start the others \
         with `farsight serve --cluster`"
    )]
    Few {
        /// The pool.
        name: String,
        /// Nodes that it is to have.
        expected: usize,
        /// Those that are registered.
        got: usize,
    },
    /// Nodes disagree on how many they are.
    #[error(
        "the nodes of pool {name} were started with `--nodes {first}` and with `--nodes {other}`: give all of them one number"
    )]
    Nodes {
        /// The pool.
        name: String,
        /// What the first was told.
        first: usize,
        /// What another one was told.
        other: usize,
    },
    /// Another pool has the name.
    #[error(
        "the name {name} is that of pool {pool:#x} in etcd, and this node belongs to pool {own:#x}: give it another name, \
         or, if that pool is gone for good, `etcdctl del --prefix /farsight/{name}/`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The pool that has it.
        pool: u64,
        /// This node's.
        own: u64,
    },
    /// The etcd is on another host, and nothing protects the way.
    #[error(
        "etcd at {endpoint} is on another host, and is reached unprotected: anyone on the way can lead clients elsewhere. \
         Allow it with --allow-plaintext (allow_plaintext), or run a member of the etcd, or a proxy to it, on this host"
    )]
    Plaintext {
        /// A member on another host.
        endpoint: String,
    },
    /// What a node says of itself cannot be.
    #[error("this node cannot be registered: {0}")]
    Member(RecordError),
    /// No thread can be started.
    #[error("the thread that speaks with etcd cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl ClusterError {
    /// True if it may be otherwise soon, without anybody's doing but what is being started.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Few { .. })
    }
}
