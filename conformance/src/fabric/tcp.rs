//! TCP as a subject of the suites.

use std::net::SocketAddr;
use std::sync::OnceLock;

use farsight_fabric::FabricError;
use farsight_fabric_tcp::{ConnectOptions, ListenOptions, TcpConnection, TcpHost};

use super::FabricUnderTest;

/// A port of one test's own: the system's choice for its first server.
#[derive(Default, Debug)]
pub struct Tcp(OnceLock<SocketAddr>);

impl FabricUnderTest for Tcp {
    type Host = TcpHost;
    type Connection = TcpConnection;

    fn listen(&self, format_version: u32) -> TcpHost {
        let address = self.0.get().map_or("127.0.0.1:0".to_owned(), SocketAddr::to_string);
        let host = TcpHost::listen(&address, &ListenOptions::new(format_version)).expect("a server");
        self.0.get_or_init(|| host.local_address());
        host
    }

    fn connect(&self, format_version: u32) -> Result<TcpConnection, FabricError> {
        let address = self.0.get().expect("a server has listened").to_string();
        TcpConnection::connect(&address, ConnectOptions::new(format_version))
    }
}
