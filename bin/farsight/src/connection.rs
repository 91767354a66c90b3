//! How client commands find their server.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farsight::{Client, ClientOptions, ServerUrl, default_socket};

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// The server's URL, as `farsight serve` prints it [default: the default socket of this user]
    #[arg(long = "connect", value_name = "URL", env = "FARSIGHT_URL")]
    url: Option<ServerUrl>,
}

impl Connection {
    /// The URL given, or that of the default socket.
    pub(crate) fn url(&self) -> ServerUrl {
        self.url.clone().unwrap_or_else(|| ServerUrl::shm(default_socket()))
    }

    pub(crate) fn open(&self) -> Result<Client> {
        // What a command has begun means nothing to a server that was started again: it does not wait for
        // one.
        Ok(Client::connect_with(&self.url(), ClientOptions { reconnect_timeout: Duration::ZERO })?)
    }
}
