//! A server with nothing to do uses no processor. Alone in its process, because it measures the process.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::LocalHost;
use farsight_server::{Server, ServerOptions};

/// Processor time that an idle server may use, of one core.
const IDLE_FRACTION_MAX: f64 = 0.005;

#[test]
fn an_idle_server_sleeps() {
    let host = LocalHost::new();
    let options = ServerOptions { table_memory_bytes: 16 << 20, workers: 2, ..ServerOptions::default() };
    let server = Server::start(Arc::clone(&host), &options).unwrap();
    let client = host.connect();
    let table = client.create("quiet", 8);
    client.load(&table, &(0..20_000).map(|key| key * 7).collect::<Vec<_>>());
    client.put(&table, &(0..20_000).map(|key| key * 13).collect::<Vec<_>>());
    let trained = Instant::now();
    while server.stats().tables[0].model.pending > 0 {
        assert!(trained.elapsed() < Duration::from_secs(60), "{:?}", server.stats().tables[0].model);
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    let (before, start) = (server.stats().cpu_s, Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let fraction = (server.stats().cpu_s - before) / start.elapsed().as_secs_f64();
    println!("idle: {:.4} % of one core", fraction * 100.0);
    assert!(fraction < IDLE_FRACTION_MAX, "{:.2} % of one core", fraction * 100.0);
}
