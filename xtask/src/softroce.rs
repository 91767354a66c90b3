//! `cargo xtask softroce`: a command on a Linux that has RDMA, on a machine that has none.
//!
//! Invariant: nothing outlives a run, however it ends, but the kernel in the user's cache; each wait has a
//! bound; the exit status is the command's.
//!
//! Protocol: QEMU boots Debian's kernel, which has Soft-RoCE (`rdma_rxe`: queue pairs of libibverbs,
//! executed by the kernel over UDP), by software emulation, so no rights are needed. The machine sees this
//! one's root file system, read-only under an overlay; what it writes is lost. Alone it has `rxe0` with
//! 10.77.0.1 and `rxe1` with 127.0.0.1; two machines have an `rxe0` each, joined by a wire that may lose
//! packets. Times inside mean nothing but ratios between programs run there. Where this machine has an RDMA
//! device of its own, a command that needs one host is run on it instead.

mod initrd;
mod job;
mod kernel;
mod machine;
mod programs;
mod tools;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};

use job::{Job, Role};
use machine::{Event, Machine};

const USAGE: &str = "usage: cargo xtask softroce [--seconds N] [--short | COMMAND... | --chain] | \
                     --two-hosts [--loss PERCENT] [--seconds N] [--short | SERVER_COMMAND... -- CLIENT_COMMAND...]";
/// Seconds that a command, or what runs between two hosts, may take if the user sets no limit. The time grows
/// with each percent of loss, because what is lost at a chain's end is waited for.
const SECONDS: u64 = 300;
const TWO_HOSTS_SECONDS: u64 = 600;
const SECONDS_PER_PERCENT: f32 = 300.0;
/// Seconds within which a machine must be up; it takes five to ten, many more on a busy machine.
const BOOT_SECONDS: u64 = 300;
/// Seconds within which the first of two machines must have its socket.
const SOCKET_SECONDS: u64 = 30;
/// Where the kernel lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// What to run.
#[derive(Debug, PartialEq)]
enum What {
    /// The tests of the verbs' fabric; to be short, without those that are like others.
    Tests { is_short: bool },
    /// The comparison with plain C.
    Chain,
    /// YCSB and a disturbed way between two machines, and the engine's suite before, unless it is to be
    /// short.
    TwoHosts { is_short: bool },
    /// The commands of one machine, or of server and client.
    Commands(Vec<(Role, Vec<String>)>),
}

#[derive(Debug, PartialEq)]
struct Options {
    what: What,
    loss_percent: Option<f32>,
    seconds: u64,
}

/// Runs what `arguments` say. Returns the command's exit status; of two, the client's.
///
/// # Errors
/// What is missing, what the machine did not do, and what took too long.
pub fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<ExitCode> {
    let options = parse(arguments)?;
    let commands = match &options.what {
        What::Tests { is_short } => vec![(Role::Alone, programs::tests(root, *is_short)?)],
        What::Chain => vec![(Role::Alone, programs::chain(root)?)],
        What::TwoHosts { is_short } => {
            let [server, client] = programs::two_hosts(root, *is_short)?;
            vec![(Role::Server, server), (Role::Client, client)]
        }
        What::Commands(commands) => commands.clone(),
    };
    if let ([(Role::Alone, command)], Some(device)) = (commands.as_slice(), own_device()) {
        eprintln!("softroce: this machine has {device}: the command runs on it, without a virtual machine");
        return run_natively(command, options.seconds);
    }
    tools::check()?;
    let kernel = kernel::provide()?;
    let status = run_machines(&kernel, &commands, &options)?;
    Ok(ExitCode::from(status))
}

