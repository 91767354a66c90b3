//! Redis: a server in another process, pipelines of SET and GET on one connection.

use anyhow::Result;

use super::{Pair, Peer, See};
use crate::redis::resp::Client;
use crate::redis::{Server, Settings, Sync};

/// A connection to a server of its own.
pub(crate) struct RedisPeer {
    client: Client,
    server: Server,
    sync: Option<Sync>,
}

impl RedisPeer {
    /// Starts a server, which is empty.
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let sync = settings.sync;
        let server = Server::start(settings)?;
        Ok(Self { client: Client::connect(server.address())?, server, sync })
    }

    pub(crate) fn version(&self) -> &str {
        self.server.version()
    }
}

impl Peer for RedisPeer {
    fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        for (key, value) in pairs {
            self.client.push(&[b"SET", &key.to_be_bytes(), value]);
        }
        self.client.send()?;
        pairs.iter().try_for_each(|_| self.client.simple(b"OK"))
    }

    fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()> {
        for key in keys {
            self.client.push(&[b"GET", &key.to_be_bytes()]);
        }
        self.client.send()?;
        for index in 0..keys.len() {
            see(index, self.client.bulk()?);
        }
        Ok(())
    }

    /// One that syncs once a second promises nothing of a crash: it is ended in order.
    fn reopen(&mut self) -> Result<()> {
        self.server.restart(self.sync == Some(Sync::Always))?;
        self.client = Client::connect(self.server.address())?;
        Ok(())
    }

    fn server_process_id(&self) -> Option<u32> {
        Some(self.server.process_id())
    }
}
