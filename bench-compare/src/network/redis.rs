//! A Redis server in a process of its own, on loopback, in memory alone.
//!
//! Invariant: the process and its directory are gone when this is dropped. The process ends with this
//! program, however this program ends: a child of this program asks the kernel for that, and then becomes the
//! server.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farsight_bench::machine;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use super::resp;
use crate::tally::value_of;

/// The most that it may take until it answers, and until it ends when told to.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys of one command while loading.
const LOADED_AT_A_TIME: usize = 512;
/// The file in its directory that takes what it says.
const LOG: &str = "redis.log";

/// A running server.
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    version: String,
    directory: TempDir,
}

/// Becomes `program`, a Redis server, on `core`, that listens at `port` and ends with its parent.
pub(crate) fn become_server(
    program: &str,
    port: u16,
    core: Option<usize>,
) -> Result<std::convert::Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the parent's end")?;
    if let Some(core) = core {
        machine::pin_to(&[core], 0)?;
    }
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--io-threads", "1"]);
    Err(command.exec()).with_context(|| format!("running {program}: apt-get install redis-server"))
}

impl Server {
    /// Starts `program` on `core` and waits until it answers.
    pub(super) fn start(program: &str, core: Option<usize>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("farsight-redis-").tempdir()?;
        let log = File::create(directory.path().join(LOG))?;
        // A port that is free now, and hardly taken before the server has it.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let own = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(own);
        command.args(["redis-server", "--program", program, "--port", &address.port().to_string()]);
        command.args(core.iter().flat_map(|core| ["--core".to_owned(), core.to_string()]));
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("starting this program as a child")?;
        let mut server = Self { child, address, version: String::new(), directory };
        server.version = server.await_version()?;
        Ok(server)
    }

    fn await_version(&mut self) -> Result<String> {
        let begun = Instant::now();
        loop {
            if let Ok(mut client) = resp::Client::connect(self.address, resp::Command::Get) {
                return client.server_version();
            }
            let is_over = self.child.try_wait()?.is_some();
            if is_over || begun.elapsed() > READY_TIMEOUT {
                let said = std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
                bail!("no Redis answers at {}: {}", self.address, said.trim());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Stores each key with its first value, and as a member of the ordered set.
    pub(super) fn load(&self, keys: &[u64]) -> Result<()> {
        let mut client = resp::Client::connect(self.address, resp::Command::Get)?;
        for keys in keys.chunks(LOADED_AT_A_TIME) {
            let keys: Vec<(u64, u64)> = keys.iter().map(|key| (*key, value_of(*key, 0))).collect();
            client.store(&keys)?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let begun = Instant::now();
        // Errors here mean that it has ended already, which is all that is wanted.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while begun.elapsed() < END_TIMEOUT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
