//! One virtual machine: a QEMU process, the job that is sent to it, and what comes back.
//!
//! Invariant: a machine has no files, and does not outlive its parent. Job and output go through QEMU's
//! standard input and output, the kernel's messages through its standard error. A socket without a place in
//! the file system joins two machines. The kernel kills QEMU when its parent ends, however that is.
//!
//! Protocol: the job is a shell script. It sets the devices up, prints a token and `ready`, and waits for a
//! line. Then it runs the command, prints the token and the command's exit status, and sleeps until QEMU is
//! killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, ensure};

use super::kernel::Kernel;
use super::tools;

/// The line with which a job ends; `init.sh` looks for it.
const END_OF_JOB: &str = "# the job ends here";
/// Memory of a machine; QEMU takes what is touched.
const MEMORY_MIB: u32 = 3072;
/// What a pipe holds at least (pipe(7)).
const PIPE_BYTES: usize = 65_536;
/// Lines of the kernel's that are kept.
const CONSOLE_LINES: usize = 40;

/// What a machine tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A piece of the command's output, a line or the beginning of one.
    Output(Vec<u8>),
    /// It is up, and waits for [`Machine::go`].
    Ready,
    /// The command ended with this status.
    Ended(u8),
    /// QEMU closed its output.
    Closed,
}

/// A started machine; dropping it kills it.
#[derive(Debug)]
pub(super) struct Machine {
    child: Child,
    input: ChildStdin,
    console: Arc<Mutex<VecDeque<String>>>,
}

impl Machine {
    /// Boots; `job` is a script of [`Job`](super::job::Job), `arguments` are QEMU's for the network.
    /// Events are sent with `index`.
    pub(super) fn start(
        kernel: &Kernel,
        arguments: &[String],
        job: &str,
        token: &str,
        (index, events): (usize, Sender<(usize, Event)>),
    ) -> anyhow::Result<Self> {
        let mut child = tools::command("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-monitor", "none", "-no-reboot"])
            // Emulated, a string copy (erms) moves single bytes, and Soft-RoCE's READs would tear words.
            .args([
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max,-erms",
                "-smp",
                "2",
                "-m",
                &MEMORY_MIB.to_string(),
            ])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&kernel.initrd)
            .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1"])
            .args(["-serial", "file:/dev/stderr"])
            .args(["-chardev", "stdio,id=job,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=job,nr=1"])
            .args(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"])
            .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting QEMU")?;
        let input = child.stdin.take().expect("a pipe was requested");
        let output = child.stdout.take().expect("a pipe was requested");
        let errors = child.stderr.take().expect("a pipe was requested");
        let console = Arc::new(Mutex::new(VecDeque::new()));
        thread::spawn({
            let token = token.to_owned();
            move || tell(output, &token, &|event| events.send((index, event)).is_ok())
        });
        thread::spawn({
            let console = Arc::clone(&console);
            move || keep(errors, &console)
        });
        let mut machine = Self { child, input, console };
        machine.send(&format!("{job}\n{END_OF_JOB}\n"))?;
        Ok(machine)
    }

    /// Lets a machine that is ready run its command.
    pub(super) fn go(&mut self) -> anyhow::Result<()> {
        self.send("go\n")
    }

    /// The last that the kernel and QEMU said.
    pub(super) fn console(&self) -> String {
        let lines = self.console.lock().expect("no thread panics with it");
        lines.iter().flat_map(|line| ["  | ", line, "\n"]).collect()
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        // Within what a pipe holds nothing waits for the machine, which may never come up.
        ensure!(text.len() < PIPE_BYTES, "a job of {} bytes, at most {PIPE_BYTES}", text.len());
        self.input.write_all(text.as_bytes()).context("sending the job to QEMU")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a machine's output to its end, and tells it, until nobody listens.
fn tell(output: impl Read, token: &str, send: &dyn Fn(Event) -> bool) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Whatever was wrong with the pipe: there is no more.
        if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            send(Event::Closed);
            return;
        }
        for event in events(&line, token) {
            if !send(event) {
                return;
            }
        }
    }
}

/// What one line means. The token may follow output that ended without a line's end.
fn events(line: &[u8], token: &str) -> Vec<Event> {
    let text = String::from_utf8_lossy(line);
    let told = text.split_once(token).and_then(|(before, rest)| {
        let event = match rest.trim() {
            "ready" => Event::Ready,
            status => Event::Ended(status.parse().ok()?),
        };
        Some((before.as_bytes().to_vec(), event))
    });
    match told {
        None => vec![Event::Output(line.to_vec())],
        Some((before, event)) if before.is_empty() => vec![event],
        Some((before, event)) => vec![Event::Output(before), event],
    }
}

/// Keeps the last lines of what comes.
fn keep(errors: impl Read, console: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let mut lines = console.lock().expect("no thread panics with it");
        lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        if lines.len() > CONSOLE_LINES {
            lines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_told_from_what_the_job_reports() {
        assert_eq!(events(b"token ready\n", "token"), [Event::Ready]);
        assert_eq!(events(b"token 7\n", "token"), [Event::Ended(7)]);
        let cut = [Event::Output(b"no end".to_vec()), Event::Ended(0)];
        assert_eq!(events(b"no endtoken 0\n", "token"), cut);
        for line in ["plain\n", "token 256\n", "token is a word\n", "\u{ff}"] {
            assert_eq!(events(line.as_bytes(), "token"), [Event::Output(line.as_bytes().to_vec())]);
        }
    }

    #[test]
    fn all_is_told_in_order_and_then_the_end() {
        let told = Mutex::new(Vec::new());
        tell(&b"x ready\none\ntwox 3\n"[..], "x", &|event| {
            told.lock().unwrap().push(event);
            true
        });
        let output = |text: &str| Event::Output(text.as_bytes().to_vec());
        let expected = [Event::Ready, output("one\n"), output("two"), Event::Ended(3), Event::Closed];
        assert_eq!(told.into_inner().unwrap(), expected);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let console = Mutex::new(VecDeque::new());
        let lines: String = (0..100).map(|number| number.to_string() + "\r\n").collect();
        keep(lines.as_bytes(), &console);
        let kept = console.into_inner().unwrap();
        assert_eq!((kept.len(), kept[0].as_str(), kept.back().unwrap().as_str()), (40, "60", "99"));
    }
}
