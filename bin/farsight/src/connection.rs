//! How client commands find their server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use farsight::{
    Addresses, Client, ConnectError, ConnectOptions, DefaultSocketError, FabricError, PoolRepairError,
    RepairError, RepairProgress, Repaired, ServerUrl, default_socket,
};

use crate::duration;
use crate::tls_files::TlsFiles;
use crate::trusted_servers::TrustedServers;
use crate::waiting::{WaitingName, waiting};

/// From one attempt to reach a server that is being started to the next.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// The server's URL, as `farsight serve` prints it, or those of some of a pool's memory nodes with commas
    /// between. Of all, for the pool's first table, whose order is then the pool's. Or the pool's name in an
    /// etcd: etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...]/NAME [default: the default socket of this user]
    // Help would print the variable's value, which may have a password.
    #[arg(long = "connect", value_name = "URL[,URL...]", env = "FARSIGHT_URL", hide_env_values = true)]
    url: Option<Addresses>,
    /// How long to wait for a server that cannot be reached yet, as one that has just been started: 500ms or
    /// 5s [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    way: Way,
}

/// How it is reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct Way {
    /// Connect unprotected to another machine: anyone on the way can read and change everything
    #[arg(long)]
    allow_plaintext: bool,
    #[command(flatten)]
    trusted: TrustedServers,
    #[command(flatten)]
    tls: TlsFiles,
    /// The RDMA device for rdma:// URLs [default: the one with the address of this side]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,
    /// How to wait for answers over tcp:// and rdma:// [default: briefly]
    #[arg(long, value_enum, value_name = "HOW")]
    waiting: Option<WaitingName>,
}

impl Way {
    /// One of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--allow-plaintext", self.allow_plaintext),
            ("--tls-certificate", self.tls.is_given()),
            ("--rdma-device", self.rdma_device.is_some()),
            ("--waiting", self.waiting.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// What a command has begun means nothing to a server that was started again: it does not wait for one.
    pub(crate) fn options(&self) -> Result<ConnectOptions> {
        Ok(ConnectOptions {
            reconnect_timeout: Duration::ZERO,
            server_uids: self.trusted.uids.clone(),
            tls: self.tls.read()?,
            rdma_device: self.rdma_device.clone(),
            allow_plaintext: self.allow_plaintext,
            waiting: waiting(self.waiting),
        })
    }
}

/// True if nobody has answered: a server may be there soon. What was refused, is so for good.
fn is_absent(error: &ConnectError) -> bool {
    use FabricError::{Disconnected, System, TimedOut};
    match error {
        ConnectError::Fabric(error) => {
            matches!(error, System { .. } | Disconnected { .. } | TimedOut { .. })
        }
        ConnectError::Cluster(error) => error.is_transient(),
        _ => false,
    }
}

impl Connection {
    /// The URLs given, or that of the default socket.
    pub(crate) fn url(&self) -> Result<Addresses, DefaultSocketError> {
        self.url.clone().map_or_else(|| Ok(ServerUrl::shm(default_socket()?).into()), Ok)
    }

    /// How they are reached.
    pub(crate) fn options(&self) -> Result<ConnectOptions> {
        self.way.options()
    }

    /// Takes new nodes into the pool at these addresses, once one is there.
    pub(crate) fn repair(&self, progress: &mut dyn FnMut(RepairProgress<'_>)) -> Result<Vec<Repaired>> {
        let (url, options) = (self.url()?, self.way.options()?);
        let begun = Instant::now();
        loop {
            match farsight::repair(url.clone(), &options, progress) {
                Err(PoolRepairError::Repair(RepairError::NotThere { .. }))
                    if begun.elapsed() < self.wait.unwrap_or_default() =>
                {
                    std::thread::sleep(LOOK_PAUSE);
                }
                done => return Ok(done?),
            }
        }
    }

    pub(crate) fn open(&self) -> Result<Client> {
        let (url, options) = (self.url()?, self.way.options()?);
        let begun = Instant::now();
        loop {
            match Client::connect_with(url.clone(), &options) {
                Err(error) if is_absent(&error) && begun.elapsed() < self.wait.unwrap_or_default() => {
                    std::thread::sleep(LOOK_PAUSE);
                }
                done => return Ok(done?),
            }
        }
    }
}

/// The socket of a server on this host; `None` for a server over a network, or a pool.
pub(crate) fn socket_of(addresses: &Addresses) -> Option<&Path> {
    match addresses.urls() {
        [ServerUrl::Shm(socket)] => Some(socket),
        _ => None,
    }
}
