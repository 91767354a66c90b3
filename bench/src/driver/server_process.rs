//! A server in a process of its own.
//!
//! Invariant: the process, its socket and its directory are gone when this is dropped. It leads a process
//! group of its own, so that a Ctrl-C at the terminal reaches the driver alone, which then ends it in order.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farsight::{Addresses, ServerUrl};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::DriverError;

/// The most that a server may take to say that it is ready, on a busy machine, with memory to take first.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// The most that it may take to end when told to; then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The file, beside the socket, that takes its stderr.
const LOG: &str = "server.log";

/// How to start a server: a command line, to which the driver adds `--socket PATH`. The server prints `ready
/// url=URL pid=PID`, with a `url=` an address, to its stdout and nothing else. One for inserts understands
/// `--prefault=BYTES`.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// An address over a network, at which it listens besides (`--listen URL`) and clients connect.
    pub network: Option<ServerUrl>,
    /// Below which each server has a new directory for its tables (`--data DIR`), until it ends.
    pub data: Option<PathBuf>,
}

/// A running server, or memory node.
pub(super) struct ServerProcess {
    child: Child,
    url: ServerUrl,
    /// Where it listens on this host.
    socket: ServerUrl,
    directory: TempDir,
    /// Of its tables.
    data: Option<TempDir>,
}

/// A new directory that this user alone can enter.
pub(super) fn socket_directory() -> Result<TempDir, DriverError> {
    let made = tempfile::Builder::new().prefix("farsight-bench-").tempdir();
    made.map_err(|source| DriverError::Directory { path: std::env::temp_dir(), source })
}

/// A new directory below `parent`, for a server's tables.
fn data_directory(parent: &PathBuf) -> Result<TempDir, DriverError> {
    let made = tempfile::Builder::new().prefix("farsight-bench-").tempdir_in(parent);
    made.map_err(|source| DriverError::Directory { path: parent.clone(), source })
}

/// Removes the directory that a driver made for `socket`: what its server does at its end, because the driver
/// may have been killed. It removes nothing that the driver did not put there.
pub fn remove_directory_of(socket: &Path) {
    if let Some(directory) = socket.parent() {
        // Whatever is not there, or not empty, is somebody else's work.
        let _ = std::fs::remove_file(directory.join(LOG));
        let _ = std::fs::remove_dir(directory);
    }
}

/// Starts so many memory nodes of a pool, the coordinator first; the last one trains.
pub(super) fn start_pool(command: &ServerCommand, nodes: usize) -> Result<Vec<ServerProcess>, DriverError> {
    let (mut started, mut sockets) = (Vec::new(), Vec::new());
    for node in 0..nodes {
        let trains = (node + 1 == nodes).then_some(&sockets[..]);
        let server: ServerProcess = ServerProcess::start(command, trains)?;
        sockets.push(server.socket.clone());
        started.push(server);
    }
    Ok(started)
}

/// Where a server listens whose socket is in this directory.
fn socket_in(directory: &TempDir) -> PathBuf {
    directory.path().join("server.sock")
}

/// Starts the process of a server.
fn spawn(
    command: &ServerCommand,
    trains: Option<&[ServerUrl]>,
    directory: &TempDir,
    data: Option<&TempDir>,
) -> Result<Child, DriverError> {
    let socket = socket_in(directory);
    let log = directory.path().join(LOG);
    let stderr = File::create(&log).map_err(|source| DriverError::Directory { path: log, source })?;
    let network = command.network.as_ref().map(ToString::to_string);
    let own = ServerUrl::shm(&socket);
    let pool = trains.map(|others| Addresses::new([others, std::slice::from_ref(&own)].concat()).to_string());
    Command::new(&command.program)
        .args(&command.arguments)
        .args(network.iter().flat_map(|url| ["--listen", url]))
        .args(pool.iter().flat_map(|pool| ["--train", pool]))
        .args(data.iter().flat_map(|data| [OsStr::new("--data"), data.path().as_os_str()]))
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .map_err(|source| DriverError::Spawn { program: command.program.clone(), source })
}

impl ServerProcess {
    /// Starts a server and waits until clients can connect. One that is to train the tables of a pool gets
    /// the addresses of all its nodes: these, then its own (`--train URL,URL`).
    pub(super) fn start(command: &ServerCommand, trains: Option<&[ServerUrl]>) -> Result<Self, DriverError> {
        let directory = socket_directory()?;
        let data = command.data.as_ref().map(data_directory).transpose()?;
        let own = ServerUrl::shm(socket_in(&directory));
        let child = spawn(command, trains, &directory, data.as_ref())?;
        let mut server = Self { child, url: own.clone(), socket: own, directory, data };
        server.await_ready(command)?;
        Ok(server)
    }

