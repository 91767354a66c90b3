//! Who is found by a name, and which map counts.

use farsight_base::prng::SplitMix64;
use farsight_cluster::{ClusterError, Etcd, Keeper as _, MapRecord, Offered, Standing};

use crate::local_etcd::{LocalEtcd, is_there};
use crate::nodes::{Node, address, found, map, open, record};

#[test]
fn nodes_register_and_are_found_by_their_pools_name() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let reader = open(&url);
    let mut nodes = [7, 3, 5].map(|epoch| Node::new(&url, epoch, 3));
    assert!(matches!(found(&reader), Err(ClusterError::Few { got: 0, .. })));
    for node in &mut nodes[..2] {
        assert_eq!(node.step().expect("a step"), Standing::Agreed);
    }
    assert!(matches!(found(&reader), Err(ClusterError::Few { expected: 3, got: 2, .. })));
    nodes[2].step().expect("a step");
    let in_order = |epochs: [u64; 3]| epochs.map(|epoch| vec![address(epoch, 1)]).to_vec();
    assert_eq!(found(&reader).expect("three").nodes, in_order([7, 3, 5]), "in the order in which they came");
    assert!(
        matches!(found(&open(&etcd.url("others"))), Err(ClusterError::Few { got: 0, .. })),
        "another name"
    );

    // A client has made a table, and named them otherwise.
    for (node, epoch) in nodes.iter_mut().zip([7, 3, 5]) {
        node.memory.map = Some(map(epoch, 3, 0, &[3, 5, 7]));
        assert_eq!(node.step().expect("a step"), Standing::Agreed);
    }
    let known = reader.read().expect("all");
    assert_eq!(known.pool(), Some(&record(3, 0, &[3, 5, 7])));
    assert_eq!(known.coordinator(), Some(3));
    assert_eq!(found(&reader).expect("a pool").nodes, in_order([3, 5, 7]));

    let [first, ..] = nodes;
    first.registration.end().expect("its lease ends");
    let known = reader.read().expect("all");
    assert!(known.node(7).is_none() && known.node(3).is_some());
    assert_eq!(
        found(&reader).expect("a pool").nodes,
        in_order([3, 5, 7]),
        "the map has a lost node's address"
    );
}

#[test]
fn all_nodes_of_a_durable_pool_are_found_elsewhere() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let epochs = [3, 5, 7];
    let start = |life, is_known: bool| {
        epochs.map(|epoch| {
            let mut node = Node::in_life(&url, (epoch, life), 3, true);
            let mut own = map(epoch, 3, 0, &epochs);
            if !is_known {
                own.addresses = farsight_protocol::PoolAddresses::default();
            }
            node.memory.map = Some(own);
            node.step().expect("a step");
            node
        })
    };
    drop(start(1, true));
    let all = |life: u64| epochs.map(|epoch| address(epoch, life)).to_vec();
    let reader = open(&url);
    let mut nodes = start(2, false);
    assert_eq!(found(&reader).expect("a pool").nodes.concat(), all(2));
    for node in &mut nodes {
        node.step().expect("a step");
        assert_eq!(node.knows(), all(2), "its own list of addresses follows");
    }
    // Also where etcd has lost what it had.
    etcd.control(&["del", "/farsight/users/map"]);
    for node in &mut nodes {
        node.memory.map.as_mut().expect("a map").addresses = farsight_protocol::PoolAddresses::default();
    }
    nodes[1].step().expect("a step");
    assert_eq!(reader.read().expect("all").pool().expect("a map").addresses().0.concat(), all(2));
}

#[test]
fn two_pools_by_one_name_are_refused() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut first = Node::new(&url, 3, 1);
    first.memory.map = Some(map(3, 3, 0, &[3]));
    first.step().expect("a step");
    let mut second = Node::new(&url, 5, 1);
    second.memory.map = Some(map(5, 5, 9, &[5]));
    let refused = second.step().expect_err("the name is taken");
    assert!(matches!(&refused, ClusterError::NameTaken { pool: 3, own: 5, .. }), "{refused}");
    assert!(refused.to_string().contains("etcdctl del --prefix /farsight/users/"), "{refused}");
    let reader = open(&url);
    assert_eq!(reader.read().expect("all").pool(), Some(&record(3, 0, &[3])));
    // It has no directory, so it is gone with its node.
    first.registration.end().expect("its lease ends");
    assert_eq!(second.step().expect("the name is free"), Standing::Agreed);
    assert_eq!(reader.read().expect("all").pool(), Some(&record(5, 9, &[5])));

    let mut durable = Node::in_life(&etcd.url("kept"), (3, 1), 1, true);
    durable.memory.map = Some(map(3, 3, 0, &[3]));
    durable.step().expect("a step");
    durable.registration.end().expect("its lease ends");
    let mut other = Node::new(&etcd.url("kept"), 5, 1);
    other.memory.map = Some(map(5, 5, 0, &[5]));
    assert!(matches!(other.step(), Err(ClusterError::NameTaken { pool: 3, .. })), "it may be started again");
}

