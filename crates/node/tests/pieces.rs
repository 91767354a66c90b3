//! Values that come and go in pieces: each is seen whole or not at all, and what comes to nothing leaves
//! nothing. In memory and behind a log.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::local_host::{LocalClient, LocalHost, MESSAGE_BYTES_MAX};
use common::stepped::SteppedNode;
use common::talk::{create_at, definition};
use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::{ClientId, LeafNumber};
use farsight_durability::LogOptions;
use farsight_durability::disk::SimulatedDisk;
use farsight_layout::value_block::draft_checksum;
use farsight_node::{DataOptions, NodeOptions, NodeState, Service, Worker};
use farsight_protocol::{
    Ack, ErrorCode, PIECE_HEAD_BYTES, PairsReader, Reply, Request, ServerError, StagedWrite, TableDefinition,
    TableInfo, ValueKind, ValuePiece, WriteOperation, WriteOutcome,
};

const LIMIT_BYTES: u32 = 1 << 20;
/// Bytes of a piece but the last.
const PIECE_BYTES: usize = (MESSAGE_BYTES_MAX - PIECE_HEAD_BYTES) / 8 * 8;
/// Longer than a value may be silent.
const SILENCE: Duration = Duration::from_secs(121);

fn options(disk: Option<&SimulatedDisk>) -> NodeOptions {
    let data = disk.map(|disk| DataOptions {
        ack: Ack::Durable,
        log: LogOptions { segment_bytes: 256 << 10 },
        snapshot_bytes: 1 << 20,
        ..DataOptions::new(Arc::new(disk.clone()))
    });
    NodeOptions { table_memory_bytes: 32 << 20, data, ..NodeOptions::default() }
}

/// A node with a table, and a client that speaks of it.
struct Talk {
    node: SteppedNode,
    table: TableInfo,
    number: u64,
}

impl Talk {
    fn start(disk: Option<&SimulatedDisk>) -> Self {
        let mut node = SteppedNode::start(&options(disk));
        let values = ValueKind::blocks(LIMIT_BYTES);
        let table = node.create(TableDefinition { values, ..definition("t", 8) });
        Self { node, table, number: 0 }
    }

    fn call(&mut self, encode: impl FnOnce(&mut Vec<u8>, &TableInfo)) -> Result<Vec<u8>, ServerError> {
        let mut frame = Vec::new();
        encode(&mut frame, &self.table);
        assert!(frame.len() <= MESSAGE_BYTES_MAX, "a message of {} B", frame.len());
        let reply = self.node.call(&frame);
        Reply::decode(&reply).expect("a reply")?;
        Ok(reply)
    }

    fn stage(&mut self, piece: ValuePiece<'_>) -> Result<u64, ServerError> {
        let reply = self.call(|frame, table| Request::stage_value(frame, table.id, piece))?;
        Ok(Reply::decode(&reply).expect("a reply").expect("an answer").argument)
    }

    /// Stages the first pieces of a value, or all. The number under which it is known.
    fn stage_first(&mut self, key: u64, value: &[u8], pieces: usize) -> u64 {
        self.number += 1;
        let number = self.number;
        for (index, piece) in value.chunks(PIECE_BYTES).take(pieces).enumerate() {
            let [value_bytes, offset] = [value.len(), index * PIECE_BYTES].map(|bytes| bytes as u32);
            let there = self.stage(ValuePiece { number, key, value_bytes, offset, piece }).expect("a piece");
            assert_eq!(there, u64::from(offset) + piece.len() as u64);
        }
        number
    }

    fn write(&mut self, write: StagedWrite) -> Result<WriteOutcome, ServerError> {
        let reply = self.call(|frame, table| Request::write_staged(frame, table.id, write))?;
        let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
        if write.operation.returns_value() {
            return Ok(reply.exchanged_values(1).expect("one").next().expect("one").expect("one").0.outcome);
        }
        let mut outcomes = reply.outcomes(1).expect("one");
        Ok(outcomes.next().expect("one").expect("an outcome").outcome)
    }

    fn put(&mut self, key: u64, value: &[u8]) -> WriteOutcome {
        let number = self.stage_first(key, value, usize::MAX);
        self.write(staged(WriteOperation::Put, number, key, value)).expect("an outcome")
    }

