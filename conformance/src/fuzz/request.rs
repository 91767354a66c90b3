//! Requests: a frame that decodes is one that the encoder writes, and what was encoded comes back.

use farsight_base::LeafNumber;
use farsight_index::EngineKind;
use farsight_layout::pool::LockWord;
use farsight_protocol::{
    Ack, Blocks, CallId, Claim, ComputeNode, ControlRequest, DelegatedEntries, Direction,
    EXPECTED_VERSION_BYTES, HEADER_BYTES, KeyKind, LockSeen, LostNodes, OPERATIONS_MAX, PoolAddresses,
    PoolPlace, Request, Space, StagedWrite, SubModelsWanted, TableDefinition, TableEngine, TableId,
    TableLayout, ValueEntries, ValueKind, ValuePiece, WriteEntries, WriteEntry, WriteOperation,
};

use super::source::Source;

const KEY_KINDS: [KeyKind; 4] = [KeyKind::U64, KeyKind::I64, KeyKind::F64, KeyKind::Bytes8];

pub(super) fn run(data: &[u8]) {
    match CallId::open(data) {
        Ok((Some(id), request)) => {
            let mut again = request.to_vec();
            id.enclose(&mut again);
            assert_eq!(again, data, "{id:?}");
            as_it_stands(request);
        }
        Ok((None, request)) => as_it_stands(request),
        Err(_) => assert!(Request::decode(data).is_err(), "an envelope is no request"),
    }
    let frame = recipe(&mut Source::new(data));
    let decoded = Request::decode(&frame).expect("an encoded request decodes");
    assert_eq!(encode(&decoded), frame, "{decoded:?}");
}

/// What decodes encodes to the same bytes, but for padding and the unused half of hints.
fn as_it_stands(data: &[u8]) {
    let Ok(request) = Request::decode(data) else { return };
    let again = encode(&request);
    assert_eq!((again.len(), &again[..HEADER_BYTES]), (data.len(), &data[..HEADER_BYTES]), "{request:?}");
    if matches!(
        request,
        Request::Control(_)
            | Request::Get { .. }
            | Request::GetValues { .. }
            | Request::Lookup { .. }
            | Request::WriteStaged { .. }
            | Request::FetchValue { .. }
            | Request::LetGo { .. }
    ) {
        assert_eq!(again, data, "{request:?}");
    }
    let twice = Request::decode(&again).expect("what was encoded decodes");
    assert_eq!(encode(&twice), again, "{request:?}");
    if let Request::Control(body) = request
        && let Ok(control) = ControlRequest::decode(body)
    {
        let mut frame = Vec::new();
        Request::control(&mut frame, &control);
        assert_eq!(ControlRequest::decode(&frame[HEADER_BYTES..]).as_ref(), Ok(&control));
        // Numbers may be written longer than they need be; nothing may follow.
        assert!(frame.len() <= data.len(), "{control:?} from {} B", data.len());
        assert!(ControlRequest::decode(&[body, &[0]].concat()).is_err(), "{control:?} and a byte more");
    }
}

/// The frame of a request, by its encoder.
pub(super) fn encode(request: &Request<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    match *request {
        Request::Control(body) => {
            frame.resize(HEADER_BYTES, 0);
            frame[0] = 1;
            frame.extend_from_slice(body);
        }
        Request::Get { table, keys } => Request::get(&mut frame, table, &keys.iter().collect::<Vec<_>>()),
        Request::Scan { table, direction, from, limit } => {
            Request::scan(&mut frame, table, direction, from, limit);
        }
        Request::Write { table, operation, entries } => {
            // The size of the table's values, of which the operand's follows.
            let value_bytes = match operation {
                WriteOperation::CompareAndSet => entries.value_bytes() - EXPECTED_VERSION_BYTES,
                WriteOperation::CompareAndSetValue => entries.value_bytes() / 2,
                _ => entries.value_bytes(),
            };
            Request::begin_write(&mut frame, table, operation, entries.len(), value_bytes);
            push_all(&mut frame, entries);
        }
        Request::Lookup { table, key, generation, known } => {
            Request::lookup(&mut frame, table, key, generation, known);
        }
        Request::TopModel { table, first_word, generation } => {
            Request::top_model(&mut frame, table, first_word, generation);
        }
        Request::SubModels { table, key, wanted, generation } => {
            Request::sub_models(&mut frame, table, key, wanted, generation);
        }
        Request::BulkLoad { table, last, piece, entries } => {
            let piece = u32::try_from(piece).expect("a piece's number has 32 bits");
            Request::begin_bulk_load(&mut frame, table, last, piece, entries.len(), entries.value_bytes());
            push_all(&mut frame, entries);
        }
        Request::GetValues { table, keys } => {
            Request::get_values(&mut frame, table, &keys.iter().collect::<Vec<_>>());
        }
        Request::ScanValues { table, direction, from, limit } => {
            Request::scan_values(&mut frame, table, direction, from, limit);
        }
        Request::WriteValues { table, operation, entries } => {
            Request::begin_write_values(&mut frame, table, operation, entries.len());
            push_values(&mut frame, entries);
        }
        Request::Delegate { .. } | Request::Find { .. } => encode_for_others(&mut frame, request),
        Request::StageValue { table, piece } => {
            check_piece(piece);
            Request::stage_value(&mut frame, table, piece);
        }
        Request::WriteStaged { table, write } => Request::write_staged(&mut frame, table, write),
        Request::FetchValue { table, number, key, offset } => {
            Request::fetch_value(&mut frame, table, number, key, offset);
        }
        Request::LetGo { table, number } => Request::let_go(&mut frame, table, number),
        Request::LoadValues { table, last, piece, entries } => {
            let piece = u32::try_from(piece).expect("a piece's number has 32 bits");
            Request::begin_load_values(&mut frame, table, last, piece, entries.len());
            push_values(&mut frame, entries);
        }
        Request::LoadLong { table, part } => {
            check_piece(part);
            Request::load_long(&mut frame, table, part);
        }
    }
    frame
}

