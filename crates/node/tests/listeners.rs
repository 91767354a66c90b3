//! One server that listens on several fabrics: one catalogue, every region on each of them, and clients that
//! are told apart although every fabric numbers its own.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::LocalHost;
use farsight_fabric::Listener;
use farsight_node::{Node, NodeOptions, StartError};
use farsight_protocol::RegionInfo;

fn options() -> NodeOptions {
    NodeOptions { table_memory_bytes: 1 << 20, ..NodeOptions::default() }
}

#[test]
fn each_fabric_sees_the_same_tables() {
    let (first, second) = (LocalHost::new(), LocalHost::new());
    let _server = Node::start(vec![first.clone(), second.clone()], &options()).unwrap();
    let (here, there) = (first.connect(), second.connect());
    let table = there.create("shared", 8);
    let regions: Vec<_> = table.regions.iter().map(RegionInfo::id).collect();
    assert_eq!(second.exported(), regions, "the first makes regions, the second serves them too");
    here.put(&table, &[1, 2, 3]);
    assert!(there.get(&table, &[1, 2, 3]).unwrap().iter().all(Option::is_some));
    let stats = there.stats();
    let clients: Vec<u64> = stats.listeners.iter().map(|listener| listener.clients).collect();
    assert_eq!((stats.clients, clients), (2, vec![1, 1]));
}

#[test]
fn a_client_s_end_ends_what_it_began_and_no_other_fabric_s() {
    let (first, second) = (LocalHost::new(), LocalHost::new());
    let server = Node::start(vec![first.clone(), second.clone()], &options()).unwrap();
    // Both are the first client of their fabric.
    let (here, there) = (first.connect(), second.connect());
    let (mine, yours) = (here.create("mine", 8), there.create("yours", 8));
    let used_bytes = || server.stats().tables[1].leaves.used_bytes();
    let empty_bytes = used_bytes();
    here.load_piece(&mine, 0, false, &[1, 2, 3]).unwrap();
    there.load_piece(&yours, 0, false, &[1, 2, 3]).unwrap();
    drop(there);
    let begun = Instant::now();
    while used_bytes() > empty_bytes {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} B are still used", used_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(here.load_piece(&mine, 1, true, &[4]).unwrap(), 4);
}

#[test]
fn a_server_listens_somewhere_but_not_everywhere() {
    let refused = |count: usize| {
        let listeners = (0..count).map(|_| LocalHost::new() as Arc<dyn Listener>).collect();
        Node::start(listeners, &options()).err()
    };
    assert!(matches!(refused(0), Some(StartError::Listeners { got: 0 })));
    assert!(matches!(refused(17), Some(StartError::Listeners { got: 17 })));
    assert!(refused(16).is_none());
}
