//! RDMA as a subject of the suites: by the network card, or the software in its place, that has the address
//! `FARSIGHT_VERBS_ADDRESS` (127.0.0.1 by default).
//!
//! Tests run if `FARSIGHT_VERBS=1` asks for them, and then fail where there is no device: `cargo xtask
//! softroce` boots a machine that has one.

use farsight_fabric::FabricError;
use farsight_fabric_tcp::{ListenError as AddressError, Tls};
use farsight_fabric_verbs::{ConnectOptions, ListenError, ListenOptions, VerbsConnection, VerbsHost};

use super::FabricUnderTest;
use super::port::{listen_at_own, own_address, waiting_at};

/// Pairs, or keys at a time, of which there are at least so many where a test has more: several batches, and
/// a dozen leaves.
const PAIRS_MIN: usize = 200;

/// One address.
#[derive(Debug)]
pub struct Verbs {
    address: String,
    tls: Option<Tls>,
}

/// True if tests over RDMA are to run; says so if not.
///
/// # Panics
/// If they are not, under `FARSIGHT_CI`.
#[must_use]
pub fn is_asked_for() -> bool {
    let is_asked_for = std::env::var("FARSIGHT_VERBS").is_ok_and(|value| value == "1");
    if !is_asked_for {
        println!("NOT RUN: this needs an RDMA device; FARSIGHT_VERBS=1 asks for it");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_VERBS=1 is missing");
    }
    is_asked_for
}

impl Verbs {
    /// An address of its own: the tests listen at it again and again.
    ///
    /// # Panics
    /// If `FARSIGHT_VERBS_ADDRESS` is no IP address of this machine.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let host = std::env::var("FARSIGHT_VERBS_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
        Self::at(&own_address(host.parse().expect("FARSIGHT_VERBS_ADDRESS: an IP address")).to_string())
    }

    /// Where a server listens already.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self { address: address.to_owned(), tls: None }
    }

    /// The same, with certificates on both sides.
    #[must_use]
    pub fn secured_by(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The address without the port.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').expect("host:port").0
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl FabricUnderTest for Verbs {
    type Host = VerbsHost;
    type Connection = VerbsConnection;

    fn listen(&self, format_version: u32) -> VerbsHost {
        let options = ListenOptions {
            tls: self.tls.clone(),
            allow_plaintext: true,
            waiting: waiting_at(&self.address),
            ..ListenOptions::new(format_version)
        };
        let is_in_use = |error: &_| matches!(error, ListenError::Address(AddressError::InUse { .. }));
        listen_at_own(|| VerbsHost::listen(&self.address, &options), is_in_use)
    }

    fn connect(&self, format_version: u32) -> Result<VerbsConnection, FabricError> {
        let options = ConnectOptions {
            tls: self.tls.clone(),
            allow_plaintext: true,
            waiting: waiting_at(&self.address),
            ..ConnectOptions::new(format_version)
        };
        VerbsConnection::connect(&self.address, options)
    }

    /// A software device under emulation takes milliseconds a READ.
    fn rounds(&self, usual: usize) -> usize {
        (usual / 32).max(1)
    }

    /// A queue pair has no more calls under way.
    fn parked_max(&self) -> usize {
        16
    }

    fn pairs(&self, usual: usize) -> usize {
        usual.min((usual / 8).max(PAIRS_MIN))
    }
}
