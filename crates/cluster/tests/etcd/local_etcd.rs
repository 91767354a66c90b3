//! A real etcd of a test's own: on free ports, in a directory of its own, ended with the test.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The longest that a member may take to answer on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);

/// The members of an etcd.
pub(crate) struct LocalEtcd {
    directory: TempDir,
    members: Vec<LocalMember>,
}

struct LocalMember {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

/// True if the tests can run. If there is no etcd a line says so, and under `FARSIGHT_CI` that fails.
pub(crate) fn is_there() -> bool {
    let runs = |program: &str, version: &str| {
        let status = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let is_there = runs("etcd", "--version") && runs("etcdctl", "version");
    if !is_there {
        assert!(
            std::env::var_os("FARSIGHT_CI").is_none(),
            "no etcd: apt-get install etcd-server etcd-client"
        );
        println!("skipped: this needs etcd and etcdctl (apt-get install etcd-server etcd-client)");
    }
    is_there
}

/// Ports that nobody had a moment ago, all different.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its address").port())
}

impl LocalEtcd {
    /// Starts one of so many members, and waits until it answers.
    pub(crate) fn start(members: usize) -> Self {
        let member = |_| {
            let [client_port, peer_port] = free_ports();
            LocalMember { client_port, peer_port, process: None }
        };
        let members: Vec<LocalMember> = (0..members).map(member).collect();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut etcd = Self { directory, members };
        for member in 0..etcd.members.len() {
            etcd.spawn(member);
        }
        etcd.await_ready();
        etcd
    }

    fn spawn(&mut self, member: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let name = |member: usize| format!("m{member}");
        let peers: Vec<String> = (self.members.iter().enumerate())
            .map(|(number, member)| format!("{}={}", name(number), url(member.peer_port)))
            .collect();
        let LocalMember { client_port, peer_port, .. } = self.members[member];
        let log = std::fs::File::create(self.directory.path().join(format!("{}.log", name(member))));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.directory.path().join(name(member)))
            .args(["--name", &name(member), "--initial-cluster", &peers.join(",")])
            .args(["--listen-client-urls", &url(client_port), "--advertise-client-urls", &url(client_port)])
            .args(["--listen-peer-urls", &url(peer_port), "--initial-advertise-peer-urls", &url(peer_port)])
            .env_remove("ETCDCTL_API")
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        self.members[member].process = Some(process.expect("etcd"));
    }

    fn await_ready(&self) {
        let begun = Instant::now();
        while self.try_control(&["get", "nothing"]).is_none() {
            assert!(begun.elapsed() < READY_MAX, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The address of a pool of this name.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("etcd://{}/{name}", self.endpoints().join(","))
    }

    /// Where its members answer.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.client_port)).collect()
    }

    /// Kills a member at once.
    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            process.kill().expect("a member can be killed");
            process.wait().expect("a killed member ends");
        }
    }

    /// Starts a member again that was killed, and waits until the etcd answers.
    pub(crate) fn start_again(&mut self, member: usize) {
        self.spawn(member);
        self.await_ready();
    }

    /// What etcdctl prints for a command that succeeds.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        self.try_control(arguments).unwrap_or_else(|| panic!("etcdctl {arguments:?} failed"))
    }

    /// The same, if it succeeds.
    pub(crate) fn try_control(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoints().join(","), "--command-timeout", "2s"])
            .args(arguments)
            .output()
            .expect("etcdctl");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for LocalEtcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}
