//! How client commands find their server.

use anyhow::Result;
use clap::Args;
use farsight::{Client, ServerUrl, default_socket};

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
        Ok(Client::connect(&self.url())?)
    }
}