fn encode_for_others(frame: &mut Vec<u8>, request: &Request<'_>) {
    let entries = match *request {
        Request::Delegate { table, epoch, until, operation, entries } => {
            Request::begin_delegate(frame, (epoch, table), until, operation, entries.len());
            entries
        }
        Request::Find { table, epoch, wanted, entries } => {
            Request::begin_find(frame, (epoch, table), wanted, entries.len());
            entries
        }
        _ => unreachable!("a memory node's requests are not for others"),
    };
    entries.iter().for_each(|entry| DelegatedEntries::push(frame, entry));
}

fn push_values(frame: &mut Vec<u8>, entries: ValueEntries<'_>) {
    for entry in entries.iter() {
        ValueEntries::push(frame, entry);
    }
    assert_eq!(entries.iter().count(), entries.len(), "entries announced, and there");
}

fn check_piece(piece: ValuePiece<'_>) {
    let end = piece.offset as usize + piece.piece.len();
    assert!(!piece.piece.is_empty() && end <= piece.value_bytes as usize, "{end} of {piece:?}");
    assert!(piece.piece.len().is_multiple_of(8) || piece.is_last());
}

fn push_all(frame: &mut Vec<u8>, entries: WriteEntries<'_>) {
    let mut count = 0;
    for entry in entries.iter() {
        WriteEntries::push(frame, entry);
        count += 1;
    }
    assert_eq!((count, entries.is_empty()), (entries.len(), count == 0), "entries announced, and there");
}

/// A well-formed frame.
pub(super) fn recipe(source: &mut Source<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    match source.below(9) {
        0 | 1 => Request::control(&mut frame, &control(source)),
        _ => return of_a_table(TableId(source.below(1 << 16) as u32), source),
    }
    frame
}

/// A well-formed frame of an operation on that table.
pub(super) fn of_a_table(table: TableId, source: &mut Source<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    match source.below(12) {
        0 => {
            let count = source.below(OPERATIONS_MAX + 1);
            let keys: Vec<u64> = (0..count).map(|_| source.key()).collect();
            Request::get(&mut frame, table, &keys);
        }
        1 => Request::scan(
            &mut frame,
            table,
            Direction::ALL[source.below(2)],
            source.key(),
            source.half() as u16,
        ),
        2 => {
            let operation = WriteOperation::ALL[source.below(WriteOperation::ALL.len())];
            let (count, value_bytes) = (source.below(OPERATIONS_MAX + 1), source.below(300));
            Request::begin_write(&mut frame, table, operation, count, value_bytes);
            push_recipe(&mut frame, source, count, operation.operand_bytes(value_bytes));
        }
        3 => Request::lookup(&mut frame, table, source.key(), source.word(), source.half()),
        4 => Request::top_model(&mut frame, table, source.half(), source.word()),
        5 => {
            let wanted = SubModelsWanted::ALL[source.below(SubModelsWanted::ALL.len())];
            Request::sub_models(&mut frame, table, source.key(), wanted, source.word());
        }
        6 => {
            let keys: Vec<u64> = (0..source.below(300)).map(|_| source.key()).collect();
            Request::get_values(&mut frame, table, &keys);
        }
        7 => {
            let (direction, from) = (Direction::ALL[source.below(2)], source.key());
            Request::scan_values(&mut frame, table, direction, from, source.half() as u16);
        }
        8 => {
            let (operation, count) = (WriteOperation::ALL[source.below(3)], source.below(100));
            Request::begin_write_values(&mut frame, table, operation, count);
            push_values_recipe(&mut frame, source, count);
        }
        9 => in_pieces(&mut frame, table, source),
        10 => {
            let (last, piece, count) = (source.below(2) == 1, source.half(), source.below(100));
            Request::begin_load_values(&mut frame, table, last, piece, count);
            push_values_recipe(&mut frame, source, count);
        }
        _ => {
            let (last, piece) = (source.below(2) == 1, source.half());
            let (count, value_bytes) = (source.below(300), source.below(300));
            Request::begin_bulk_load(&mut frame, table, last, piece, count, value_bytes);
            push_recipe(&mut frame, source, count, value_bytes);
        }
    }
    frame
}

