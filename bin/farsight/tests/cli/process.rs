//! Processes of the program under test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The most that a command may take on a busy machine; a hang ends there.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A running `farsight serve` in a directory of its own; killed at the end if it still runs.
pub(crate) struct Serve {
    pub(crate) child: Child,
    pub(crate) directory: TempDir,
    pub(crate) ready: String,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) out: String,
    pub(crate) error: String,
    pub(crate) code: Option<i32>,
}

/// The program, with nothing of this process's settings.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farsight"));
    command.env_remove("FARSIGHT_URL").env_remove("FARSIGHT_SERVER_UID").env_remove("XDG_RUNTIME_DIR");
    command
}

/// Waits for a process that must end by itself.
pub(crate) fn wait(mut child: Child) -> Ended {
    let begun = Instant::now();
    let (out, error) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break Some(status);
        }
        if begun.elapsed() > COMMAND_TIMEOUT {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let text = |reader: JoinHandle<String>| reader.join().expect("a reader ends with its pipe");
    let (out, error) = (text(out), text(error));
    let Some(status) = status else { panic!("a command does not end; it said {error:?}") };
    Ended { out, error, code: status.code() }
}

/// Reads a pipe to its end beside the process, which would stop at a full one.
fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_string(&mut text).expect("the program prints UTF-8");
        }
        text
    })
}

/// Starts a command with its outputs piped.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

impl Serve {
    /// A server with 256 MiB a table.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::start_in(directory)
    }

    pub(crate) fn start_in(directory: TempDir) -> Self {
        Self::start_with(directory, &[])
    }

    /// A server with further arguments.
    pub(crate) fn start_with(directory: TempDir, arguments: &[&str]) -> Self {
        Self::start_as("serve", directory, arguments)
    }

    /// A server, or a memory node, with further arguments.
    pub(crate) fn start_as(command: &str, directory: TempDir, arguments: &[&str]) -> Self {
        Self::start_program(directory, &[&[command, "--memory", "256M"], arguments].concat())
    }

    /// A command that listens in this directory, with these arguments.
    pub(crate) fn start_program(directory: TempDir, arguments: &[&str]) -> Self {
        let mut child = program()
            .args(arguments)
            .arg("--socket")
            .arg(directory.path().join("test.sock"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut ready = String::new();
        let out = child.stdout.take().expect("stdout is piped");
        BufReader::new(out).read_line(&mut ready).expect("the program says that it is ready");
        assert!(ready.starts_with("ready url=shm://"), "the program said {ready:?}");
        Self { child, directory, ready }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("test.sock")
    }

    /// A file in the server's directory.
    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, contents).expect("a file can be written");
        path.to_str().expect("temporary paths are text").to_owned()
    }

    /// A client command against this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.env("FARSIGHT_URL", url(&self.socket())).args(arguments);
        command
    }

    /// Runs a client command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        wait(start(&mut self.command(arguments)))
    }

    /// Runs a client command that must succeed, and returns what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
        ended.out
    }

    /// Runs a client command that must fail with one line, and returns that.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        self.run(arguments).into_error(arguments)
    }

    /// Starts it again, as a memory node, where it was.
    pub(crate) fn start_again_as_memory_node(mut self) -> Self {
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().expect("a directory"));
        self.kill();
        Self::start_as("memory-node", directory, &[])
    }

    /// Kills the server at once, and starts another one in its directory with these arguments.
    pub(crate) fn kill_and_start(mut self, arguments: &[&str]) -> Self {
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().expect("a directory"));
        self.kill();
        Self::start_with(directory, arguments)
    }

    /// Kills the server at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("a killed server ends");
    }
}

impl Ended {
    /// The one line of a command that must have failed.
    pub(crate) fn into_error(self, what: impl std::fmt::Debug) -> String {
        assert_eq!(self.code, Some(1), "{what:?} ended with {self:?}");
        let line = self.error.strip_suffix('\n').expect("an error is a line");
        assert!(line.starts_with("error: ") && !line.contains('\n'), "{what:?} said {:?}", self.error);
        line.to_owned()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Fails if it has ended, which is all that is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn url(socket: &Path) -> String {
    format!("shm://{}", socket.display())
}
