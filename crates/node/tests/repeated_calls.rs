//! Calls that are repeated after their node was started again: each acts once.

mod common;
mod counters;

use std::sync::Arc;

use common::local_host::LocalClient;
use counters::{Crash, RunningNode, Session, crash_everywhere, write};
use farsight_durability::disk::{Disk, Fault, SimulatedDisk};
use farsight_durability::{DirectoryArchive, back_up, restore};
use farsight_protocol::{
    Ack, AuthorId, CallId, ControlRequest, ErrorCode, Reply, ServerError, TableInfo, WriteOperation,
    WriteOutcome,
};

/// Programs of a run.
const PROGRAMS: u64 = 4;

/// A node of a life, a table and a session there.
fn begin(disk: &SimulatedDisk) -> (RunningNode, LocalClient, TableInfo, Session) {
    let mut life = RunningNode::start(disk, Ack::Durable);
    let client = life.connect();
    let table = life.create(&client).expect("a table");
    let mut session = Session::default();
    session.begin(&mut life, &client).expect("an author");
    (life, client, table, session)
}

/// The outcome in a reply to a write of one entry.
fn outcome(reply: &[u8]) -> Result<WriteOutcome, ServerError> {
    let reply = Reply::decode(reply).expect("a reply")?;
    Ok(reply.outcomes(1).expect("one").next().expect("one").expect("an outcome").outcome)
}

#[test]
fn additions_act_once_whatever_operation_of_the_disk_is_the_machines_last() {
    crash_everywhere(PROGRAMS, Ack::Durable, Crash::OfTheMachine);
}

#[test]
fn additions_act_once_whatever_operation_of_the_disk_is_the_processes_last() {
    crash_everywhere(PROGRAMS, Ack::Durable, Crash::OfTheProcess);
    crash_everywhere(PROGRAMS, Ack::Memory, Crash::OfTheProcess);
}

/// A call that changed nothing is not decided anew behind a later one that did.
fn a_call_that_changed_nothing_keeps_its_place() {
    let disk = SimulatedDisk::default();
    let (mut life, client, table, mut session) = begin(&disk);
    let update = |value| write(table.id, WriteOperation::Update, 5, value);
    session.send(&client, 5, update(1));
    life.steps(true);
    let first = client.receive();
    assert_eq!(outcome(&first), Ok(WriteOutcome::Absent));
    let inserted = life.call(&client, &write(table.id, WriteOperation::Insert, 5, 2));
    assert!(matches!(outcome(&inserted), Ok(WriteOutcome::Inserted(_))));
    session.send(&client, 5, update(3));
    life.steps(true);
    let second = client.receive();
    assert!(matches!(outcome(&second), Ok(WriteOutcome::Replaced(_))));
    drop(life);

    // Neither answer has come.
    let mut life = RunningNode::start(&disk.crash(1), Ack::Durable);
    let client = life.connect();
    session.connection += 1;
    assert_eq!(outcome(&session.repeat_oldest(&mut life, &client)), outcome(&first));
    assert_eq!(outcome(&session.repeat_oldest(&mut life, &client)), outcome(&second));
    let swapped = life.call(&client, &write(table.id, WriteOperation::Swap, 5, 9));
    let reply = Reply::decode(&swapped).expect("a reply").expect("an answer");
    let (_, old) = reply.exchanged(1, 8).expect("one").next().expect("one").expect("one");
    assert_eq!(old, 3_u64.to_le_bytes(), "the first update came behind the second");
}

#[test]
fn calls_that_changed_nothing_keep_their_places() {
    a_call_that_changed_nothing_keeps_its_place();
}

/// The segments that noted a call are gone, and it is known.
fn a_note_outlives_its_segment() {
    let disk = SimulatedDisk::default();
    let (mut life, client, table, mut session) = begin(&disk);
    session.send(&client, 1, write(table.id, WriteOperation::Put, 1, 1));
    life.steps(true);
    let first = client.receive();
    for key in 0..200 {
        life.call(&client, &write(table.id, WriteOperation::Put, 100 + key, key));
    }
    life.round(&client);
    assert!(!disk.list().expect("names").contains(&"log-0000000000000001".to_owned()), "it is removed");
    drop(life);

    let mut image = disk.crash(1);
    for number in 0..2 {
        let mut life = RunningNode::start(&image, Ack::Durable);
        let client = life.connect();
        session.connection += 1;
        let before = session.under_way.clone();
        assert_eq!(outcome(&session.repeat_oldest(&mut life, &client)), outcome(&first));
        // Nor has it come this time.
        session.under_way = before;
        life.round(&client);
        image = image.crash(number);
    }
}

#[test]
fn notes_outlive_their_segments() {
    a_note_outlives_its_segment();
}

