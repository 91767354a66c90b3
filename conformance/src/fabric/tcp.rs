//! TCP as a subject of the suites.

use std::net::{Ipv4Addr, SocketAddr};

use farsight_fabric::FabricError;
use farsight_fabric_tcp::{ConnectOptions, ListenError, ListenOptions, TcpConnection, TcpHost};

use super::port::{listen_at_own, own_address, waiting_at};
use super::{FabricUnderTest, HasUrl};

/// A port of one test's own.
#[derive(Debug)]
pub struct Tcp(SocketAddr);

impl Default for Tcp {
    fn default() -> Self {
        Self(own_address(Ipv4Addr::LOCALHOST.into()))
    }
}

impl Tcp {
    /// A server with these options.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn listen_with(&self, options: &ListenOptions) -> TcpHost {
        let address = self.0.to_string();
        listen_at_own(
            || TcpHost::listen(&address, options),
            |error| matches!(error, ListenError::InUse { .. }),
        )
    }

    /// A client with these options.
    ///
    /// # Errors
    /// Those of [`TcpConnection::connect`].
    pub fn connect_with(&self, options: ConnectOptions) -> Result<TcpConnection, FabricError> {
        TcpConnection::connect(&self.0.to_string(), options)
    }
}

impl HasUrl for Tcp {
    fn url(&self) -> String {
        format!("tcp://{}", self.0)
    }
}

impl FabricUnderTest for Tcp {
    type Host = TcpHost;
    type Connection = TcpConnection;

    fn listen(&self, format_version: u32) -> TcpHost {
        let waiting = waiting_at(&self.0.to_string());
        self.listen_with(&ListenOptions { waiting, ..ListenOptions::new(format_version) })
    }

    fn connect(&self, format_version: u32) -> Result<TcpConnection, FabricError> {
        let waiting = waiting_at(&self.0.to_string());
        self.connect_with(ConnectOptions { waiting, ..ConnectOptions::new(format_version) })
    }
}
