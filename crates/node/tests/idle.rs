//! A server with nothing to do uses no processor. Alone in its process, because it measures the process.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::LocalHost;
use farsight_fabric::Connection;
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::ControlRequest;

/// Processor time that an idle server may use, of one core.
const IDLE_FRACTION_MAX: f64 = 0.005;

/// One test, because two at once would measure each other.
#[test]
fn an_idle_server_sleeps_on_any_fabric() {
    let options = NodeOptions { table_memory_bytes: 16 << 20, workers: 2, ..NodeOptions::default() };
    let host = LocalHost::new();
    let server = Node::start(vec![host.clone()], &options).unwrap();
    let client = host.connect();
    let table = client.create("quiet", 8);
    client.load(&table, &(0..20_000).map(|key| key * 7).collect::<Vec<_>>());
    client.put(&table, &(0..20_000).map(|key| key * 13).collect::<Vec<_>>());
    let start = Instant::now();
    while client.control::<u64>(&ControlRequest::PendingTraining).unwrap() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", server.stats().tables[0].part().model);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_idle(&server, "in-process");
    drop(server);

    let path = std::env::temp_dir().join(format!("farsight-idle-{}", std::process::id()));
    let host = ShmHost::listen(&path, ListenOptions::new(FORMAT_VERSION)).unwrap();
    let server = Node::start(vec![Arc::new(host)], &options).unwrap();
    let connect = ConnectOptions::new(FORMAT_VERSION);
    let connection = ShmConnection::connect(&path, connect).unwrap();
    let _queues = [connection.open_queue().unwrap(), connection.open_queue().unwrap()];
    assert_idle(&server, "shared memory");
}

fn assert_idle(server: &NodeHandle, fabric: &str) {
    std::thread::sleep(Duration::from_millis(100));
    let (before, start) = (server.stats().cpu_s, Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let fraction = (server.stats().cpu_s - before) / start.elapsed().as_secs_f64();
    println!("idle over {fabric}: {:.4} % of one core", fraction * 100.0);
    assert!(fraction < IDLE_FRACTION_MAX, "{fabric}: {:.2} % of one core", fraction * 100.0);
}