/// A well-formed frame about a value in pieces.
fn in_pieces(frame: &mut Vec<u8>, table: TableId, source: &mut Source<'_>) {
    match source.below(4) {
        0 => {
            let (number, key, before, whole) =
                (source.key(), source.key(), source.below(1 << 20), 1 + source.below(1 << 10));
            // The last piece, or one with some bytes behind it.
            let (piece_bytes, behind) =
                if source.below(2) == 0 { (whole, 0) } else { (whole.next_multiple_of(8), source.below(9)) };
            let [value_bytes, offset] = [before + piece_bytes + behind, before].map(|bytes| bytes as u32);
            let piece = &source.value(piece_bytes)[..];
            let piece = ValuePiece { number, key, value_bytes, offset, piece };
            if number.is_multiple_of(2) {
                Request::stage_value(frame, table, piece);
            } else {
                Request::load_long(frame, table, piece);
            }
        }
        1 => {
            let able: Vec<_> =
                WriteOperation::ALL.into_iter().filter(|kind| StagedWrite::has(*kind)).collect();
            let operation = able[source.below(able.len())];
            let (number, key, hint) = (source.key(), source.key(), LeafNumber(source.half()));
            let expected_version = if operation == WriteOperation::CompareAndSet { source.key() } else { 0 };
            let checksum = source.half();
            let write = StagedWrite { number, operation, key, hint, checksum, expected_version };
            Request::write_staged(frame, table, write);
        }
        2 => Request::let_go(frame, table, source.key()),
        _ => Request::fetch_value(frame, table, source.key(), source.key(), source.word()),
    }
}

fn push_values_recipe(frame: &mut Vec<u8>, source: &mut Source<'_>, count: usize) {
    for _ in 0..count {
        let (key, hint, value_bytes) = (source.key(), LeafNumber(source.half()), source.below(600));
        ValueEntries::push(frame, WriteEntry { key, hint, value: &source.value(value_bytes) });
    }
}

fn push_recipe(frame: &mut Vec<u8>, source: &mut Source<'_>, count: usize, value_bytes: usize) {
    for _ in 0..count {
        let (key, hint) = (source.key(), LeafNumber(source.half()));
        WriteEntries::push(frame, WriteEntry { key, hint, value: &source.value(value_bytes) });
    }
}

fn definition(source: &mut Source<'_>) -> TableDefinition {
    let key_kind = KEY_KINDS[source.below(4)];
    let values = match source.below(5) {
        0 => ValueKind::blocks(source.half()),
        1 => ValueKind::blocks(source.half()).expiring(source.key()),
        _ => ValueKind::Fixed(source.below(1 << 16) as u16),
    };
    let length_bytes = source.below(40);
    let value_type = String::from_utf8_lossy(source.take(length_bytes)).into_owned();
    let name = String::from_utf8_lossy(source.rest()).into_owned();
    let memory_bytes = length_bytes.is_multiple_of(3).then_some(u64::MAX >> length_bytes);
    let ack = [None, Some(Ack::Durable), Some(Ack::Memory)][length_bytes % 3];
    let replicas = length_bytes.is_multiple_of(4).then_some(length_bytes as u8);
    TableDefinition { name, key_kind, values, value_type, memory_bytes, ack, replicas }
}

fn strange_name(source: &mut Source<'_>) -> String {
    format!("strange{}", source.byte())
}

/// Addresses of a pool's nodes, within their bounds or not.
fn addresses(source: &mut Source<'_>) -> PoolAddresses {
    let length_bytes = [1, 5, 256, 257][source.below(4)];
    let of_node = |source: &mut Source<'_>| vec!["a".repeat(length_bytes); source.below(6)];
    PoolAddresses((0..source.below(18)).map(|_| of_node(source)).collect())
}