/// Calls of an author of which a node has lost all, because it forgot, or never knew.
fn a_stranger_is_refused() {
    let disk = SimulatedDisk::default();
    let (life, _, table, session) = begin(&disk);
    drop(life);
    let mut life = RunningNode::start(&disk.crash(1), Ack::Durable);
    let client = life.connect();
    let mut request = write(table.id, WriteOperation::FetchAdd, 1, 1);
    let author = AuthorId(!session.author.expect("it has begun").0);
    CallId { author, connection: 1, sequence: 4, unanswered: 1 }.enclose(&mut request);
    let refused = outcome(&life.call(&client, &request)).expect_err("a stranger");
    assert_eq!(refused.code, ErrorCode::Forgotten, "{refused}");
}

#[test]
fn strangers_are_refused() {
    a_stranger_is_refused();
}

/// The directory that was backed up may have executed the call: the other one knows no author, in none of
/// its lives.
#[test]
fn a_restored_directory_knows_no_author() {
    let disk = SimulatedDisk::default();
    let (mut life, client, table, mut session) = begin(&disk);
    session.send(&client, 1, write(table.id, WriteOperation::Put, 1, 1));
    life.steps(true);
    client.receive();
    let (kept, restored) = (SimulatedDisk::default(), SimulatedDisk::default());
    let archive = DirectoryArchive::new(Arc::new(kept));
    back_up(&disk, &archive, &mut |_| ()).expect("a backup");
    restore(&archive, &(Arc::new(restored.clone()) as Arc<dyn Disk>), &mut |_| ()).expect("restored");
    let mut image = restored;
    for number in 0..2 {
        image = image.crash(number);
        let mut life = RunningNode::start(&image, Ack::Durable);
        let client = life.connect();
        let before = session.under_way.clone();
        let refused = outcome(&session.repeat_oldest(&mut life, &client)).expect_err("nobody knows it");
        assert_eq!(refused.code, ErrorCode::Forgotten, "{refused}");
        session.under_way = before;
        // It has authors of its own.
        let mut own = Session::default();
        own.begin(&mut life, &client).expect("an author");
        own.send(&client, 2, write(table.id, WriteOperation::Put, 2, 2));
        life.steps(true);
        let told = client.receive();
        assert!(outcome(&told).is_ok());
        drop(life);
        image = image.crash(7 + number);
        let mut life = RunningNode::start(&image, Ack::Durable);
        let client = life.connect();
        assert_eq!(outcome(&own.repeat_oldest(&mut life, &client)), outcome(&told));
    }
}

/// On a full disk a round notes nothing anew. Authors may be forgotten then, and the node goes on.
#[test]
fn a_full_disk_ends_no_node_that_has_authors() {
    let disk = SimulatedDisk::default();
    let (mut life, client, table, _session) = begin(&disk);
    disk.set_faults(&[Fault::CapacityBytes(12 << 10)]);
    let put = |life: &mut RunningNode, key| {
        let reply = life.call(&client, &write(table.id, WriteOperation::Put, key, 1));
        outcome(&reply)
    };
    let refused = (0..200).find_map(|key| put(&mut life, key).err()).expect("a full disk");
    assert_eq!(refused.code, ErrorCode::OutOfResources, "{refused}");
    life.round(&client);
    assert_eq!(life.state.failure(), None);
    disk.set_faults(&[]);
    assert!(matches!(put(&mut life, 300), Ok(WriteOutcome::Inserted(_))));
    let author: Result<AuthorId, _> = life.control(&client, &ControlRequest::BeginAuthor);
    assert!(author.is_ok(), "{author:?}");
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;
    use farsight_node::injected;

    use super::*;

    /// The first that meets the bug ends the test.
    const PROGRAMS_MAX: u64 = 50;

    fn machines() {
        crash_everywhere(PROGRAMS_MAX, Ack::Durable, Crash::OfTheMachine);
    }

    #[test]
    fn a_note_in_a_frame_behind_that_of_its_writes() {
        assert_found(&injected::NOTE_BEHIND_WRITES, machines);
    }

    #[test]
    fn notes_that_end_with_their_segment() {
        assert_found(&injected::NOTES_END_WITH_SEGMENT, a_note_outlives_its_segment);
        assert_found(&injected::NOTES_END_WITH_SEGMENT, machines);
    }

    #[test]
    fn an_unknown_authors_call_that_is_executed() {
        assert_found(&injected::STRANGER_EXECUTED, a_stranger_is_refused);
    }

    #[test]
    fn a_call_that_changed_nothing_and_is_not_noted() {
        assert_found(&injected::UNCHANGING_UNNOTED, a_call_that_changed_nothing_keeps_its_place);
    }
}
