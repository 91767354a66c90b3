//! Which fabric: the one place that names them all.
//!
//! Invariant: a call crosses from the facade into a fabric's own code once, however many keys it carries;
//! behind that match everything is monomorphic.

use farsight_client::{BulkLoad, Client, Session, Table};
use farsight_fabric_shm::ShmConnection;
use farsight_fabric_tcp::TcpConnection;
#[cfg(feature = "verbs")]
use farsight_fabric_verbs::VerbsConnection;

/// Declares an enum with the same generic type once for each fabric.
macro_rules! one_per_fabric {
    ($(#[$meta:meta])* $name:ident of $inner:ident) => {
        $(#[$meta])*
        pub(crate) enum $name {
            Shm($inner<ShmConnection>),
            Tcp($inner<TcpConnection>),
            #[cfg(feature = "verbs")]
            Rdma($inner<VerbsConnection>),
        }
    };
}

one_per_fabric!(
    /// The client of each fabric.
    #[derive(Clone)]
    ProviderClient of Client
);
one_per_fabric!(
    /// The table of each fabric.
    #[derive(Clone)]
    ProviderTable of Table
);
one_per_fabric!(
    /// The session of each fabric.
    ProviderSession of Session
);
one_per_fabric!(
    /// The bulk load of each fabric.
    ProviderBulkLoad of BulkLoad
);

/// Evaluates an expression with whichever fabric's it is.
macro_rules! on_fabric {
    ($provider:ident, $from:expr, $it:ident => $body:expr) => {
        match $from {
            $provider::Shm($it) => $body,
            $provider::Tcp($it) => $body,
            #[cfg(feature = "verbs")]
            $provider::Rdma($it) => $body,
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
        }
    };
}

pub(crate) use {on_fabric, same_fabric};
