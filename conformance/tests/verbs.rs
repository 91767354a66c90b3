//! The suite of the verb contract over RDMA: by the network card, or the software in its place, that has the
//! address `FARSIGHT_VERBS_ADDRESS` (this machine's own by default).
//!
//! It runs if `FARSIGHT_VERBS=1` asks for it, and then fails where there is no device: `cargo xtask softroce`
//! boots a machine that has one.

use std::net::TcpListener;

use farsight_conformance::fabric::FabricUnderTest;
use farsight_fabric::FabricError;
use farsight_fabric_verbs::{ConnectOptions, ListenOptions, VerbsConnection, VerbsHost};

/// One address.
struct Verbs {
    address: String,
}

fn is_asked_for() -> bool {
    let is_asked_for = std::env::var("FARSIGHT_VERBS").is_ok_and(|value| value == "1");
    if !is_asked_for {
        println!("NOT RUN: this needs an RDMA device; FARSIGHT_VERBS=1 asks for it");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_VERBS=1 is missing");
    }
    is_asked_for
}

impl Verbs {
    fn new() -> Self {
        let host = std::env::var("FARSIGHT_VERBS_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
        // A port that is free now; the tests listen at it again and again.
        let listener = TcpListener::bind((host.as_str(), 0)).expect("an address of this machine");
        Self { address: listener.local_addr().expect("its address").to_string() }
    }
}

impl FabricUnderTest for Verbs {
    type Host = VerbsHost;
    type Connection = VerbsConnection;

    fn listen(&self, format_version: u32) -> VerbsHost {
        let options = ListenOptions { trust_network: true, ..ListenOptions::new(format_version) };
        VerbsHost::listen(&self.address, &options).expect("a server on an RDMA device")
    }

    fn connect(&self, format_version: u32) -> Result<VerbsConnection, FabricError> {
        VerbsConnection::connect(&self.address, ConnectOptions::new(format_version))
    }

    /// A software device under emulation takes milliseconds a READ.
    fn rounds(&self, usual: usize) -> usize {
        usual / 8
    }
}

farsight_conformance::fabric_suite!(Verbs::new(), if is_asked_for());
