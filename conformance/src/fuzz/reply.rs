//! Replies: every reader of their bodies over any bytes, and what was written comes back.

use farsight_layout::SubModelRecord;
use farsight_protocol::{
    BRANCH_CHILDREN_MAX, ErrorCode, HEADER_BYTES, ModelReader, NodeStats, PairsReader, PoolMap, Reply,
    ReplyWriter, SentModel, SentOutcome, ServerError, TableInfo, WriteOutcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::source::Source;

pub(super) fn run(data: &[u8]) {
    as_it_stands(data);
    recipe(&mut Source::new(data));
}

fn as_it_stands(data: &[u8]) {
    let reply = match Reply::decode(data) {
        Err(_) => return,
        Ok(Err(refusal)) => {
            let mut frame = Vec::new();
            ReplyWriter::new(&mut frame).refuse(&refusal);
            // Text that is no UTF-8 is repaired, once.
            assert_eq!(Reply::decode(&frame).expect("a refusal decodes").unwrap_err(), refusal);
            return;
        }
        Ok(Ok(reply)) => reply,
    };
    assert_eq!(reply.body, &data[HEADER_BYTES..]);
    control_answer::<TableInfo>(&reply);
    control_answer::<Vec<TableInfo>>(&reply);
    control_answer::<NodeStats>(&reply);
    control_answer::<PoolMap>(&reply);
    control_answer::<u64>(&reply);
    let Ok(words) = reply.words() else { return };
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(reply.count, reply.argument);
    writer.push_words(words.iter());
    assert_eq!(frame, data, "a reply of words is what its writer writes");

    assert!(reply.outcomes(words.len() + 1).is_err());
    for (index, outcome) in reply.outcomes(words.len()).expect("as many as words").enumerate() {
        if let Ok(outcome) = outcome {
            assert_eq!(outcome.to_word(), words.get(index), "{outcome:?}");
        }
    }
    for value_bytes in [8_usize, 9, 100] {
        let entry_words = 1 + value_bytes.div_ceil(8);
        let exchanged = reply.exchanged(words.len() / entry_words, value_bytes);
        assert_eq!(exchanged.is_ok(), words.len().is_multiple_of(entry_words), "{} words", words.len());
        exchanged.into_iter().flatten().filter_map(Result::ok).for_each(|(outcome, old)| {
            assert!(SentOutcome::from_word(outcome.to_word()) == Some(outcome) && old.len() == value_bytes);
        });
        let mut pairs = PairsReader::new(words, value_bytes);
        let mut count = 0;
        while let Ok(Some(pair)) = pairs.pair() {
            assert_eq!(pair.value.len(), value_bytes);
            count += 1;
        }
        assert_eq!(count, words.len() / (2 + value_bytes.div_ceil(8)));
    }
    let mut pairs = PairsReader::of_any_length(words);
    let mut long_words = 0;
    while let Ok(Some(pair)) = pairs.pair() {
        long_words += 3 + pair.value.len().div_ceil(8);
    }
    assert!(long_words <= words.len());
    let mut model = ModelReader::new(words);
    while let Ok(Some(part)) = model.read() {
        match part {
            SentModel::SubModel(sent) => {
                assert_eq!(sent.entries.len(), sent.record.leaf_count as usize);
            }
            SentModel::Branch(sent) => {
                assert_eq!(sent.children().count(), sent.boundaries.len() + 1);
                assert!(sent.children().count() <= BRANCH_CHILDREN_MAX);
            }
        }
    }
}

/// What decodes encodes to something that decodes to the same, and takes no bytes behind it.
fn control_answer<T: DeserializeOwned + Serialize>(reply: &Reply<'_>) {
    let Ok(answer) = reply.control::<T>() else { return };
    let mut frame = Vec::new();
    ReplyWriter::new(&mut frame).push_control(&answer);
    let again = Reply::decode(&frame).expect("a reply").expect("no refusal");
    let answer: T = again.control().expect("what was encoded decodes");
    let mut twice = Vec::new();
    ReplyWriter::new(&mut twice).push_control(&answer);
    assert_eq!(twice, frame);
    let longer = [reply.body, &[0]].concat();
    assert!(Reply { body: &longer, ..*reply }.control::<T>().is_err(), "an answer and a byte more");
}

fn recipe(source: &mut Source<'_>) {
    let (count, argument) = (source.half(), source.word());
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(count, argument);
    match source.below(5) {
        0 => {
            let value_bytes = 8 + source.below(249);
            let pairs: Vec<_> = (0..source.below(20))
                .map(|_| (source.key(), source.word(), source.value(value_bytes)))
                .collect();
            for (key, version, value) in &pairs {
                writer.push_pair(*key, *version, value);
            }
            let mut reader = PairsReader::new(words_of(&frame, count, argument), value_bytes);
            for (key, version, value) in &pairs {
                let pair = reader.pair().expect("whole").expect("as many as were written");
                assert_eq!((pair.key, pair.version, pair.value), (*key, *version, value.as_slice()));
            }
            assert!(reader.pair().expect("the end").is_none());
        }
        1 => {
            let outcomes: Vec<SentOutcome> = (0..source.below(40)).map(|_| outcome(source)).collect();
            for outcome in &outcomes {
                writer.push_outcome(*outcome);
            }
            let reply = Reply::decode(&frame).expect("a reply").expect("no refusal");
            let read = reply.outcomes(outcomes.len()).expect("as many as were written");
            assert!(read.map(|outcome| outcome.expect("an outcome")).eq(outcomes));
        }
        2 => {
            let sent: Vec<_> = (0..source.below(6)).map(|_| (sub_model(source), branch(source))).collect();
            for ((number, record, entries), (boundaries, children)) in &sent {
                writer.push_sub_model(*number, record, entries);
                writer.push_branch(*number, boundaries, children);
            }
            let mut reader = ModelReader::new(words_of(&frame, count, argument));
            for ((number, record, entries), (boundaries, children)) in &sent {
                let Ok(Some(SentModel::SubModel(read))) = reader.read() else {
                    panic!("a sub-model was written")
                };
                assert_eq!((read.number, read.record.to_words()), (*number, record.to_words()));
                assert!(read.entries.iter().eq(entries.iter().copied()));
                let Ok(Some(SentModel::Branch(read))) = reader.read() else { panic!("a branch was written") };
                assert_eq!(read.number, *number);
                assert!(read.boundaries.iter().eq(boundaries.iter().copied()));
                assert!(read.children().eq(children.iter().copied()));
            }
            assert!(reader.read().expect("the end").is_none());
        }
        3 => exchanged(source),
        _ => {
            let code = ErrorCode::from_number(1 + source.below(10) as u8).expect("ten codes");
            let error = ServerError::new(code, String::from_utf8_lossy(source.rest()));
            writer.refuse(&error);
            assert_eq!(Reply::decode(&frame).expect("a reply").unwrap_err(), error);
        }
    }
}

/// Outcomes with values before.
fn exchanged(source: &mut Source<'_>) {
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    let value_bytes = 8 + source.below(249);
    let sent: Vec<_> = (0..source.below(20))
        .map(|_| (outcome(source), (source.below(2) == 0).then(|| source.value(value_bytes))))
        .collect();
    for (outcome, old) in &sent {
        writer.push_exchanged(*outcome, old.as_deref(), value_bytes);
    }
    let reply = Reply::decode(&frame).expect("a reply").expect("no refusal");
    assert!(reply.exchanged(sent.len() + 1, value_bytes).is_err(), "fewer than announced");
    let read = reply.exchanged(sent.len(), value_bytes).expect("as many as were written");
    let nothing = vec![0; value_bytes];
    for ((outcome, old), read) in sent.iter().zip(read) {
        let (read, read_old) = read.expect("an outcome");
        assert_eq!((read, read_old), (*outcome, old.as_deref().unwrap_or(&nothing)));
    }
}

fn words_of(frame: &[u8], count: u32, argument: u64) -> farsight_protocol::Words<'_> {
    let reply = Reply::decode(frame).expect("a reply").expect("no refusal");
    assert_eq!((reply.count, reply.argument), (count, argument));
    reply.words().expect("whole words")
}

