//! The engine's suite, and YCSB, against a server of another machine, whose address `FARSIGHT_VERBS_SERVER`
//! names: `cargo xtask softroce --two-hosts` sets up both.

use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_conformance::engine::EngineUnderTest;
use farsight_conformance::engine::direct::DirectTable;
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::verbs::Verbs;
use farsight_oracles::EightBytes;

use crate::program::program;
use crate::ycsb;

/// The number of tables that this process has made.
static TABLES: AtomicU64 = AtomicU64::new(0);

/// Tables of a server that runs elsewhere.
struct Remote {
    subject: Arc<Verbs>,
}

/// The server's address; says so if there is none.
pub(crate) fn server() -> Option<String> {
    let server = std::env::var("FARSIGHT_VERBS_SERVER").ok();
    if server.is_none() {
        println!(
            "NOT RUN: FARSIGHT_VERBS_SERVER names no server; cargo xtask softroce --two-hosts starts one"
        );
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: no server");
    }
    server
}

impl Remote {
    fn connect() -> Self {
        Self { subject: Arc::new(Verbs::at(&server().expect("asked before"))) }
    }
}

impl EngineUnderTest for Remote {
    type Embedding = EightBytes;
    type Table = DirectTable<Verbs>;

    fn rounds(&self, usual: usize) -> usize {
        self.subject.rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.subject.pairs(usual)
    }

    fn table(&self, value_bytes: usize) -> DirectTable<Verbs> {
        // Relaxed: the number only has to differ.
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        DirectTable::create(&self.subject, format!("t{}-{number}", std::process::id()), value_bytes)
    }
}

farsight_conformance::engine_suite!(Remote::connect(), if server().is_some());

#[test]
fn every_workload_is_measured() {
    let (Some(server), Some(program)) = (server(), program()) else { return };
    ycsb::measure(&program, &format!("rdma://{server}"));
}
