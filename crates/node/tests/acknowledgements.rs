//! Tables of one node that are acknowledged differently: some when they are durable, some when they are in
//! memory.

mod common;

use std::sync::Arc;

use common::stepped::SteppedNode;
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_durability::disk::SimulatedDisk;
use farsight_node::{DataOptions, NodeOptions};
use farsight_protocol::{
    Ack, PairsReader, Reply, Request, TableDefinition, TableInfo, WriteEntries, WriteEntry, WriteOperation,
    WriteOutcome,
};

fn options(disk: Option<&SimulatedDisk>, ack: Ack) -> NodeOptions {
    let data = disk.map(|disk| DataOptions { ack, ..DataOptions::new(Arc::new(disk.clone())) });
    NodeOptions { table_memory_bytes: 2 << 20, data, ..NodeOptions::default() }
}

fn acknowledged(name: &str, ack: Option<Ack>) -> TableDefinition {
    TableDefinition { ack, ..definition(name, 8) }
}

fn put_frame(table: &TableInfo, key: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    Request::begin_write(&mut frame, table.id, WriteOperation::Put, 1, 8);
    let value = value_of(key, 8);
    WriteEntries::push(&mut frame, WriteEntry { key, hint: LeafNumber::NONE, value: &value });
    frame
}

/// Returns the version.
fn put(node: &mut SteppedNode, table: &TableInfo, key: u64) -> u64 {
    let reply = node.call(&put_frame(table, key));
    let reply = Reply::decode(&reply).expect("a reply").expect("a put");
    match reply.outcomes(1).expect("one").next().expect("one").expect("an outcome").outcome {
        WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) => version,
        other => panic!("{other:?}"),
    }
}

fn has(node: &mut SteppedNode, table: &TableInfo, key: u64) -> bool {
    let mut frame = Vec::new();
    Request::get(&mut frame, table.id, &[key]);
    let reply = node.call(&frame);
    let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
    PairsReader::new(reply.words().expect("words"), 8).value().expect("a value").0 != 0
}

#[test]
fn a_table_says_when_its_writes_are_acknowledged() {
    for of_node in [Ack::Durable, Ack::Memory] {
        let disk = SimulatedDisk::default();
        let mut node = SteppedNode::start(&options(Some(&disk), of_node));
        let usual = node.create(acknowledged("usual", None));
        let safe = node.create(acknowledged("safe", Some(Ack::Durable)));
        let quick = node.create(acknowledged("quick", Some(Ack::Memory)));
        for (table, ack) in [(&usual, of_node), (&safe, Ack::Durable), (&quick, Ack::Memory)] {
            let mut synced = 0;
            for key in 0..20 {
                let before = disk.syncs();
                put(&mut node, table, key);
                synced += u64::from(disk.syncs() > before);
            }
            // What is acknowledged in memory is synced once it has waited long enough.
            let is_right = if ack == Ack::Durable { synced == 20 } else { synced < 20 };
            assert!(is_right, "{synced} of 20 puts waited for the disk: {ack}, at a node of {of_node}");
        }
        let before = disk.syncs();
        put(&mut node, &quick, 100);
        assert!(has(&mut node, &quick, 100), "it is there at once");
        assert!(disk.syncs() <= before + 1);
        put(&mut node, &safe, 100);
        drop(node);
        // One log: what a sync makes durable, it makes durable of all tables.
        let mut node = SteppedNode::start(&options(Some(&disk.crash(7)), of_node));
        for table in [&safe, &quick] {
            // Clients may have seen versions that are lost.
            assert!(put(&mut node, table, 500) > 1 << 24);
            assert!((0..20).all(|key| has(&mut node, table, key)) && has(&mut node, table, 100));
        }
    }
}

/// Calls of both kinds that wait together and take turns: those to tables of memory are taken first, or each
/// change of kinds would wait for the disk.
#[test]
fn calls_of_both_kinds_share_a_sync() {
    let disk = SimulatedDisk::default();
    let mut node = SteppedNode::start(&options(Some(&disk), Ack::Durable));
    let safe = node.create(acknowledged("safe", None));
    let quick = node.create(acknowledged("quick", Some(Ack::Memory)));
    let before = disk.syncs();
    let frames: Vec<_> =
        (0..12).map(|key| put_frame(if key % 2 == 0 { &safe } else { &quick }, key)).collect();
    let replies = node.call_together(&frames);
    assert_eq!(replies.len(), 12);
    for reply in &replies {
        Reply::decode(reply).expect("a reply").expect("a put");
    }
    // And one more at most, of what had waited.
    assert!((1..=2).contains(&(disk.syncs() - before)), "{} syncs", disk.syncs() - before);
    for key in 0..12 {
        assert!(has(&mut node, if key % 2 == 0 { &safe } else { &quick }, key), "key {key}");
    }
}

#[test]
fn a_promise_that_needs_a_disk_is_refused_without_one() {
    let mut node = SteppedNode::start(&options(None, Ack::Durable));
    node.create(acknowledged("quick", Some(Ack::Memory)));
    let refused = node.try_create(acknowledged("safe", Some(Ack::Durable))).expect_err("no disk");
    assert!(refused.to_string().contains("keeps nothing on a disk: start it with --data DIR"), "{refused}");
}
