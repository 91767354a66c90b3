//! A server under any sequence of frames: each gets one well-formed reply, and what is stored is at every
//! moment what a `BTreeMap` makes of the writes that were answered.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, LeafNumber};
use farsight_index::EngineKind;
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_model::{TopKind, TrainOptions};
use farsight_node::{Background, NodeOptions, NodeState, Worker};
use farsight_protocol::{
    ControlRequest, Direction, KeyKind, OPERATIONS_MAX, PoolPlace, Reply, Request, SubModelsWanted,
    TableDefinition, TableId, TableLayout, WriteEntries, WriteEntry, WriteOperation,
};

use super::leaf::VALUE_SIZES;
use super::local_host::{LocalHost, MESSAGE_BYTES_MAX};
use super::request;
use super::source::Source;

mod twin;

use twin::Twin;

/// Room for a few dozen leaves, so that regions fill up.
const TABLE_BYTES: u64 = 32 << 10;
/// Frames of one run.
const STEPS_MAX: usize = 48;
const TABLE: TableId = TableId(0);

struct Stepped {
    host: Arc<LocalHost>,
    state: Arc<NodeState>,
    worker: Worker,
    background: Background,
    now: MonotonicNs,
}

impl Stepped {
    fn new() -> Self {
        let host = Arc::new(LocalHost::default());
        let training = TrainOptions { top: TopKind::Radix, target_leaves_per_sub_model: 3 };
        let options = NodeOptions { table_memory_bytes: TABLE_BYTES, training, ..NodeOptions::default() };
        let state = NodeState::new(vec![host.clone()], &options, MonotonicNs(0)).expect("a server");
        let worker = Worker::open(&state, 0, "worker").expect("a port");
        let background = Background::new(Arc::clone(&state));
        Self { host, state, worker, background, now: MonotonicNs(0) }
    }

    fn call(&mut self, client: ClientId, frame: &[u8]) -> Vec<u8> {
        self.host.send(client, frame);
        self.now = self.now.plus(Duration::from_millis(2));
        assert_eq!(self.worker.step(self.now, 1), 1, "the request is served");
        assert_eq!(self.state.failure(), None, "the server met a bug");
        self.host.receive()
    }
}

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let value_bytes = VALUE_SIZES[source.below(8)];
    let mut server = Stepped::new();
    let mut frame = Vec::new();
    let key_kind = KeyKind::U64;
    let lines = Geometry::new(value_bytes).expect("a size of the format").leaf_lines();
    let layout = TableLayout {
        definition: TableDefinition::new("t", key_kind, value_bytes as u16),
        engine: EngineKind::XSTORE.table(&[], 1),
        block_lines: lines as u16,
        format_version: FORMAT_VERSION,
    };
    let place = PoolPlace { epochs: vec![server.state.epoch().0], index: 0 };
    Request::control(&mut frame, &ControlRequest::CreateTable { layout, place, id: None });
    let reply = server.call(ClientId(1), &frame);
    Reply::decode(&reply).expect("a reply").expect("a table");

    let mut twin = Twin::new(value_bytes);
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        let client = ClientId(1 + source.below(2) as u64);
        match source.below(10) {
            0 => {
                let length_bytes = source.below(80);
                frame = source.take(length_bytes).to_vec();
            }
            1 => frame = request::recipe(&mut source),
            2 => {
                let budget = 1 + source.below(8);
                server.background.step(server.now, budget);
                continue;
            }
            _ => sensible(&mut source, value_bytes, &mut frame),
        }
        // No fabric brings a longer one, and answers to it may be too long.
        if frame.len() > MESSAGE_BYTES_MAX {
            continue;
        }
        let reply = server.call(client, &frame);
        twin.check(client, &frame, &reply);
    }
    Request::scan(&mut frame, TABLE, Direction::Ascending, 0, 0);
    let reply = server.call(ClientId(1), &frame);
    twin.check(ClientId(1), &frame, &reply);
    let pairs = server.state.stats(server.now).tables[0].part().tree.pairs;
    assert_eq!(pairs, twin.pairs.len() as u64, "pairs that the server counts");
}