fn parse(arguments: &[&str]) -> anyhow::Result<Options> {
    let (mut two_hosts, mut is_short, mut loss_percent, mut seconds) = (false, false, None, None);
    let mut rest = arguments;
    while let [option, tail @ ..] = rest {
        rest = match (*option, tail) {
            ("--two-hosts", _) => {
                two_hosts = true;
                tail
            }
            ("--short", _) => {
                is_short = true;
                tail
            }
            ("--loss", [number, tail @ ..]) => {
                let percent: f32 =
                    number.parse().with_context(|| format!("{number:?} is no number of percent"))?;
                ensure!((0.0..100.0).contains(&percent), "a loss of {number} %: expected 0 to less than 100");
                loss_percent = Some(percent);
                tail
            }
            ("--seconds", [number, tail @ ..]) => {
                let number: u64 =
                    number.parse().with_context(|| format!("{number:?} is no number of seconds"))?;
                ensure!(number > 0, "0 seconds are too few for any command");
                seconds = Some(number);
                tail
            }
            ("--chain", []) => break,
            (option, _) if option.starts_with('-') => bail!("unexpected {option:?}; {USAGE}"),
            _ => break,
        };
    }
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    ensure!(!is_short || rest.is_empty(), "--short is for the project's own tests; {USAGE}");
    let what = if two_hosts && rest.is_empty() {
        What::TwoHosts { is_short }
    } else if two_hosts {
        let middle = rest.iter().position(|word| *word == "--").with_context(|| format!("no --; {USAGE}"))?;
        let (server, client) = (owned(&rest[..middle]), owned(&rest[middle + 1..]));
        let commands = vec![(Role::Server, server), (Role::Client, client)];
        ensure!(commands.iter().all(|(_, command)| !command.is_empty()), "a command is missing; {USAGE}");
        What::Commands(commands)
    } else {
        ensure!(loss_percent.is_none(), "one host loses no packets: --loss goes with --two-hosts");
        match rest {
            [] => What::Tests { is_short },
            ["--chain"] => What::Chain,
            command => What::Commands(vec![(Role::Alone, owned(command))]),
        }
    };
    let usual = if what == (What::TwoHosts { is_short: false }) {
        TWO_HOSTS_SECONDS + (loss_percent.unwrap_or(0.0) * SECONDS_PER_PERCENT) as u64
    } else {
        SECONDS
    };
    Ok(Options { what, loss_percent, seconds: seconds.unwrap_or(usual) })
}

/// The name of an RDMA device that this machine has.
fn own_device() -> Option<String> {
    let mut entries = fs::read_dir(DEVICES).ok()?;
    entries.find_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
}

fn run_natively(command: &[String], seconds: u64) -> anyhow::Result<ExitCode> {
    let status = Command::new("timeout")
        .args(["--kill-after=5", &seconds.to_string()])
        .args(command)
        .env("FARSIGHT_VERBS", "1")
        .status()
        .with_context(|| format!("starting {}", command[0]))?;
    // A signal has no status; the shell's custom is 128 and more, of which the number is not known here.
    Ok(ExitCode::from(status.code().map_or(128, |code| code as u8)))
}

/// Boots the machines, runs the commands, and kills the machines.
fn run_machines(
    kernel: &kernel::Kernel,
    commands: &[(Role, Vec<String>)],
    options: &Options,
) -> anyhow::Result<u8> {
    let since = SystemTime::UNIX_EPOCH.elapsed().context("reading the clock")?;
    // Also the name of the socket: no other run has it.
    let token = format!("farsight-softroce-{}-{}", std::process::id(), since.as_nanos());
    let directory = std::env::current_dir().context("asking for the current directory")?;
    let variables: Vec<(String, String)> = std::env::vars().filter(|(name, _)| is_passed_on(name)).collect();
    let (sender, events) = mpsc::channel();
    let mut machines: Vec<(Role, Machine)> = Vec::new();
    for (index, (role, command)) in commands.iter().enumerate() {
        let loss_percent = options.loss_percent;
        let job = Job {
            role: *role,
            loss_percent,
            directory: &directory,
            variables: &variables,
            command,
            token: &token,
        };
        let network = role.network(&token);
        let machine = Machine::start(kernel, &network, &job.script(), &token, (index, sender.clone()))?;
        machines.push((*role, machine));
        if *role == Role::Server {
            await_socket(&token)?;
        }
    }
    drop(sender);
    let outcome = supervise(&mut machines, &events, options.seconds);
    let consoles: String = machines.iter().map(|(_, machine)| machine.console()).collect();
    outcome.map_err(|error| match consoles.as_str() {
        "" => error,
        consoles => error.context(format!("the virtual machine's kernel said last:\n{consoles}")),
    })
}