/// Several offer maps, in any order, beside what they read long before. An older map never takes the place of
/// a newer one, and an offer that was taken is there.
#[test]
fn an_older_map_never_replaces_a_newer_one() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut random = SplitMix64::fresh();
    let mut writers = [open(&url), open(&url), open(&url)];
    let mut read: Vec<_> = writers.iter().map(|writer| writer.read().expect("nothing")).collect();
    let lists: Vec<MapRecord> = (0..6).map(|term| record(3, term, &[3, 10 + u64::from(term), 7])).collect();
    let (mut kept, mut taken): (Option<MapRecord>, usize) = (None, 0);
    // So that it has a node, and its name.
    let mut node = Node::new(&url, 3, 3);
    node.step().expect("a step");
    for _ in 0..300 {
        let at = random.below(writers.len() as u64) as usize;
        if random.below(3) == 0 {
            read[at] = writers[at].read().expect("all");
            continue;
        }
        let offered = lists[random.below(lists.len() as u64) as usize].clone();
        let outcome = writers[at].offer(&offered, &read[at]).expect("an answer");
        let now = writers[at].map().expect("an answer");
        match outcome {
            Offered::Has if read[at].pool() == Some(&offered) => {}
            Offered::Has => {
                assert!(
                    kept.as_ref().is_none_or(|kept| kept.term() <= offered.term()),
                    "{kept:?} {offered:?}"
                );
                assert_eq!(now.as_ref(), Some(&offered));
                taken += 1;
            }
            Offered::Changed | Offered::KeepsIts => assert_eq!(now, kept, "{offered:?}"),
        }
        assert!(kept.as_ref().map(MapRecord::term) <= now.as_ref().map(MapRecord::term));
        kept = now;
    }
    assert!(taken >= 2, "{taken} offers were taken");
}

#[test]
fn bytes_that_are_no_record_are_named_and_left_alone() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut node = Node::new(&url, 3, 1);
    node.memory.map = Some(map(3, 3, 0, &[3]));
    node.step().expect("a step");
    let reader = open(&url);
    let whole = record(3, 0, &[3]).encoded();
    let mut random = SplitMix64::fresh();
    let put = |key: &str, value: &str| drop(etcd.control(&["put", "--", key, value]));
    put("/farsight/users/map", "no map");
    for refused in [reader.read().map(drop), node.step().map(drop)] {
        let refused = refused.expect_err("no map").to_string();
        assert!(refused.contains("/farsight/users/map") && refused.contains("etcdctl del"), "{refused}");
    }
    assert!(etcd.control(&["get", "/farsight/users/map"]).contains("no map"), "it may be somebody else's");
    etcd.control(&["del", "/farsight/users/map"]);
    node.step_until("the map is back", |_, stepped| stepped.is_ok());
    put("/farsight/users/nodes/0000000000000009", "x");
    assert!(reader.read().expect_err("no node").to_string().contains("nodes/0000000000000009"));
    // Any bytes are a record or an error.
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        if let Ok(record) = MapRecord::decoded(&bytes) {
            assert_eq!(record.encoded(), bytes);
        }
    }
}

#[test]
fn an_etcd_with_users_wants_one() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    etcd.control(&["user", "add", "root:secret"]);
    etcd.control(&["user", "grant-role", "root", "root"]);
    etcd.control(&["auth", "enable"]);
    let by = |user: &str| url.replace("etcd://", &format!("etcd://{user}@"));
    let mut node = Node::new(&by("root:secret"), 3, 1);
    node.step().expect("a step");
    let found_by = |etcd: &Etcd| found(etcd).map(|found| found.nodes.len());
    assert_eq!(found_by(&open(&by("root:secret"))).expect("one node"), 1);
    for wrong in [url.clone(), by("root:wrong")] {
        let error = open(&wrong).read().expect_err("no such user").to_string();
        assert!(error.contains("refuses") && !error.contains("wrong"), "{error}");
    }
}