    /// The value of a key, piece by piece.
    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        self.number += 1;
        let (number, mut value) = (self.number, Vec::new());
        loop {
            let offset = value.len() as u64;
            let fetch = |frame: &mut Vec<u8>, table: &TableInfo| {
                Request::fetch_value(frame, table.id, number, key, offset);
            };
            let reply = self.call(fetch).expect("a piece");
            let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
            let mut reader = PairsReader::of_any_length(reply.words().expect("words"));
            let (version, piece) = reader.value().expect("a piece");
            if version == 0 {
                return None;
            }
            value.extend_from_slice(piece);
            if value.len() as u64 == reply.argument {
                return Some(value);
            }
        }
    }

    fn live_bytes(&self) -> u64 {
        self.node.state.stats(self.node.now).tables[0].blocks.expect("blocks").live_bytes
    }

    fn quarantined_bytes(&self) -> u64 {
        self.node.state.stats(self.node.now).tables[0].blocks.expect("blocks").quarantined_bytes
    }
}

fn staged(operation: WriteOperation, number: u64, key: u64, value: &[u8]) -> StagedWrite {
    let checksum = draft_checksum(&key.to_le_bytes(), value);
    StagedWrite { number, operation, key, hint: LeafNumber::NONE, checksum, expected_version: 0 }
}

