//! The map of a pool outside of the pool, under a name.
//!
//! Invariant: what is kept is a hint. A pool answers rightly whatever stands there, and goes on when nobody
//! keeps anything: epochs prove who is who. A map of an older number never takes the place of a newer one.
//!
//! Protocol (docs/protocol/cluster.md): two *keepers* have a pool's map. One is each of its nodes, in memory;
//! the other is etcd. A [`Registration`] is a node's way from one to the other. It registers the node under a
//! lease, and brings either keeper what the other has that is newer. A client that is given a name reads etcd
//! once, and goes on from there as with addresses that its user gave.

#![forbid(unsafe_code)]

mod error;
mod etcd;
mod keeper;
mod known;
mod record;
mod registration;
mod url;

pub use error::ClusterError;
pub use etcd::{Etcd, EtcdOptions, Lease, Watch};
pub use keeper::{Keeper, Offered};
pub use known::{FoundNodes, Known, Registered};
pub use record::{MapRecord, Member, RecordError};
pub use registration::{Registration, Standing};
pub use url::{ClusterUrl, ClusterUrlError, without_password};