/// A request that the table can take.
fn sensible(source: &mut Source<'_>, value_bytes: usize, frame: &mut Vec<u8>) {
    let count_max = if source.byte() == 0xff { OPERATIONS_MAX } else { 40 };
    let count = source.below(count_max);
    match source.below(9) {
        0 => {
            let keys: Vec<u64> = (0..count).map(|_| source.key()).collect();
            Request::get(frame, TABLE, &keys);
        }
        1 => Request::scan(frame, TABLE, Direction::ALL[source.below(2)], source.key(), count as u16),
        2 => {
            let (key, generation) = (source.key(), u64::from(source.byte() % 3));
            Request::lookup(frame, TABLE, key, generation, u32::from(source.byte()));
        }
        3 => Request::top_model(frame, TABLE, u32::from(source.byte() % 4), 0),
        4 => {
            let wanted = SubModelsWanted::ALL[source.below(SubModelsWanted::ALL.len())];
            Request::sub_models(frame, TABLE, source.key(), wanted, 1);
        }
        5 => {
            let mut keys: Vec<u64> = (0..count).map(|_| source.key()).collect();
            if source.byte() < 0xf0 {
                keys.sort_unstable();
                keys.dedup();
            }
            let (last, piece) = (source.below(2) == 1, source.below(3) as u32);
            Request::begin_bulk_load(frame, TABLE, last, piece, keys.len(), value_bytes);
            push(source, frame, keys.into_iter(), value_bytes);
        }
        kind => {
            let operation = WriteOperation::ALL[usize::from(source.byte()) % WriteOperation::ALL.len()];
            Request::begin_write(frame, TABLE, operation, count, value_bytes);
            // Runs of neighbours fill leaves, so that they split.
            let (first, stride) = (source.key(), 1 + source.key() % 5);
            let keys = (0..count as u64).map(|index| match kind {
                6 => first.wrapping_add(index.wrapping_mul(stride)),
                7 => first.wrapping_sub(index.wrapping_mul(stride)),
                _ => first ^ farsight_base::prng::mix(index) >> 50,
            });
            match operation {
                // Versions that are there, now and then.
                WriteOperation::CompareAndSet | WriteOperation::RemoveIf => {
                    let (hint, value_bytes) =
                        (LeafNumber(source.half() % 128), operation.operand_bytes(value_bytes));
                    for key in keys {
                        let mut operand = source.value(value_bytes);
                        operand[..8].copy_from_slice(&u64::from(source.byte() / 4).to_le_bytes());
                        WriteEntries::push(frame, WriteEntry { key, hint, value: &operand });
                    }
                }
                _ => push(source, frame, keys, operation.operand_bytes(value_bytes)),
            }
        }
    }
}

fn push(source: &mut Source<'_>, frame: &mut Vec<u8>, keys: impl Iterator<Item = u64>, value_bytes: usize) {
    let hint = LeafNumber(source.half() % 128);
    for key in keys {
        WriteEntries::push(frame, WriteEntry { key, hint, value: &source.value(value_bytes) });
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seed = |shape: u8| {
        let steps = (0..60_u8).flat_map(|step| {
            let kind = if step % 5 == 0 { 2 } else { 3 + step % 7 };
            [
                step,
                kind,
                39,
                step * 3,
                step % 9,
                step.wrapping_mul(shape),
                0xfc,
                shape,
                step,
                0,
                0,
                0,
                0,
                0,
                0,
            ]
        });
        std::iter::once(shape).chain(steps).collect()
    };
    // Swaps in a message longer than any.
    let too_long = vec![
        0x16, 0x7a, 0x03, 0xba, 0xb9, 0xa9, 0x3e, 0x06, 0x9b, 0x5e, 0xcc, 0x39, 0xf1, 0x99, 0x11, 0xae, 0x82,
        0x63, 0x26, 0x3b, 0x67, 0x6e, 0xb3, 0xf7, 0xb2, 0x01, 0x58, 0xa2, 0x3a, 0x54, 0xca, 0x23, 0xb8, 0x26,
        0x66, 0x9a, 0x09, 0xfa, 0x63, 0xe0, 0xff, 0x31, 0x16, 0xb2, 0x59, 0x8d, 0xfb, 0x55, 0x57, 0x94, 0x1c,
        0xb7, 0xfd, 0x79, 0x28, 0x79, 0x0e, 0xc2, 0xe0, 0x5e, 0x96, 0x6d, 0x0d, 0x62, 0x62, 0x38, 0xe7, 0x39,
    ];
    (0..12).map(seed).chain([too_long]).collect()
}