/// Variables of the environment that a command sees in the machine, too.
fn is_passed_on(name: &str) -> bool {
    ["PATH", "HOME", "LANG", "CARGO_TARGET_DIR"].contains(&name)
        || ["FARSIGHT_", "RUST_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Waits until a process of this machine listens at the abstract socket `name`.
fn await_socket(name: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    while !fs::read_to_string("/proc/net/unix").context("reading the list of sockets")?.contains(name) {
        ensure!(
            started.elapsed() < Duration::from_secs(SOCKET_SECONDS),
            "the first machine's QEMU made no socket within {SOCKET_SECONDS} s"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Lets the commands run together once all machines are up, and shows what they print. Returns the status of
/// the one that ends the run: the only one, the client, or a server that fails before.
fn supervise(
    machines: &mut [(Role, Machine)],
    events: &Receiver<(usize, Event)>,
    seconds: u64,
) -> anyhow::Result<u8> {
    let mut deadline = Instant::now() + Duration::from_secs(BOOT_SECONDS);
    let mut booting = machines.len();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let (index, event) = match events.recv_timeout(left) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) if booting > 0 => {
                bail!("the virtual machine was not up within {BOOT_SECONDS} s")
            }
            Err(_) => bail!("the command did not end within {seconds} s (more: --seconds)"),
        };
        let role = machines[index].0;
        match event {
            Event::Output(text) => show(role.prefix(), &text)?,
            Event::Ready => {
                booting -= 1;
                if booting == 0 {
                    deadline = Instant::now() + Duration::from_secs(seconds);
                    machines.iter_mut().try_for_each(|(_, machine)| machine.go())?;
                }
            }
            Event::Ended(0) if role == Role::Server => {}
            Event::Ended(status) => return Ok(status),
            Event::Closed => bail!("the virtual machine ended before its command did"),
        }
    }
}

fn show(prefix: &str, text: &[u8]) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output
        .write_all(prefix.as_bytes())
        .and_then(|()| output.write_all(text))
        .and_then(|()| output.flush())
        .context("showing the command's output")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(arguments: &[&str]) -> String {
        format!("{:#}", parse(arguments).unwrap_err())
    }

    #[test]
    fn arguments_are_read() {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let options = |what, loss_percent, seconds| Options { what, loss_percent, seconds };
        let one = parse(&["--seconds", "7", "ls", "--loss", "--"]).unwrap();
        let commands = vec![(Role::Alone, owned(&["ls", "--loss", "--"]))];
        assert_eq!(one, options(What::Commands(commands), None, 7));
        let two = parse(&["--two-hosts", "--loss", "2.5", "serve", "-v", "--", "ask", "--", "x"]).unwrap();
        let commands =
            vec![(Role::Server, owned(&["serve", "-v"])), (Role::Client, owned(&["ask", "--", "x"]))];
        assert_eq!(two, options(What::Commands(commands), Some(2.5), SECONDS));
        let between = parse(&["--two-hosts", "--loss", "1"]).unwrap();
        assert_eq!(between, options(What::TwoHosts { is_short: false }, Some(1.0), 900));
        let short = options(What::TwoHosts { is_short: true }, None, SECONDS);
        assert_eq!(parse(&["--two-hosts", "--short"]).unwrap(), short);
        assert_eq!(parse(&["--two-hosts"]).unwrap().seconds, 600);
        assert_eq!(parse(&[]).unwrap(), options(What::Tests { is_short: false }, None, SECONDS));
        let short = options(What::Tests { is_short: true }, None, 600);
        assert_eq!(parse(&["--short", "--seconds", "600"]).unwrap(), short);
        assert_eq!(parse(&["--seconds", "9", "--chain"]).unwrap(), options(What::Chain, None, 9));
    }

    #[test]
    fn wrong_arguments_are_named() {
        assert!(error(&["--chain", "ls"]).contains("unexpected \"--chain\""));
        assert!(error(&["--short", "ls"]).starts_with("--short is for the project's own tests"));
        assert!(error(&["--two-hosts", "--short", "a", "--", "b"]).starts_with("--short is for"));
        assert!(error(&["--two-hosts", "a"]).starts_with("no --"));
        assert!(error(&["--two-hosts", "a", "--"]).starts_with("a command is missing"));
        assert!(error(&["--loss", "1", "a"]).contains("--two-hosts"));
        assert!(error(&["--two-hosts", "--loss", "100", "a", "--", "b"]).contains("expected 0 to"));
        assert!(error(&["--seconds", "0", "a"]).contains("0 seconds"));
        assert!(error(&["--seconds"]).contains("unexpected \"--seconds\""));
    }
}
