//! Tables that are made and dropped by the thousand leave nothing behind, and many small ones take little
//! memory. The process that is counted is server and client at once.

use std::process::{Command, Stdio};

use farsight::Access;
use farsight_client::{Client, Session};
use farsight_conformance::engine::harness::eventually;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_conformance::holding::Holding;
use farsight_protocol::WriteOperation;

/// Rounds before the first count: what is kept for ever is there by then.
const WARM_UP: usize = 500;
const ROUNDS: usize = 10_000;
/// What a table may take at most: much more than it needs, as usual.
const TABLE_BYTES: u64 = 1 << 30;
/// Nearly empty tables at once, and what each may take, at server and client together.
const TABLES: usize = 128;
const SMALL_BYTES: usize = 256 << 10;
/// Rounds of so many tables in which memory reaches its peak, and as many that may not go beyond.
const PEAK_ROUNDS: usize = 4;

fn table_with_a_pair<F: FabricUnderTest>(store: &PoolStore<F>, client: &Client, name: &str) -> Session {
    let table = client.create_table(store.new_table(name, 8)).expect("a table");
    let mut session = table.session(Access::OneSided).expect("a session");
    session.write_one(WriteOperation::Insert, 1, &[1; 8]).expect("an insert");
    let mut value = [0; 8];
    assert!(session.get(1, &mut value).expect("a get").is_some() && value == [1; 8], "{value:?}");
    session
}

fn come_and_go<F: FabricUnderTest>(what: &str, store: &PoolStore<F>) {
    let client = store.connect();
    let mut before = None;
    for round in 0..WARM_UP + ROUNDS {
        let mut session = table_with_a_pair(store, &client, "t");
        client.drop_table("t").expect("a drop");
        if round % 1_000 == 0 {
            // Most sessions are closed, some are used until they hear of it: either lets go of the table.
            eventually("a dropped table is gone", || session.get(1, &mut [0; 8]).is_err());
        }
        drop(session);
        if round >= WARM_UP && round % 500 == 0 {
            // The control thread may be a few rounds behind. What is leaked never comes back.
            let before = *before.get_or_insert_with(Holding::now);
            eventually(&format!("{what}, round {round}: no more than {before:?}"), || {
                !Holding::now().is_above(before)
            });
        }
    }
    println!("{what}: {:?}, then {:?}", before.expect("it was counted"), Holding::now());
}

fn many_small_ones<F: FabricUnderTest>(what: &str, store: &PoolStore<F>) {
    let client = store.connect();
    drop(table_with_a_pair(store, &client, "first"));
    let begin = Holding::now();
    let mut peak_bytes = 0;
    for round in 0..2 * PEAK_ROUNDS {
        let before = Holding::now();
        for number in 0..TABLES {
            drop(table_with_a_pair(store, &client, &format!("t{number}")));
        }
        let full = Holding::now();
        let bytes = full.memory_bytes.saturating_sub(before.memory_bytes) / TABLES;
        println!("{what}, round {round}: {bytes} B a nearly empty table");
        assert!(bytes <= SMALL_BYTES, "{what}: {bytes} B a nearly empty table");
        (0..TABLES).for_each(|number| client.drop_table(&format!("t{number}")).expect("a drop"));
        if round < PEAK_ROUNDS {
            peak_bytes = peak_bytes.max(full.memory_bytes);
        }
    }
    // Threads let go of tables when they look next, perhaps in the round after. The allocator keeps what the
    // first rounds took. So what leaks shows by what later ones take beyond that.
    let peak = Holding { memory_bytes: peak_bytes, ..begin };
    eventually(&format!("{what}: what dropped tables had, no more than {peak:?}"), || {
        !Holding::now().is_above(peak)
    });
}

/// Each in a process of its own, because a process counts what it holds itself; all at once.
#[test]
fn tables_come_and_go_and_small_ones_are_small() {
    let program = std::env::current_exe().expect("this program");
    let start = |name: &str| {
        let mut process = Command::new(&program);
        process.args([name, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
        process.stderr(Stdio::piped()).spawn().expect("a process")
    };
    let names =
        ["x_store_over_shared_memory", "x_store_over_tcp", "rolex_over_shared_memory", "rolex_over_tcp"];
    let started = names.map(|name| (name, start(name)));
    for (name, process) in started {
        let output = process.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{name}:\n{said}\n{reported}");
        println!("{said}");
    }
}

#[test]
#[ignore = "in a process of its own"]
fn x_store_over_shared_memory() {
    many_and_gone("XStore over shared memory", &x_store(Shm::new()));
}

#[test]
#[ignore = "in a process of its own"]
fn x_store_over_tcp() {
    many_and_gone("XStore over TCP", &x_store(Tcp::default()));
}

#[test]
#[ignore = "in a process of its own"]
fn rolex_over_shared_memory() {
    many_and_gone("ROLEX over shared memory", &PoolStore::rolex([Shm::new()], TABLE_BYTES));
}

#[test]
#[ignore = "in a process of its own"]
fn rolex_over_tcp() {
    many_and_gone("ROLEX over TCP", &PoolStore::rolex([Tcp::default()], TABLE_BYTES));
}

fn many_and_gone<F: FabricUnderTest>(what: &str, store: &PoolStore<F>) {
    many_small_ones(what, store);
    come_and_go(what, store);
}

fn x_store<F: FabricUnderTest>(subject: F) -> PoolStore<F> {
    PoolStore::x_store_d([subject], &[], TABLE_BYTES)
}
