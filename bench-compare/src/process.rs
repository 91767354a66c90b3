//! A server in a process of its own.
//!
//! Invariant: the process is gone when its handle is dropped. It ends with this program, however this program
//! ends: a server is a child of this program that asks the kernel for that first.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The most that it may take until it answers, with a log to replay, and until it ends when told to.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A running process.
pub(crate) struct Process {
    child: Child,
    /// The file that takes what it says.
    log: PathBuf,
}

/// This program with these arguments, as a child of itself.
pub(crate) fn own(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program's own file")?);
    command.args(arguments);
    Ok(command)
}

/// An address with a port that is free now, and hardly taken before a server has it.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("asking for a free port")?;
    Ok(listener.local_addr()?)
}

impl Process {
    /// Starts it. What it says goes to the end of the file `log`.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("opening {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("starting this program as a child")?;
        Ok(Self { child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What `connect` makes once it succeeds: it is tried until then, while the process lives and has time.
    pub(crate) fn await_answer<T>(&mut self, name: &str, connect: impl Fn() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        loop {
            let error = match connect() {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            if self.child.try_wait()?.is_some() || begun.elapsed() > READY_TIMEOUT {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("no {name} answers: {error:#}; it said: {}", said.trim());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it by SIGKILL, as a crash would.
    pub(crate) fn kill(&mut self) {
        // Errors here, as below, mean that it has ended already, which is all that is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in order, by SIGTERM; by SIGKILL if that takes too long.
    pub(crate) fn end(&mut self) {
        let begun = Instant::now();
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while begun.elapsed() < END_TIMEOUT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that was waited for is not signalled: its number may be another's by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}
