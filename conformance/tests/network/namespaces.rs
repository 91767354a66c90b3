//! Hosts of one machine: network namespaces, joined by virtual cables that can be disturbed.
//!
//! Invariant: nothing outlives a test, however it ends. A namespace lives as long as the process that holds
//! it, which the kernel kills with the thread that started it. The cables and the rules for packets lie in
//! the namespaces alone, so no test touches the machine's own network.
//!
//! Protocol: the server's namespace has a cable to each client's, with a subnet of its own. Packets are
//! dropped where they arrive, so that their sender notices nothing. A thread that enters a namespace opens
//! its sockets there, and so do the threads that it starts; a socket stays where it was opened.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The cable's end in a client's namespace.
const CLIENT_END: &str = "eth0";
/// Seconds after which a namespace ends though its test has not.
const LIFE_SECONDS: u32 = 900;

/// The way of a packet on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// A server's namespace and those of its clients, numbered from zero.
pub(crate) struct Network {
    server: Namespace,
    clients: Vec<Namespace>,
}

impl Network {
    /// One with so many clients; none, and a line that says why, where there can be none. Under `FARSIGHT_CI`
    /// that fails.
    pub(crate) fn with_clients(count: usize) -> Option<Self> {
        match Self::build(count) {
            Ok(network) => Some(network),
            Err(reason) => {
                let test = std::thread::current().name().unwrap_or("?").to_owned();
                assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: {reason}");
                println!("NOT RUN: {test}: {reason}");
                None
            }
        }
    }

    fn build(count: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let clients = (0..count).map(|_| Namespace::new());
        let network = Self { server: Namespace::new()?, clients: clients.collect::<Result<_, _>>()? };
        // Both rules of packets and shapes of traffic may be missing in a kernel.
        network.server.run("nft", &["list", "tables"])?;
        for (index, client) in network.clients.iter().enumerate() {
            let (end, holder) = (Self::server_end(index), client.holder.id().to_string());
            let cable = ["link", "add", &end, "type", "veth", "peer", "name", CLIENT_END, "netns", &holder];
            network.server.run("ip", &cable)?;
            let subnet = |host: u32| format!("10.78.{index}.{host}/24");
            network.server.run("ip", &["address", "add", &subnet(1), "dev", &end])?;
            network.server.run("ip", &["link", "set", &end, "up"])?;
            client.run("ip", &["address", "add", &subnet(2), "dev", CLIENT_END])?;
            client.run("ip", &["link", "set", CLIENT_END, "up"])?;
        }
        Ok(network)
    }

    fn server_end(client: usize) -> String {
        format!("client{client}")
    }

    /// The server's address as this client sees it.
    pub(crate) fn server_address(client: usize) -> String {
        format!("10.78.{client}.1")
    }

    /// Runs `work` in the namespace of the server.
    pub(crate) fn on_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.server.enter(work)
    }

    /// Runs `work` in a client's namespace.
    pub(crate) fn on_client<T: Send>(&self, client: usize, work: impl FnOnce() -> T + Send) -> T {
        self.clients[client].enter(work)
    }

    /// From now on so many of a hundred packets that go this way are lost.
    pub(crate) fn lose(&self, client: usize, way: Way, percent: u32) {
        let (namespace, end) = self.receiver(client, way);
        let table = format!("lost{client}");
        // A comparison that is always true is refused.
        let chance = if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
        let rule = format!(
            "add table inet {table}; \
             add chain inet {table} arriving {{ type filter hook input priority 0; }}; \
             flush chain inet {table} arriving; \
             add rule inet {table} arriving iifname {end} {chance} drop"
        );
        namespace.run("nft", &[&rule]).expect("packets are dropped");
    }

    /// From now on no packet arrives on either side; nobody is told.
    pub(crate) fn cut(&self, client: usize) {
        self.lose(client, Way::ToServer, 100);
        self.lose(client, Way::ToClient, 100);
    }

    /// From now on a cable carries no more than this in either direction; packets wait, and none is lost.
    pub(crate) fn slow_down(&self, client: usize, kilobits_per_second: u32) {
        let rate = format!("{kilobits_per_second}kbit");
        for way in [Way::ToServer, Way::ToClient] {
            let (namespace, end) = self.sender(client, way);
            let shape = ["qdisc", "replace", "dev", &end, "root", "tbf", "rate", &rate];
            let room = ["burst", "3200", "limit", "4000000"];
            namespace.run("tc", &[&shape[..], &room[..]].concat()).expect("a slow cable");
        }
    }

    /// Ends all that disturbs this client's cable.
    pub(crate) fn heal(&self, client: usize) {
        for way in [Way::ToServer, Way::ToClient] {
            let (namespace, end) = self.receiver(client, way);
            let table = format!("lost{client}");
            // Adding what may be there makes the deletion succeed.
            let rule = format!("add table inet {table}; delete table inet {table}");
            namespace.run("nft", &[&rule]).expect("packets arrive again");
            // There is nothing to delete on a cable that was not slow.
            let _ = namespace.run("tc", &["qdisc", "delete", "dev", &end, "root"]);
        }
    }

    /// Where packets of this way arrive, and at which end of the cable.
    fn receiver(&self, client: usize, way: Way) -> (&Namespace, String) {
        match way {
            Way::ToServer => (&self.server, Self::server_end(client)),
            Way::ToClient => (&self.clients[client], CLIENT_END.to_owned()),
        }
    }

    fn sender(&self, client: usize, way: Way) -> (&Namespace, String) {
        match way {
            Way::ToServer => self.receiver(client, Way::ToClient),
            Way::ToClient => self.receiver(client, Way::ToServer),
        }
    }
}

/// A network namespace with nothing in it but its loopback.
struct Namespace {
    holder: Child,
    handle: File,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let script = format!("ip link set lo up && echo up && exec sleep {LIFE_SECONDS}");
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("setpriv does not start: {error} (apt-get install util-linux)"))?;
        let mut answer = String::new();
        let output = holder.stdout.take().expect("it is piped");
        // A holder that fails closes its output.
        let heard = BufReader::new(output).read_line(&mut answer);
        let path = format!("/proc/{}/ns/net", holder.id());
        let handle = File::open(&path).map_err(|error| format!("{path}: {error}"));
        match (heard, answer.as_str(), handle) {
            (Ok(_), "up\n", Ok(handle)) => Ok(Self { holder, handle }),
            (heard, ..) => {
                end(&mut holder);
                let reason = heard.map_or_else(|error| error.to_string(), |_| "its output ended".to_owned());
                Err(format!("no network namespace: {reason} (are ip of iproute2 and its rights there?)"))
            }
        }
    }

    /// Runs `work` on a thread of its own, which is in this namespace.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("the namespace can be entered");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program to its end; what it said if it failed.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.id());
        let output = Command::new("nsenter").arg(namespace).arg(program).args(arguments).output();
        let output = output.map_err(|error| format!("nsenter does not start: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{program} {} failed: {} (apt-get install iproute2 nftables)",
            arguments.join(" "),
            said.trim()
        ))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        end(&mut self.holder);
    }
}

fn end(holder: &mut Child) {
    // Fails only if it has ended.
    let _ = holder.kill();
    let _ = holder.wait();
}