/// Kinds of control requests that [`control`] makes.
pub(super) const CONTROL_KINDS: usize = 25;

/// A control request, within its bounds or not.
pub(super) fn control(source: &mut Source<'_>) -> ControlRequest {
    let (kind, table) = (source.below(CONTROL_KINDS), TableId(source.below(3) as u32));
    let space = [Space::Leaves, Space::Leaves, Space::Meta, Space::Blocks][source.below(4)];
    let compute_node = ComputeNode(source.below(5) as u32);
    let coordinator = source.below(3) as u64;
    match kind {
        0 => ControlRequest::Register { lost: LostNodes::default() },
        1 => ControlRequest::Announce { coordinator, compute_node, lost: LostNodes::default() },
        2 => {
            let epochs = (0..source.below(18)).map(|_| source.below(3) as u64).collect();
            let place = PoolPlace { epochs, index: source.byte() % 20 };
            let id = (source.below(2) == 1).then_some(table);
            let (block_lines, format_version) = (1 + source.below(40) as u16, source.below(3) as u32);
            let engine = match source.below(3) {
                0 => TableEngine {
                    name: "xstore-d".to_owned(),
                    boundaries: (0..source.below(4)).map(|_| source.key()).collect(),
                },
                _ => EngineKind::ROLEX.table(&[], 1),
            };
            let definition = definition(source);
            let layout = TableLayout { definition, engine, block_lines, format_version };
            ControlRequest::CreateTable { layout, place, id }
        }
        3 => ControlRequest::OpenTable(definition(source).name),
        4 => ControlRequest::ListTables { from: table },
        12 => ControlRequest::TableStats { from: table },
        13 => ControlRequest::PendingTraining,
        // Of tables that are none: a twin knows of no others.
        16 => ControlRequest::DropTable(strange_name(source)),
        17 => ControlRequest::RenameTable { from: strange_name(source), to: strange_name(source) },
        18 => ControlRequest::SwapTables { first: strange_name(source), second: strange_name(source) },
        19 => ControlRequest::NameChanges,
        20 => ControlRequest::DroppedTables,
        21 => {
            let count = source.below(4) + 1021 * source.below(2);
            ControlRequest::ForgetTables((0..count).map(|_| TableId(3 + u32::from(source.byte()))).collect())
        }
        22 => ControlRequest::Time,
        23 => ControlRequest::RegisterAgain { lost: LostNodes::default() },
        24 => ControlRequest::AnnounceAgain { coordinator, compute_node, lost: LostNodes::default() },
        5 => ControlRequest::Allocate { table, space, count: source.below(2000) as u32 },
        6 => {
            let run = |source: &mut Source<'_>| Blocks {
                first: source.below(300) as u32,
                count: source.below(20) as u32,
            };
            let count = source.below(6);
            let blocks = (0..count).map(|_| run(source)).collect();
            // Most blocks are allocated, and the first few calls give the first few claims.
            let claim = Claim(source.below(2) as u64 * source.below(8) as u64);
            match source.below(3) {
                0 => ControlRequest::Adopt { table, space, known: claim, blocks },
                1 => ControlRequest::Pin { table, space, claim, blocks },
                _ => ControlRequest::Free { table, space, claim, blocks },
            }
        }
        7 => ControlRequest::TakeOrphans { table, space, of: compute_node },
        8 => ControlRequest::Hello,
        9 => {
            let block = source.below(300) as u32;
            let word = LockWord::of(source.below(5) as u32, 1 + source.below(3) as u64).0;
            let seen = (source.below(2) == 1).then_some(LockSeen { table, block, word });
            ControlRequest::Fence { coordinator, compute_node, seen }
        }
        10 => ControlRequest::Stats,
        14 => ControlRequest::Map,
        15 => ControlRequest::TellAddresses { term: source.below(2) as u32, addresses: addresses(source) },
        _ => ControlRequest::Ended { table, space },
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let of_kinds = (0..9_u8)
        .flat_map(|kind| (0..4).map(move |choice| [kind, 1, 0, choice, 3, 0, 24, 0, 9, 8, 7, 6, 5, 4, 3, 2]));
    let controls =
        (0..CONTROL_KINDS as u8).map(|control| [0, control, 1, 0, 3, 1, 2, 1, 3, 0, 9, 8, 7, 6, 5, 4]);
    of_kinds
        .chain(controls)
        .flat_map(|recipe_bytes| [recipe(&mut Source::new(&recipe_bytes)), recipe_bytes.to_vec()])
        .collect()
}
