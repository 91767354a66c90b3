//! Frames come back as they were sent, and no bytes, however broken, do worse than an error.

use farsight_base::prng::SplitMix64;
use farsight_base::{Epoch, LeafNumber};
use farsight_layout::SubModelRecord;
use farsight_protocol::{
    BRANCH_CHILDREN_MAX, ControlRequest, DelegatedEntries, DelegatedEntry, Direction, ErrorCode, FindWanted,
    KeyKind, ModelReader, OPERATIONS_MAX, PairsReader, PoolPlace, Reply, ReplyWriter, Request, SentModel,
    SentOutcome, ServerError, SubModelsWanted, TableDefinition, TableEngine, TableId, TableLayout,
    VALUE_TYPE_BYTES_MAX, ValueEntries, ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

const TABLE: TableId = TableId(7);

fn write_frame(value: &[u8], count: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    Request::begin_write(&mut frame, TABLE, WriteOperation::Put, count, value.len());
    for key in 0..count as u64 {
        WriteEntries::push(&mut frame, WriteEntry { key, hint: LeafNumber(key as u32 * 3), value });
    }
    frame
}

#[test]
fn writes_come_back_for_every_value_size() {
    for value_bytes in 8..=256 {
        let value: Vec<u8> = (0..value_bytes).map(|byte| byte as u8).collect();
        let frame = write_frame(&value, 5);
        let Request::Write { table, operation, entries } = Request::decode(&frame).unwrap() else { panic!() };
        assert_eq!((table, operation, entries.len()), (TABLE, WriteOperation::Put, 5));
        for (key, entry) in entries.iter().enumerate() {
            let expected = WriteEntry { key: key as u64, hint: LeafNumber(key as u32 * 3), value: &value };
            assert_eq!(entry, expected);
        }
    }
}

/// Values of many lengths, none among them.
fn long_values() -> Vec<Vec<u8>> {
    [0, 1, 7, 8, 9, 64, 300, 5_000].into_iter().map(|length| vec![length as u8 + 1; length]).collect()
}

#[test]
fn values_of_any_length_come_back() {
    let values = long_values();
    let entry = |(key, value)| WriteEntry { key, hint: LeafNumber(u32::MAX - key as u32), value };
    let entries: Vec<_> = (0..).zip(values.iter().map(Vec::as_slice)).map(entry).collect();
    let mut frame = Vec::new();
    Request::begin_write_values(&mut frame, TABLE, WriteOperation::Update, entries.len());
    for entry in &entries {
        ValueEntries::push(&mut frame, *entry);
    }
    let Request::WriteValues { table: TABLE, operation: WriteOperation::Update, entries: found } =
        Request::decode(&frame).unwrap()
    else {
        panic!()
    };
    assert!(found.iter().eq(entries.iter().copied()) && found.len() == entries.len());
    for length in 0..frame.len() {
        assert!(Request::decode(&frame[..length]).is_err(), "a write cut to {length} B");
    }
    frame.extend_from_slice(&[0; 8]);
    let error = Request::decode(&frame).unwrap_err().to_string();
    assert!(error.contains("8 B more"), "{error}");
    // A remove has no values.
    frame[1] = WriteOperation::Remove as u8;
    assert!(Request::decode(&frame).is_err_and(|error| error.to_string().contains("write of values")));

    let mut writer = ReplyWriter::new(&mut frame);
    for entry in &entries {
        writer.push_long_pair(entry.key, entry.key + 1, entry.value);
    }
    let whole = Reply::decode(&frame).unwrap().unwrap().words().unwrap();
    let mut pairs = PairsReader::of_any_length(whole);
    for entry in &entries {
        let pair = pairs.pair().unwrap().unwrap();
        assert_eq!((pair.key, pair.version, pair.value), (entry.key, entry.key + 1, entry.value));
    }
    assert!(pairs.pair().unwrap().is_none());
    let mut writer = ReplyWriter::new(&mut frame);
    writer.push_words([1, 9, 0]);
    let short = Reply::decode(&frame).unwrap().unwrap().words().unwrap();
    let error = PairsReader::of_any_length(short).value().unwrap_err().to_string();
    assert!(error.contains("up to 8 B") && error.contains("got 9"), "{error}");
}

#[test]
fn reads_of_values_of_any_length_come_back() {
    let mut frame = Vec::new();
    Request::get_values(&mut frame, TABLE, &[5, u64::MAX]);
    let Request::GetValues { keys, table: TABLE } = Request::decode(&frame).unwrap() else { panic!() };
    assert!(keys.iter().eq([5, u64::MAX]));
    Request::scan_values(&mut frame, TABLE, Direction::Descending, 9, 100);
    assert!(matches!(
        Request::decode(&frame).unwrap(),
        Request::ScanValues { direction: Direction::Descending, from: 9, limit: 100, table: TABLE }
    ));
}

#[test]
fn reads_and_model_requests_come_back() {
    let mut frame = Vec::new();
    Request::get(&mut frame, TABLE, &[0, u64::MAX]);
    let Request::Get { keys, .. } = Request::decode(&frame).unwrap() else { panic!() };
    assert!(keys.iter().eq([0, u64::MAX]));
    Request::scan(&mut frame, TABLE, Direction::Descending, 9, 100);
    assert!(matches!(
        Request::decode(&frame).unwrap(),
        Request::Scan { direction: Direction::Descending, from: 9, limit: 100, table: TABLE }
    ));
    Request::lookup(&mut frame, TABLE, 5, 3, 8);
    assert!(matches!(
        Request::decode(&frame).unwrap(),
        Request::Lookup { key: 5, generation: 3, known: 8, .. }
    ));
    for kind in [SubModelsWanted::AllFrom, SubModelsWanted::Path, SubModelsWanted::Neighbours] {
        Request::sub_models(&mut frame, TABLE, u64::MAX, kind, 3);
        let Request::SubModels { key: u64::MAX, wanted, generation: 3, .. } =
            Request::decode(&frame).unwrap()
        else {
            panic!()
        };
        assert_eq!(wanted, kind);
    }
    frame[1] = 3;
    assert!(Request::decode(&frame).is_err_and(|error| error.to_string().contains("which sub-models")));
    Request::top_model(&mut frame, TABLE, 12, 3);
    assert!(matches!(Request::decode(&frame).unwrap(), Request::TopModel { first_word: 12, .. }));
    let layout = TableLayout {
        definition: TableDefinition {
            value_type: "<f8".into(),
            ..TableDefinition::new("t", KeyKind::I64, 8)
        },
        engine: TableEngine { name: "xstore-d".to_owned(), boundaries: vec![7] },
        block_lines: 7,
        format_version: 10,
    };
    let place = PoolPlace { epochs: vec![1, 2], index: 0 };
    let wanted = ControlRequest::CreateTable { layout, place, id: None };
    Request::control(&mut frame, &wanted);
    let Request::Control(body) = Request::decode(&frame).unwrap() else { panic!() };
    assert_eq!(ControlRequest::decode(body).unwrap(), wanted);
}

#[test]
fn delegated_writes_of_any_length_come_back_and_cut_ones_are_refused() {
    let pairs: [(&[u8], &[u8]); 4] =
        [(b"", b"v"), (b"a key", b""), (&[7; 300], &[9; 1000]), (b"8 bytes.", b"x")];
    let mut frame = Vec::new();
    Request::begin_delegate(&mut frame, (Epoch(5), TABLE), 77, WriteOperation::Swap, pairs.len());
    for (key, operand) in pairs {
        let before = frame.len();
        DelegatedEntries::push(&mut frame, DelegatedEntry { key, operand });
        assert_eq!(frame.len() - before, DelegatedEntries::entry_bytes(key.len(), operand.len()));
    }
    let Request::Delegate { table, epoch: Epoch(5), until: 77, operation, entries } =
        Request::decode(&frame).unwrap()
    else {
        panic!()
    };
    assert_eq!((table, operation), (TABLE, WriteOperation::Swap));
    assert!(entries.iter().map(|entry| (entry.key, entry.operand)).eq(pairs) && entries.len() == pairs.len());
    for bytes in 0..frame.len() {
        assert!(Request::decode(&frame[..bytes]).is_err(), "{bytes} of {} B", frame.len());
    }
    frame.extend([0; 8]);
    let error = Request::decode(&frame).unwrap_err().to_string();
    assert!(error.contains("a delegated write's entries") && error.contains("8 B more"), "{error}");
}

#[test]
fn keys_that_are_looked_for_come_back_and_have_no_operands() {
    let keys: [&[u8]; 3] = [b"", b"a key", &[7; 300]];
    for wanted in [FindWanted::Addresses, FindWanted::Values] {
        let mut frame = Vec::new();
        Request::begin_find(&mut frame, (Epoch(5), TABLE), wanted, keys.len());
        for key in keys {
            DelegatedEntries::push(&mut frame, DelegatedEntry { key, operand: b"" });
        }
        let Request::Find { table: TABLE, epoch: Epoch(5), wanted: got, entries } =
            Request::decode(&frame).unwrap()
        else {
            panic!()
        };
        assert!(got == wanted && entries.iter().map(|entry| entry.key).eq(keys));
        for bytes in 0..frame.len() {
            assert!(Request::decode(&frame[..bytes]).is_err(), "{bytes} of {} B", frame.len());
        }
        Request::begin_find(&mut frame, (Epoch(5), TABLE), wanted, 1);
        DelegatedEntries::push(&mut frame, DelegatedEntry { key: b"a key", operand: b"more" });
        let error = Request::decode(&frame).unwrap_err().to_string();
        assert!(error.contains("an operand") && error.contains("4 B"), "{error}");
    }
}

#[test]
fn names_in_definitions_are_short_and_visible() {
    let defined = |value_type: &str| TableDefinition {
        value_type: value_type.to_owned(),
        ..TableDefinition::new("t", KeyKind::U64, 8)
    };
    for right in ["", "<f8", "|S256", "struct-0123456789abcdef", &"t".repeat(VALUE_TYPE_BYTES_MAX)] {
        defined(right).check_names().unwrap();
    }
    for wrong in [" ", "<f8\n", "\u{1b}[2J", "größe", &"t".repeat(VALUE_TYPE_BYTES_MAX + 1)] {
        assert_eq!(defined(wrong).check_names().unwrap_err().code, ErrorCode::BadName, "{wrong:?}");
    }
    assert_eq!(
        TableDefinition::new("a b", KeyKind::U64, 8).check_names().unwrap_err().code,
        ErrorCode::BadName
    );
}

#[test]
fn a_table_is_wanted_by_who_names_its_type_or_none() {
    let plain = TableDefinition::new("t", KeyKind::U64, 8);
    let typed = |value_type: &str| TableDefinition { value_type: value_type.into(), ..plain.clone() };
    assert!(
        plain.is_wanted(&plain) && typed("<f8").is_wanted(&typed("<f8")) && typed("<f8").is_wanted(&plain)
    );
    assert!(!plain.is_wanted(&typed("<f8")) && !typed("<f8").is_wanted(&typed("<i8")));
    assert!(!plain.is_wanted(&TableDefinition { key_kind: KeyKind::I64, ..plain.clone() }));
    assert!(!plain.is_wanted(&TableDefinition { values: ValueKind::BLOCKS, ..plain.clone() }));
    assert!(!plain.is_wanted(&TableDefinition { name: "u".into(), ..plain.clone() }));
    assert_eq!(plain.to_string(), "u64 keys and values of 8 B");
    let blocks = TableDefinition { values: ValueKind::BLOCKS, ..plain.clone() };
    assert_eq!(blocks.to_string(), "u64 keys and values of up to 16777216 B");
    assert_eq!(typed("<f8").to_string(), "u64 keys and values of 8 B of type \"<f8\"");
}

#[test]
fn words_are_strings_for_people_and_numbers_in_frames() {
    let place = PoolPlace { epochs: vec![u64::MAX, 1], index: 1 };
    let json = serde_json::to_string(&place).unwrap();
    assert_eq!(json, "{\"epochs\":[\"18446744073709551615\",\"1\"],\"index\":1}");
    assert_eq!(serde_json::from_str::<PoolPlace>(&json).unwrap(), place);
    assert!(serde_json::from_str::<PoolPlace>("{\"epochs\":[1],\"index\":0}").is_err());
    let engine = TableEngine { name: "xstore-d".to_owned(), boundaries: vec![u64::MAX] };
    assert_eq!(
        serde_json::to_string(&engine).unwrap(),
        "{\"name\":\"xstore-d\",\"boundaries\":[\"18446744073709551615\"]}"
    );
    let mut frame = Vec::new();
    ReplyWriter::new(&mut frame).push_control(&place);
    let reply = Reply::decode(&frame).unwrap().unwrap();
    assert_eq!(reply.control::<PoolPlace>().unwrap(), place);
    // A count, ten bytes and one of words, an index.
    assert_eq!(reply.body.len(), 1 + 10 + 1 + 1);
}

#[test]
fn replies_come_back() {
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(2, 99);
    writer.push_pair(1, 10, &[1; 9]);
    writer.push_pair(2, 20, &[2; 9]);
    let reply = Reply::decode(&frame).unwrap().unwrap();
    assert_eq!((reply.count, reply.argument), (2, 99));
    let mut pairs = PairsReader::new(reply.words().unwrap(), 9);
    let first = pairs.pair().unwrap().unwrap();
    assert_eq!((first.key, first.version, first.value), (1, 10, [1; 9].as_slice()));
    assert_eq!(pairs.pair().unwrap().unwrap().version, 20);
    assert!(pairs.pair().unwrap().is_none());

    let record = SubModelRecord { base: 4, leaf_count: 2, hint_shift: 3, ..SubModelRecord::default() };
    let mut writer = ReplyWriter::new(&mut frame);
    writer.push_sub_model(6, &record, &[70, 71]);
    let reply = Reply::decode(&frame).unwrap().unwrap();
    let Some(SentModel::SubModel(sent)) = ModelReader::new(reply.words().unwrap()).read().unwrap() else {
        panic!()
    };
    assert_eq!((sent.number, sent.record), (6, record));
    assert!(sent.entries.iter().eq([70, 71]));
}

#[test]
fn branches_come_back_and_too_many_children_are_refused() {
    let mut frame = Vec::new();
    for count in [1, 2, 3, BRANCH_CHILDREN_MAX] {
        let children: Vec<u32> = (0..count as u32).map(|child| child * 7 + 1).collect();
        let boundaries: Vec<u64> = (1..count as u64).map(|boundary| boundary << 50).collect();
        let mut writer = ReplyWriter::new(&mut frame);
        writer.push_branch(u32::MAX, &boundaries, &children);
        writer.push_words([9]);
        let mut words = Reply::decode(&frame).unwrap().unwrap().words().unwrap();
        assert_eq!(words.take_last("the end").unwrap(), 9);
        let mut reader = ModelReader::new(words);
        let Some(SentModel::Branch(sent)) = reader.read().unwrap() else { panic!() };
        assert_eq!(sent.number, u32::MAX);
        assert!(sent.boundaries.iter().eq(boundaries) && sent.children().eq(children));
        assert!(reader.read().unwrap().is_none());
    }
    let mut writer = ReplyWriter::new(&mut frame);
    writer.push_words([(BRANCH_CHILDREN_MAX as u64 + 1) << 32]);
    writer.push_words([0; 200]);
    let words = Reply::decode(&frame).unwrap().unwrap().words().unwrap();
    let error = ModelReader::new(words).read().unwrap_err().to_string();
    assert!(error.contains("a branch's children") && error.contains("1 to 64"), "{error}");
}

#[test]
fn refusals_carry_code_and_words() {
    let mut frame = Vec::new();
    let error = ServerError::new(ErrorCode::UnknownTable, "no table number 9; the server has 2");
    ReplyWriter::new(&mut frame).refuse(&error);
    assert_eq!(Reply::decode(&frame).unwrap().unwrap_err(), error);
}

#[test]
fn outcomes_of_another_count_are_an_error() {
    let mut frame = Vec::new();
    ReplyWriter::new(&mut frame)
        .push_outcome(SentOutcome { outcome: WriteOutcome::Absent, is_hint_wrong: true });
    let reply = Reply::decode(&frame).unwrap().unwrap();
    assert!(reply.outcomes(2).is_err());
    let sent = reply.outcomes(1).unwrap().next().unwrap().unwrap();
    assert_eq!((sent.outcome, sent.is_hint_wrong), (WriteOutcome::Absent, true));
}

#[test]
fn too_many_operations_are_refused_by_number() {
    let keys = vec![0; OPERATIONS_MAX + 1];
    let mut frame = Vec::new();
    Request::get(&mut frame, TABLE, &keys);
    let error = Request::decode(&frame).unwrap_err();
    assert_eq!(error.to_string(), "a request's count at byte 2: expected at most 1024, got 1025");
}

#[test]
fn broken_frames_are_errors_never_panics() {
    let mut random = SplitMix64::new(11);
    let whole = write_frame(&[9; 24], 6);
    for length in 0..whole.len() {
        assert!(Request::decode(&whole[..length]).is_err(), "a write cut to {length} B");
    }
    for _ in 0..200_000 {
        let mut frame = whole[..random.below(whole.len() as u64 + 1) as usize].to_vec();
        for _ in 0..random.below(4) {
            if !frame.is_empty() {
                let at = random.below(frame.len().min(24) as u64) as usize;
                frame[at] = random.next_u64() as u8;
            }
        }
        match Request::decode(&frame) {
            Ok(Request::Write { entries, .. } | Request::BulkLoad { entries, .. }) => {
                assert_eq!(entries.iter().count(), entries.len());
            }
            Ok(Request::Control(body)) => drop(ControlRequest::decode(body)),
            Ok(_) | Err(_) => {}
        }
        if let Ok(Ok(reply)) = Reply::decode(&frame)
            && let Ok(words) = reply.words()
        {
            let mut sub_models = ModelReader::new(words);
            while let Ok(Some(_)) = sub_models.read() {}
            let mut pairs = PairsReader::new(words, 24);
            while let Ok(Some(_)) = pairs.pair() {}
            let mut pairs = PairsReader::of_any_length(words);
            while let Ok(Some(_)) = pairs.pair() {}
        }
    }
}

#[test]
fn conditional_writes_of_any_length_come_back() {
    let mut frame = Vec::new();
    for operation in WriteOperation::ALL.into_iter().filter(|operation| operation.has_value()) {
        Request::begin_write_values(&mut frame, TABLE, operation, 1);
        ValueEntries::push(&mut frame, WriteEntry { key: 9, hint: LeafNumber::NONE, value: b"operand" });
        let Request::WriteValues { operation: found, entries, .. } = Request::decode(&frame).unwrap() else {
            panic!("{operation:?}")
        };
        assert_eq!((found, entries.iter().next().unwrap().value), (operation, &b"operand"[..]));
    }
}

#[test]
fn values_before_of_any_length_come_back() {
    let values = long_values();
    let sent = |number: usize| {
        let outcome = if number == 3 { WriteOutcome::Inserted(4) } else { WriteOutcome::Replaced(9) };
        SentOutcome { outcome, is_hint_wrong: number.is_multiple_of(2) }
    };
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    for (number, value) in values.iter().enumerate() {
        let before = writer.len();
        let old = (number != 3).then_some(value.as_slice());
        writer.push_exchanged_value(sent(number), old);
        let bytes = ReplyWriter::exchanged_value_bytes(old.map_or(0, <[u8]>::len));
        assert_eq!(writer.len() - before, bytes);
    }
    writer.set(values.len() as u32, 0);
    let collect = |frame: &[u8], sent| -> Result<Vec<(SentOutcome, Vec<u8>)>, String> {
        let reply = Reply::decode(frame).unwrap().unwrap();
        let exchanged = reply.exchanged_values(sent).map_err(|error| error.to_string())?;
        let owned = exchanged.map(|entry| entry.map(|(sent, old)| (sent, old.to_vec())));
        owned.collect::<Result<_, _>>().map_err(|error| error.to_string())
    };
    for more in [0, 5] {
        let found = collect(&frame, values.len() + more).unwrap();
        for (number, (found, value)) in found.iter().zip(&values).enumerate() {
            let expected = if number == 3 { &[][..] } else { value };
            assert_eq!(*found, (sent(number), expected.to_vec()));
        }
        assert_eq!(found.len(), values.len());
    }
    assert!(collect(&frame, values.len() - 1).is_err_and(|error| error.contains("expected 1 to 7, got 8")));
    for cut in 1..frame.len() / 8 {
        let cut = &frame[..(frame.len() / 8 - cut) * 8];
        if cut.len() >= 16 {
            assert!(collect(cut, values.len()).is_err(), "a reply cut to {} B", cut.len());
        }
    }
    frame.extend_from_slice(&[0; 8]);
    assert!(collect(&frame, values.len()).is_err_and(|error| error.contains("8 B more")));
    ReplyWriter::new(&mut frame).set(0, 0);
    assert!(collect(&frame, 3).is_err_and(|error| error.contains("expected 1 to 3, got 0")));
}
