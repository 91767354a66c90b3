//! Sockets of their own, running servers, processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::ClientId;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_fabric::{Answer, CallHandler, Host, QueuePair, ServerPort, Ticket};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};

pub(crate) const FORMAT: u32 = 11;
const ISOLATED: &str = "FARSIGHT_TEST_ISOLATED";
pub(crate) const ROLE: &str = "FARSIGHT_TEST_ROLE";
pub(crate) const SOCKET: &str = "FARSIGHT_TEST_SOCKET";

/// A directory for one test, removed afterwards.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the counter only has to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farsight-shm-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

struct Echo {
    calls: Arc<AtomicU64>,
}

impl CallHandler for Echo {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        // Relaxed: a count.
        self.calls.fetch_add(1, Ordering::Relaxed);
        reply.extend(request);
        Answer::Now
    }
}

/// A server that echoes, with its threads.
pub(crate) struct Running {
    pub(crate) host: Arc<ShmHost>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    calls: Arc<AtomicU64>,
}

impl Running {
    pub(crate) fn start(socket: &Path) -> Self {
        Self::serve(ShmHost::listen(socket, ListenOptions::new(FORMAT)).expect("a server"))
    }

    pub(crate) fn serve(host: ShmHost) -> Self {
        let host = Arc::new(host);
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let control = {
            let (host, stop) = (Arc::clone(&host), Arc::clone(&stop));
            std::thread::spawn(move || {
                // Relaxed: the flag carries nothing with it.
                while !stop.load(Ordering::Relaxed) {
                    host.step(Duration::from_secs(10)).expect("a step");
                }
            })
        };
        let worker = {
            let (mut port, stop) = (host.open_port().expect("a port"), Arc::clone(&stop));
            let mut handler = Echo { calls: Arc::clone(&calls) };
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if port.serve(64, &mut handler) == 0 {
                        port.wait(Duration::from_secs(10));
                    }
                }
            })
        };
        Self { host, stop, threads: vec![control, worker], calls }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.host.wake();
        for thread in self.threads.drain(..) {
            let outcome = thread.join();
            assert!(std::thread::panicking() || outcome.is_ok(), "a server thread panicked");
        }
    }
}

pub(crate) fn connect(socket: &Path) -> ShmConnection {
    ShmConnection::connect(socket, ConnectOptions::new(FORMAT)).expect("a connection")
}

/// Connects to a server that is still starting: its socket's file is there a moment before it listens.
pub(crate) fn connect_once_listening(socket: &Path) -> ShmConnection {
    let mut connection = None;
    eventually("a connection", || {
        connection = ShmConnection::connect(socket, ConnectOptions::new(FORMAT)).ok();
        connection.is_some()
    });
    connection.expect("it was reached")
}

/// One call in slot 0.
pub(crate) fn call(queue: &mut impl QueuePair, request: &[u8]) -> Vec<u8> {
    queue.post_call(0, request).expect("the request fits");
    queue.doorbell().expect("the doorbell rings");
    let started = Instant::now();
    while !queue.is_complete(0) {
        assert!(started.elapsed() < Duration::from_secs(20), "no reply came");
        queue.wait(Duration::from_millis(100)).expect("waiting");
        queue.poll().expect("polling");
    }
    let mut reply = Vec::new();
    queue.take_reply(0, &mut reply).expect("a reply");
    reply
}

/// Waits until `reached` is true.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}: not reached in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `body` in a process that runs this one test alone. `test` is its full name.
pub(crate) fn isolated(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ISOLATED).is_some() {
        return body();
    }
    let status = this_binary(test).env(ISOLATED, "1").status().expect("a process");
    assert!(status.success(), "{test} failed in its own process: {status}");
}

/// Starts a process that plays a role against the server at `socket`. Its standard output is piped.
pub(crate) fn play(role: &str, socket: &Path) -> Child {
    let mut command = this_binary("roles::play");
    command.env(ROLE, role).env(SOCKET, socket).env_remove(ISOLATED);
    command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("a process")
}

fn this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Descriptors of this process.
pub(crate) fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// Mappings of this process that lie on memory files of the fabric.
pub(crate) fn mapping_count() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    maps.lines().filter(|line| line.contains("memfd:farsight")).count()
}
