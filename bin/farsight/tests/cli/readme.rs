//! The commands that the README shows, as they stand there.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// The most that a block may take on a busy machine.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(120);
/// The port of the README, which somebody else may have.
const PORT: &str = "127.0.0.1:7474";

/// The lines of each block for a shell.
fn blocks() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).expect("the README");
    let pieces = text.split("```sh\n").skip(1);
    pieces.map(|piece| piece.split("```").next().expect("its end").to_owned()).collect()
}

/// A shell that got a block, with a home of its own and the program on its path. What it leaves running ends
/// with this.
struct Shell {
    bash: Child,
    home: TempDir,
}

impl Shell {
    /// `program` becomes the program on the path.
    fn paste(block: &str, program: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = home.path();
        std::fs::create_dir(directory.join("bin")).expect("a directory of its own");
        program(&directory.join("bin/farsight"));
        let others = std::env::var("PATH").expect("a path");
        let file = |name: &str| File::create(directory.join(name)).expect("a file of its own");
        let bash = Command::new("bash")
            .args(["-e", "-c", block])
            .env_remove("FARSIGHT_URL")
            .env("PATH", format!("{}:{others}", directory.join("bin").display()))
            .envs(["HOME", "XDG_RUNTIME_DIR", "TMPDIR"].map(|name| (name, directory)))
            .stdout(file("out"))
            .stderr(file("error"))
            .process_group(0)
            .spawn()
            .expect("bash");
        Self { bash, home }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).expect("a file of its own")
    }

    fn signal(&self, signal: Signal) {
        // Nobody may be left.
        let _ = kill_process_group(Pid::from_child(&self.bash), signal);
    }

    /// Waits until something has become of it.
    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(begun.elapsed() < BLOCK_TIMEOUT, "{what}: {} {}", self.read("out"), self.read("error"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the block printed, every command of which must succeed; and its servers, which must say so, end.
    fn succeed(mut self, servers: usize) -> String {
        let status = self.until("the block does not end", |shell| shell.bash.try_wait().expect("a child"));
        assert!(status.success(), "{} {}", self.read("out"), self.read("error"));
        self.signal(Signal::TERM);
        self.until("its servers do not end", |shell| {
            let ended = shell.read("error").lines().filter(|line| line.contains("with this process")).count();
            (ended >= servers).then_some(())
        });
        self.read("out")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.bash.wait();
    }
}

fn link(path: &Path) {
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_farsight"), path).expect("a link of its own");
}

/// The program, which explains each command line that is one instead of doing what it says.
fn explain(path: &Path) {
    let script = format!("#!/bin/sh\nexec {} \"$@\" --help\n", env!("CARGO_BIN_EXE_farsight"));
    std::fs::write(path, script).expect("a file of its own");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its own");
}

#[test]
fn every_block_does_what_the_readme_says() {
    let blocks = blocks();
    let [build, benchmarks, one, addresses, pool, replicas] = &blocks[..] else {
        panic!("the README has other blocks, which want expectations here: {blocks:#?}")
    };
    // The gate runs both.
    let commands: Vec<&str> = build.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(commands, ["cargo run --release -- bench", "cargo test --workspace --profile tests"]);
    // Minutes and downloads: that they are commands is what counts.
    let explained = Shell::paste(benchmarks, explain).succeed(0);
    assert_eq!(explained.matches("Usage: farsight bench ycsb").count(), 3, "{explained}");
    assert_eq!(explained.matches("Usage: farsight dataset").count(), 1, "{explained}");

    let check = |block: &str, servers: usize, parts: &[&str]| {
        let killed = block.matches("\nkill -9 ").count();
        assert_eq!(block.matches(" &\n").count(), servers, "{block}");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        // Those that hold tables say what ends with them.
        let holding = block.matches("\nfarsight serve ").count() - killed;
        let printed = Shell::paste(&block.replace(PORT, &free.to_string()), link).succeed(holding);
        for part in parts {
            assert!(printed.contains(part), "no {part:?} in {printed} of {block}");
        }
        printed
    };
    let made = "table prices of u64 keys with 8 B values\n";
    let put = "inserted, version 1\n";
    let printed =
        check(one, 1, &["ready url=shm://", made, put, "\nhello\n", "\n4711\tbye\n", "client cache"]);
    assert!(printed.ends_with("swapped prices and next\ndropped next\n"), "{printed}");
    let printed = check(addresses, 1, &[" url=tcp://127.0.0.1:", made, put]);
    assert!(printed.ends_with(&format!("{put}hello\n")), "{printed}");
    let printed = check(pool, 2, &["100,000 pairs into table prices in bulk", "place in its pool", "rolex"]);
    assert_eq!(printed.lines().filter(|line| line.contains('\t')).count(), 3, "{printed}");
    let loaded = "10,000 pairs into table users by puts";
    let got = "\nuser7@example.org\tAda\nuser9999@example.org\tname 9999\n";
    let (without, taken_in) = (", without 1", "\nnode 1 taken in after ");
    let parts = [loaded, got, "replaced, version ", without, "writes for others", taken_in];
    let printed = check(replicas, 6, &parts);
    assert!(printed.ends_with("tables: users\nGrace\n"), "{printed}");
}
