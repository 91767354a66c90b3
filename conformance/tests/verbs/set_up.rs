//! Why no connection comes about over RDMA: what stands against TCP's, and devices and their library besides.

use std::process::Command;

use farsight::{ConnectOptions, Server, ServerUrl};
use farsight_conformance::engine::harness::Directory;
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_fabric_verbs::devices;
use farsight_layout::FORMAT_VERSION;

use crate::causes::{self, Cause, Expected, Way, check};
use crate::program::program;

const LOCALHOST: &str = "127.0.0.1";
const NO_DEVICE: &str = "none0";

/// A server that is there, and where.
fn server(scheme: &str) -> (Server, String) {
    let url: ServerUrl = format!("{scheme}://{LOCALHOST}:0").parse().expect("a URL");
    let server = Server::builder().listen(url).table_memory_bytes(4 << 20).start().expect("a server");
    let peer = server.url().to_string()[scheme.len() + 3..].to_owned();
    (server, peer)
}

fn way(scheme: &'static str, peer: String, rdma_device: Option<String>) -> Way {
    let options = ConnectOptions { rdma_device, ..ConnectOptions::default() };
    Way { scheme, peer, options }
}

/// Another device than that with the server's address, from which no way leads there; says so if there is
/// none.
fn wrong_device() -> Option<Cause> {
    let own = LOCALHOST.parse::<std::net::Ipv4Addr>().expect("an address").to_ipv6_mapped();
    let found = devices().expect("RDMA").into_iter();
    let other = found
        .filter(|device| device.is_active)
        .find(|device| device.address.is_some_and(|(address, _)| address != own));
    if other.is_none() {
        println!("NOT RUN: a device from which no way leads to {LOCALHOST}: there is none");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: no other device");
    }
    let name = other?.name;
    Some(Cause::new("a device from which no way leads there", move || {
        let (_server, peer) = server("rdma");
        way("rdma", peer, Some(name)).fails("the network card reports", "do the cards reach each other")
    }))
}

/// What the program says in surroundings that `prepare` makes.
fn of_program(name: &'static str, step: &'static str, remedy: &'static str, command: Command) -> Cause {
    Cause::new(name, move || {
        let (_server, peer) = server("rdma");
        let mut command = command;
        let output = command.args(["stats", "--connect", &format!("rdma://{peer}")]).output();
        let output = output.expect("it starts");
        assert!(!output.status.success(), "{name}");
        (String::from_utf8_lossy(&output.stderr).into_owned(), Expected { peer, step, remedy })
    })
}

#[test]
fn every_error_names_peer_step_and_remedy() {
    if !is_asked_for() {
        return;
    }
    let other = Verbs::new();
    let mut causes = causes::strangers("rdma", LOCALHOST);
    causes.push(causes::other_version("rdma", other.listen(FORMAT_VERSION + 1), other.address().to_owned()));
    causes.extend(causes::certificates("rdma", LOCALHOST));
    causes.extend(causes::listening("rdma", LOCALHOST));
    for (name, asked, listens) in
        [("TCP to RDMA's port", "tcp", "rdma"), ("RDMA to TCP's port", "rdma", "tcp")]
    {
        causes.push(Cause::new(name, move || {
            let (_server, peer) = server(listens);
            way(asked, peer, None).fails("the handshake", "at one of the URLs that it printed")
        }));
    }
    causes.push(Cause::new("a device that is not there", || {
        let (_server, peer) = server("rdma");
        let device = Some(NO_DEVICE.to_owned());
        way("rdma", peer, device).fails("finding the RDMA device none0", "See `rdma link`")
    }));
    causes.push(Cause::new("listening with a device that is not there", || {
        let peer = format!("{LOCALHOST}:0");
        let url: ServerUrl = format!("rdma://{peer}").parse().expect("a URL");
        let error = Server::builder().listen(url).rdma_device(NO_DEVICE).start().err().expect("it cannot");
        let (step, remedy) = ("finding the RDMA device none0", "See `rdma link`");
        (error.to_string(), Expected { peer, step, remedy })
    }));
    causes.extend(wrong_device());
    let directory = Directory::new();
    if let Some(program) = program() {
        // A file of that name that is no library.
        std::fs::write(directory.file("libibverbs.so.1"), "").expect("a file");
        let mut hidden = Command::new(&program);
        hidden.env("LD_LIBRARY_PATH", directory.file(""));
        causes.push(of_program("no libibverbs", "loading libibverbs", "Install rdma-core", hidden));
        let mut closed = Command::new("unshare");
        let script = "mount -t tmpfs none /dev/infiniband && exec \"$0\" \"$@\"";
        closed.args(["--mount", "sh", "-c", script, &program]);
        let (step, remedy) = ("finding an RDMA device", "whether this user may open /dev/infiniband");
        causes.push(of_program("no device that may be opened", step, remedy, closed));
    }
    check(causes);
}
