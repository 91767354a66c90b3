//! Processes that play a role in a test: the test's own binary, started again.
//!
//! A test file that starts some has one test, [`ENTRY`], which calls [`role`] and returns if there is none.
//! What a role needs to know comes as environment variables, what it found goes to its standard output, line
//! by line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal};

use super::harness::eventually;

/// The name of the test that plays the roles.
pub const ENTRY: &str = "play";
const ROLE: &str = "FARSIGHT_TEST_ROLE";
/// What a line of a role's output begins with; the rest is the test framework's.
const MARK: &str = "role: ";

/// The role that this process is to play, if it is to play one. It ends with the test that started it,
/// however that ends.
#[must_use]
pub fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    std::thread::spawn(|| {
        // The other end is the test's: nothing is ever written to it, and it closes with its process.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::abort();
    });
    Some(role)
}

/// An argument of the role.
///
/// # Panics
/// If it was not given or is not of its type.
#[must_use]
pub fn argument<T: std::str::FromStr>(name: &str) -> T {
    let text = std::env::var(name).unwrap_or_else(|_| panic!("the role has no argument {name}"));
    text.parse().unwrap_or_else(|_| panic!("the role's argument {name} is {text:?}"))
}

/// Says something to the test that started the role.
///
/// # Panics
/// If the test is gone.
pub fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{MARK}{text}").and_then(|()| output.flush()).expect("the test listens");
}

/// A process with a role; killed when it is dropped.
pub struct Player {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Player {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(role: &str, arguments: &[(&str, String)]) -> Self {
        Self::start_with(role, arguments, Stdio::inherit())
    }

    /// Starts one whose standard error goes to the file `log`.
    ///
    /// # Panics
    /// If it does not start, or there can be no such file.
    #[must_use]
    pub fn start_logged(role: &str, arguments: &[(&str, String)], log: &Path) -> Self {
        Self::start_with(role, arguments, File::create(log).expect("a log").into())
    }

    fn start_with(role: &str, arguments: &[(&str, String)], errors: Stdio) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args([ENTRY, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        command.envs(arguments.iter().map(|(name, value)| (name, value)));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().expect("a process");
        let output = child.stdout.take().expect("its output is piped");
        Self { child, lines: BufReader::new(output).lines() }
    }

    /// The process's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the role says something; `None` when its process has ended.
    pub fn hear(&mut self) -> Option<String> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(MARK).map(str::to_owned))
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// True while its process has not ended.
    ///
    /// # Panics
    /// If that cannot be told.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Waits for its end, which something else brings about.
    ///
    /// # Panics
    /// If it does not come.
    pub fn await_end(&mut self) {
        // To wait for the child would close its standard input first, and that ends a role at once.
        eventually("a process's end", || !self.is_running());
    }

    /// Kills it, at whatever it is doing.
    ///
    /// # Panics
    /// If it had ended by itself.
    pub fn kill(mut self) {
        assert!(self.child.try_wait().expect("its state").is_none(), "the process had ended by itself");
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Waits for its end, and for what it says last.
    ///
    /// # Panics
    /// If it failed: its own words are on the standard error.
    #[must_use]
    pub fn finish(mut self) -> String {
        let mut last = String::new();
        while let Some(text) = self.hear() {
            last = text;
        }
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "a role failed: {status}");
        last
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