fn value(rng: &mut SplitMix64, length: usize) -> Vec<u8> {
    (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(length).collect()
}

fn is_bad_request<T>(result: Result<T, ServerError>) -> bool {
    result.is_err_and(|error| error.code == ErrorCode::BadRequest)
}

/// With a log and without.
fn both(test: impl Fn(&mut Talk)) {
    test(&mut Talk::start(None));
    test(&mut Talk::start(Some(&SimulatedDisk::default())));
}

#[test]
fn a_value_shows_with_its_write_and_not_before() {
    both(|talk| {
        let mut rng = SplitMix64::fresh();
        let (old, new) = (value(&mut rng, 100_000), value(&mut rng, 3 * PIECE_BYTES));
        assert!(matches!(talk.put(7, &old), WriteOutcome::Inserted(_)));
        let number = talk.stage_first(7, &new, usize::MAX);
        assert!(talk.get(7).as_ref() == Some(&old), "nothing is written yet");
        let outcome = talk.write(staged(WriteOperation::Insert, number, 7, &new)).expect("an outcome");
        assert!(matches!(outcome, WriteOutcome::Exists(_)));
        assert!(is_bad_request(talk.write(staged(WriteOperation::Put, number, 7, &new))), "let go");
        let number = talk.stage_first(7, &new, usize::MAX);
        let outcome = talk.write(staged(WriteOperation::Update, number, 7, &new)).expect("an outcome");
        assert!(matches!(outcome, WriteOutcome::Replaced(_)));
        assert!(talk.get(7).as_ref() == Some(&new));
        assert_eq!(talk.get(8), None);
    });
}

#[test]
fn what_comes_to_nothing_leaves_nothing() {
    both(|talk| {
        let mut rng = SplitMix64::fresh();
        let value = value(&mut rng, 3 * PIECE_BYTES + 5);
        talk.put(1, &value);
        let before = (talk.live_bytes(), talk.quarantined_bytes());
        let is_as_before = |talk: &Talk| (talk.live_bytes(), talk.quarantined_bytes()) == before;
        let piece = |number, offset: usize| ValuePiece {
            number,
            key: 2,
            value_bytes: value.len() as u32,
            offset: offset as u32,
            piece: &value[offset..offset + PIECE_BYTES],
        };

        // Pieces that do not follow, or are of another value.
        let gap = talk.stage_first(2, &value, 1);
        assert!(!is_as_before(talk));
        assert!(is_bad_request(talk.stage(piece(gap, 2 * PIECE_BYTES))) && is_as_before(talk));
        assert!(is_bad_request(talk.stage(piece(gap, PIECE_BYTES))), "it was let go");
        let other = talk.stage_first(3, &value, 1);
        assert!(is_bad_request(talk.stage(piece(other, PIECE_BYTES))) && is_as_before(talk));

        // Writes of values that are not whole, not as sent, or of another key.
        let cut = talk.stage_first(2, &value, 2);
        assert!(
            is_bad_request(talk.write(staged(WriteOperation::Put, cut, 2, &value))) && is_as_before(talk)
        );
        let wrong = talk.stage_first(2, &value, usize::MAX);
        let write = staged(WriteOperation::Put, wrong, 2, &value[1..]);
        assert!(is_bad_request(talk.write(write)) && is_as_before(talk));
        let key = talk.stage_first(2, &value, usize::MAX);
        let write = StagedWrite { key: 1, ..staged(WriteOperation::Put, key, 2, &value) };
        assert!(is_bad_request(talk.write(write)) && is_as_before(talk));

        // Writes that store nothing.
        for operation in [WriteOperation::Insert, WriteOperation::CompareAndSet] {
            let number = talk.stage_first(1, &value, usize::MAX);
            let outcome = talk.write(staged(operation, number, 1, &value)).expect("an outcome");
            assert!(matches!(outcome, WriteOutcome::Exists(_) | WriteOutcome::Differs(_)), "{outcome:?}");
            assert!(is_as_before(talk));
        }
        let number = talk.stage_first(9, &value, usize::MAX);
        let outcome = talk.write(staged(WriteOperation::Update, number, 9, &value));
        assert!(outcome == Ok(WriteOutcome::Absent) && is_as_before(talk));
        // The value before has no room in the answer.
        let number = talk.stage_first(1, &value, usize::MAX);
        let outcome = talk.write(staged(WriteOperation::Swap, number, 1, &value));
        assert_eq!(outcome, Ok(WriteOutcome::Failed(ErrorCode::OutOfResources)));
        assert!(is_as_before(talk));

        // A number that is used again, and one that is let go.
        let number = talk.stage_first(2, &value, 2);
        talk.number = number - 1;
        assert_eq!(talk.stage_first(2, &value, 1), number);
        talk.call(|frame, table| Request::let_go(frame, table.id, number)).expect("an answer");
        assert!(is_as_before(talk));

        // Too long a value, and one without room.
        let long = ValuePiece { value_bytes: LIMIT_BYTES + 1, ..piece(99, 0) };
        let refused = talk.stage(long).expect_err("too long");
        assert_eq!(refused.code, ErrorCode::WrongValueSize);
        assert!(refused.text.contains("1048576 B") && refused.text.contains("1048577 B"), "{}", refused.text);
        assert!(is_as_before(talk) && talk.get(2).is_none());
    });
}

/// Values of a client that ends between two pieces, and before the write.
fn values_of_those_who_end_are_given_back() {
    both(|talk| {
        let mut rng = SplitMix64::fresh();
        let value = value(&mut rng, 2 * PIECE_BYTES + 1);
        let before = (talk.live_bytes(), talk.quarantined_bytes());
        talk.stage_first(1, &value, 2);
        talk.stage_first(2, &value, usize::MAX);
        assert!(talk.live_bytes() > before.0 + 4 * PIECE_BYTES as u64);
        // The only one that there is.
        for client in 0..3 {
            talk.node.state.note_departed(vec![ClientId(client)]);
        }
        talk.node.rest(Duration::from_millis(10));
        assert_eq!((talk.live_bytes(), talk.quarantined_bytes()), before, "nothing is left of them");
        assert!(talk.get(1).is_none() && talk.get(2).is_none());
    });
}

#[test]
fn who_ends_leaves_nothing() {
    values_of_those_who_end_are_given_back();
}

#[test]
fn a_value_of_which_nothing_is_heard_is_given_back() {
    both(|talk| {
        let mut rng = SplitMix64::fresh();
        let value = value(&mut rng, 3 * PIECE_BYTES);
        talk.put(5, &value);
        let before = talk.live_bytes();
        let number = talk.stage_first(1, &value, 1);
        talk.node.rest(Duration::from_secs(1));
        assert!(talk.live_bytes() > before, "it is waited for");
        talk.node.rest(SILENCE);
        assert_eq!(talk.live_bytes(), before);
        assert!(is_bad_request(talk.write(staged(WriteOperation::Put, number, 1, &value))));
        // One that goes the other way.
        let fetch = |offset| {
            move |frame: &mut Vec<u8>, table: &TableInfo| {
                Request::fetch_value(frame, table.id, 1 << 40, 5, offset);
            }
        };
        talk.call(fetch(0)).expect("a piece");
        talk.node.rest(SILENCE);
        assert!(is_bad_request(talk.call(fetch(8))));
        assert!(talk.get(5).as_ref() == Some(&value));
    });
}

#[test]
fn a_client_has_a_bounded_number_of_values_under_way() {
    let mut talk = Talk::start(None);
    let value = vec![7; PIECE_BYTES + 8];
    let before = talk.live_bytes();
    for _ in 0..256 {
        talk.stage_first(1, &value, 1);
    }
    let piece = &value[..PIECE_BYTES];
    let one_more = ValuePiece { number: 0, key: 1, value_bytes: value.len() as u32, offset: 0, piece };
    let refused = talk.stage(one_more).expect_err("too many");
    assert_eq!(refused.code, ErrorCode::OutOfResources);
    assert!(refused.text.contains("256 values"), "{}", refused.text);
    talk.node.rest(SILENCE);
    assert_eq!(talk.live_bytes(), before);
}

/// What a client has under way counts whatever tables it is of: more tables give it no more memory.
#[test]
fn a_clients_values_under_way_are_bounded_over_all_tables() {
    let mut talk = Talk::start(None);
    let values = ValueKind::blocks(LIMIT_BYTES);
    let tables = [talk.table.clone(), talk.node.create(TableDefinition { values, ..definition("u", 8) })];
    let value = vec![7; PIECE_BYTES + 8];
    for turn in 0..256 {
        talk.table = tables[turn % 2].clone();
        talk.stage_first(1, &value, 1);
    }
    for table in tables {
        talk.table = table;
        let piece = &value[..PIECE_BYTES];
        let one_more = ValuePiece { number: 0, key: 1, value_bytes: value.len() as u32, offset: 0, piece };
        let refused = talk.stage(one_more).expect_err("too many");
        assert_eq!(refused.code, ErrorCode::OutOfResources);
        assert!(refused.text.contains("has 256 values"), "{}", refused.text);
    }
    // One that is let go makes room.
    let number = talk.number;
    talk.call(|frame, table| Request::let_go(frame, table.id, number)).expect("an answer");
    talk.stage_first(1, &value, 1);
}

/// A client has connections with two workers, and begins values under one number over both.
#[test]
fn a_number_has_one_value_however_many_begin_at_once() {
    let host = LocalHost::new();
    let state = NodeState::new(vec![host.clone()], &options(None), MonotonicNs(0)).expect("a node");
    let open = |name| Worker::open(&state, 0, name).expect("a worker");
    let mut workers = [open("the first"), open("the second")];
    let one = host.connect();
    let clients = [host.open_another(&one), one];
    workers.reverse();
    let call = |worker: &mut Worker, client: &LocalClient, frame: &[u8]| {
        client.send(frame);
        worker.step(MonotonicNs(1), 1);
        let reply = client.receive();
        assert!(Reply::decode(&reply).expect("a reply").is_ok());
        reply
    };
    let mut frame = Vec::new();
    let values = ValueKind::blocks(LIMIT_BYTES);
    Request::control(
        &mut frame,
        &create_at(state.epoch().0, TableDefinition { values, ..definition("t", 8) }),
    );
    let reply = call(&mut workers[0], &clients[0], &frame);
    let table: TableInfo =
        Reply::decode(&reply).expect("a reply").expect("an answer").control().expect("its description");
    let value = [7; PIECE_BYTES];
    let piece =
        ValuePiece { number: 5, key: 1, value_bytes: PIECE_BYTES as u32 + 8, offset: 0, piece: &value };
    Request::stage_value(&mut frame, table.id, piece);
    std::thread::scope(|scope| {
        for (worker, client) in workers.iter_mut().zip(clients) {
            let (call, frame) = (&call, &frame);
            scope.spawn(move || {
                for _ in 0..5_000 {
                    call(worker, &client, frame);
                }
            });
        }
    });
    let blocks = state.stats(MonotonicNs(1)).tables[0].blocks.expect("blocks");
    assert_eq!(blocks.live_bytes, (32 + PIECE_BYTES as u64 + 8).next_multiple_of(64), "of one value");
}

/// Long values among short ones, written, replaced and swapped, are found by a restart.
fn long_values_come_back() {
    let disk = SimulatedDisk::default();
    let mut talk = Talk::start(Some(&disk));
    let mut rng = SplitMix64::fresh();
    let mut model = BTreeMap::new();
    for _ in 0..60 {
        let (key, length) = (rng.below(9), 1 + rng.below(5 * PIECE_BYTES as u64) as usize);
        let value = value(&mut rng, length);
        let outcome = talk.put(key, &value);
        let was_there = model.insert(key, value).is_some();
        assert_eq!(was_there, matches!(outcome, WriteOutcome::Replaced(_)), "{outcome:?}");
    }
    let longest = value(&mut rng, LIMIT_BYTES as usize);
    talk.put(10, &longest);
    model.insert(10, longest);
    let unfinished = value(&mut rng, 4 * PIECE_BYTES);
    talk.stage_first(11, &unfinished, 3);
    let table = talk.table.clone();
    drop(talk);
    let mut node = SteppedNode::start(&options(Some(&disk.crash(rng.next_u64()))));
    node.rest(Duration::from_millis(1));
    let mut talk = Talk { node, table, number: 0 };
    for key in 0..12 {
        assert!(talk.get(key).as_ref() == model.get(&key), "key {key}");
    }
    let live_bytes: u64 = model.values().map(|value| (32 + value.len() as u64).next_multiple_of(64)).sum();
    assert_eq!(talk.live_bytes(), live_bytes, "each pair's block, and none besides");
}

#[test]
fn what_was_acknowledged_comes_back() {
    long_values_come_back();
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn a_value_that_outlives_its_client_is_found() {
        assert_found(&farsight_node::injected::STAGED_VALUE_LEAKED, values_of_those_who_end_are_given_back);
    }

    #[test]
    fn a_piece_in_another_place_is_found() {
        assert_found(&farsight_layout::injected::PIECE_MISPLACED, long_values_come_back);
    }
}