fn outcome(source: &mut Source<'_>) -> SentOutcome {
    let (kind, version) = (source.below(7), source.word() & ((1 << 48) - 1));
    let outcome = match kind {
        0 => WriteOutcome::Inserted(version),
        1 => WriteOutcome::Replaced(version),
        2 => WriteOutcome::Removed(version),
        3 => WriteOutcome::Exists(version),
        4 => WriteOutcome::Absent,
        5 => WriteOutcome::Differs(version),
        _ => WriteOutcome::Failed(ErrorCode::RegionFull),
    };
    SentOutcome { outcome, is_hint_wrong: source.below(2) == 1 }
}

fn sub_model(source: &mut Source<'_>) -> (u32, SubModelRecord, Vec<u64>) {
    let index = source.half();
    let words = [source.word(), source.word(), source.word() & !(0xff_fff8 << 32)];
    let record = SubModelRecord::from_words(words);
    let entries = (0..record.leaf_count).map(|_| source.word()).collect();
    (index, record, entries)
}

/// Boundaries, and one child more.
fn branch(source: &mut Source<'_>) -> (Vec<u64>, Vec<u32>) {
    let children: Vec<u32> = (0..=source.below(BRANCH_CHILDREN_MAX)).map(|_| source.half()).collect();
    ((1..children.len()).map(|_| source.word()).collect(), children)
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in 0..4 {
        let mut bytes = vec![0; 12];
        bytes.push(kind);
        bytes.extend((0..60).map(|byte: u8| byte.wrapping_mul(37)));
        seeds.push(bytes);
    }
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(3, 7);
    writer.push_pair(1, 2, &[3; 9]);
    writer.push_outcome(SentOutcome { outcome: WriteOutcome::Inserted(5), is_hint_wrong: false });
    seeds.push(frame.clone());
    ReplyWriter::new(&mut frame).push_control(&NodeStats { version: "1".into(), ..NodeStats::default() });
    seeds.push(frame.clone());
    ReplyWriter::new(&mut frame).refuse(&ServerError::new(ErrorCode::BadLoad, "no"));
    seeds.push(frame);
    seeds
}