    /// Ends the process by SIGKILL, if it lives.
    pub(super) fn kill(&mut self) {
        // An error here means that it has ended already, which is all that is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server anew, which has ended. It has the same socket and the same directory for its tables.
    /// Returns when clients can connect.
    pub(super) fn start_again(&mut self, command: &ServerCommand) -> Result<(), DriverError> {
        self.child = spawn(command, None, &self.directory, self.data.as_ref())?;
        self.await_ready(command)
    }

    fn await_ready(&mut self, command: &ServerCommand) -> Result<(), DriverError> {
        let line = self.child.stdout.take().and_then(first_line).unwrap_or_default();
        match command.network {
            None if line.starts_with("ready ") => return Ok(()),
            Some(_) => {
                if let Some(url) = network_url(&line) {
                    self.url = url;
                    return Ok(());
                }
            }
            None => {}
        }
        // What it had to say is complete once it has ended.
        self.end();
        let said = line + &self.log();
        let said = said.trim();
        let evidence = if said.is_empty() { "it said nothing".to_owned() } else { said.to_owned() };
        Err(DriverError::NotReady { evidence })
    }

    /// The directory of its tables, if it keeps them.
    pub(super) fn data(&self) -> Option<&Path> {
        self.data.as_ref().map(TempDir::path)
    }

    /// The number of its process.
    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// What it has written to stderr; nothing if that cannot be read.
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }

    /// Ends the process: by SIGTERM, on which it removes its socket, or else by SIGKILL.
    fn end(&mut self) {
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

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// The address over a network in the line of a server that is ready: with the port that it has got.
fn network_url(ready: &str) -> Option<ServerUrl> {
    let words = ready.strip_prefix("ready ")?.split_ascii_whitespace();
    let urls = words.filter_map(|word| word.strip_prefix("url=")?.parse().ok());
    urls.into_iter().find(|url| !matches!(url, ServerUrl::Shm(_)))
}

/// The first line of a process's output; `None` if it does not come in time.
fn first_line(out: ChildStdout) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    // Reading has no time-out, so a thread does it. The thread ends with the process at the latest.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        // Nobody may wait any more.
        let _ = sender.send(read.map(|_| line));
    });
    receiver.recv_timeout(READY_TIMEOUT).ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ServerCommand {
        ServerCommand {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into(), "server".into()],
            network: None,
            data: None,
        }
    }

    #[test]
    fn what_a_server_says_instead_is_the_error() {
        let outcome = ServerProcess::start(&shell("echo no memory >&2; exit 1"), None);
        let error = outcome.err().expect("it is not ready").to_string();
        assert_eq!(error, "the server did not become ready: no memory");
        let missing = ServerCommand { program: "/nowhere/farsight".into(), ..shell("") };
        let error = ServerProcess::start(&missing, None).err().expect("no such program").to_string();
        assert_eq!(error, "cannot start a server as /nowhere/farsight");
    }

    #[test]
    fn a_server_over_a_network_says_where() {
        let anywhere: ServerUrl = "tcp://127.0.0.1:0".parse().expect("an address");
        // The arguments behind the script are its name, --listen and the address.
        let script = "echo ready url=shm:///s url=${2%0}77 pid=1; exec sleep 600";
        let command = ServerCommand { network: Some(anywhere.clone()), ..shell(script) };
        let server = ServerProcess::start(&command, None).expect("it says ready");
        assert_eq!(server.url().to_string(), "tcp://127.0.0.1:77");
        let silent = ServerCommand { network: Some(anywhere), ..shell("echo ready url=shm:///s pid=1") };
        let error = ServerProcess::start(&silent, None).err().expect("no address").to_string();
        assert_eq!(error, "the server did not become ready: ready url=shm:///s pid=1");
    }

    #[test]
    fn a_server_ends_with_its_handle() {
        let server =
            ServerProcess::start(&shell("echo ready now; exec sleep 600"), None).expect("it says ready");
        let process = PathBuf::from(format!("/proc/{}", server.child.id()));
        let directory = server.directory.path().to_owned();
        assert!(process.exists() && directory.exists());
        drop(server);
        assert!(!process.exists() && !directory.exists());
    }
}
