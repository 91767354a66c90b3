//! Which fabric, and whether a server or a pool: the one place that names them all.
//!
//! Invariant: a call crosses from the facade into a fabric's own code once, however many keys it carries;
//! behind that match everything is monomorphic.

use farsight_client::{BulkLoad, Client, PoolBulkLoad, PoolClient, PoolSession, PoolTable, Session, Table};
use farsight_fabric_shm::ShmConnection;
use farsight_fabric_tcp::TcpConnection;
#[cfg(feature = "verbs")]
use farsight_fabric_verbs::VerbsConnection;

/// Declares an enum with a server's and a pool's generic type once for each fabric.
macro_rules! one_per_fabric {
    ($(#[$meta:meta])* $name:ident of $inner:ident and $pool:ident) => {
        $(#[$meta])*
        pub(crate) enum $name {
            Shm($inner<ShmConnection>),
            Tcp($inner<TcpConnection>),
            #[cfg(feature = "verbs")]
            Rdma($inner<VerbsConnection>),
            PoolShm($pool<ShmConnection>),
            PoolTcp($pool<TcpConnection>),
            #[cfg(feature = "verbs")]
            PoolRdma($pool<VerbsConnection>),
        }
    };
}

one_per_fabric!(
    /// The client of each fabric.
    #[derive(Clone)]
    ProviderClient of Client and PoolClient
);
one_per_fabric!(
    /// The table of each fabric.
    #[derive(Clone)]
    ProviderTable of Table and PoolTable
);
one_per_fabric!(
    /// The session of each fabric.
    ProviderSession of Session and PoolSession
);
one_per_fabric!(
    /// The bulk load of each fabric.
    ProviderBulkLoad of BulkLoad and PoolBulkLoad
);

/// Evaluates an expression with whichever fabric's it is.
macro_rules! on_fabric {
    ($provider:ident, $from:expr, $it:ident => $body:expr) => {
        match $from {
            $provider::Shm($it) => $body,
            $provider::Tcp($it) => $body,
            #[cfg(feature = "verbs")]
            $provider::Rdma($it) => $body,
            $provider::PoolShm($it) => $body,
            $provider::PoolTcp($it) => $body,
            #[cfg(feature = "verbs")]
            $provider::PoolRdma($it) => $body,
        }
    };
}

/// Makes one fabric's part of another of the same fabric.
macro_rules! same_fabric {
    ($provider:ident => $target:ident, $from:expr, $it:ident => $body:expr) => {
        match $from {
            $provider::Shm($it) => $target::Shm($body),
            $provider::Tcp($it) => $target::Tcp($body),
            #[cfg(feature = "verbs")]
            $provider::Rdma($it) => $target::Rdma($body),
            $provider::PoolShm($it) => $target::PoolShm($body),
            $provider::PoolTcp($it) => $target::PoolTcp($body),
            #[cfg(feature = "verbs")]
            $provider::PoolRdma($it) => $target::PoolRdma($body),
        }
    };
}

pub(crate) use {on_fabric, same_fabric};
