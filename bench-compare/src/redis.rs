//! A Redis server in a process of its own, on loopback: in memory alone, or with its log of commands.

pub(crate) mod resp;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use farsight_bench::machine;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::process::{self, Process};

/// The file in its directory that takes what it says.
const LOG: &str = "redis.log";

/// When it syncs its log of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sync {
    /// Before it answers.
    Always,
    /// Once a second.
    Everysec,
}

impl Sync {
    /// As Redis calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The program.
    pub(crate) program: String,
    pub(crate) core: Option<usize>,
    /// Whether it keeps a log of commands, and when that is synced.
    pub(crate) sync: Option<Sync>,
    /// Where it keeps its files.
    pub(crate) directory: PathBuf,
}

/// A running server.
pub(crate) struct Server {
    settings: Settings,
    process: Process,
    address: SocketAddr,
    version: String,
}

/// Becomes `program`, a Redis server, on `core`, that listens at `port` and ends with its parent.
pub(crate) fn become_server(
    program: &str,
    port: u16,
    core: Option<usize>,
    sync: Option<Sync>,
) -> Result<std::convert::Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the parent's end")?;
    if let Some(core) = core {
        machine::pin_to(&[core], 0)?;
    }
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--save", "", "--daemonize", "no", "--io-threads", "1"]);
    match sync {
        None => command.args(["--appendonly", "no"]),
        Some(sync) => command.args(["--appendonly", "yes", "--appendfsync", sync.name()]),
    };
    Err(command.exec()).with_context(|| format!("running {program}: apt-get install redis-server"))
}

impl Server {
    /// Starts it and waits until it answers.
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let address = process::free_address()?;
        let (port, directory) = (address.port().to_string(), &settings.directory);
        let mut command = process::own(&["redis-server", "--program", &settings.program, "--port", &port])?;
        command.args(settings.core.iter().flat_map(|core| ["--core".to_owned(), core.to_string()]));
        command.args(settings.sync.iter().flat_map(|sync| ["--sync", sync.name()]));
        command.current_dir(directory);
        let mut process = Process::start(command, directory.join(LOG))?;
        let version = process.await_answer("Redis", || {
            let mut client = resp::Client::connect(address)?;
            // While it replays its log it answers this with an error.
            client.ping()?;
            client.server_version()
        })?;
        Ok(Self { settings, process, address, version })
    }

    /// Ends it, in order or not, and starts it again on its files.
    pub(crate) fn restart(&mut self, is_killed: bool) -> Result<()> {
        if is_killed {
            self.process.kill();
        } else {
            self.process.end();
        }
        *self = Self::start(self.settings.clone())?;
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}
