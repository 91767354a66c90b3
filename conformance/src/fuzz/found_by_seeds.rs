//! What seeds of the simulator found in clients whose frames lost their ends, each in its smallest form.

use farsight_base::Line;
use farsight_index::{Access, Direction, OldValues, Pairs, ScanRequest};
use farsight_index_xstore::client::XStoreError;
use farsight_layout::Geometry;
use farsight_protocol::{
    AuthorId, ErrorCode, ReplyWriter, SentOutcome, ServerError, WriteOperation, WriteOutcome,
};

use super::client::{client, prefill};
use super::garbage_queue::GarbageQueue;

const VALUE: [u8; 8] = [7; 8];
const LEAVES: usize = 4;
/// Writes of one call: more than a page's misses may cost before it is requested again.
const ENTRIES: usize = 128;

fn geometry() -> Geometry {
    Geometry::new(VALUE.len()).expect("a size of the format")
}

fn queue() -> GarbageQueue {
    GarbageQueue::new(vec![Line::ZERO; LEAVES * geometry().leaf_lines()])
}

/// A page that announces `announced` pairs, holds `held`, and says that it is the last.
fn page(announced: u32, held: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(announced, 0);
    (1..=held).for_each(|key| writer.push_pair(key, key, &VALUE));
    frame
}

#[test]
fn a_page_that_was_cut_between_two_pairs_is_no_end_of_the_table() {
    let scan = |page: Vec<u8>| {
        let mut queue = queue();
        queue.replies.push_back(page);
        let mut pairs = Pairs::default();
        let scans = [ScanRequest { from: 0, limit: 10 }];
        let done = client(&geometry(), LEAVES, Access::Rpc, 0).scan_batch(
            &mut queue,
            Direction::Ascending,
            &scans,
            &mut pairs,
        );
        done.map(|()| pairs.scan(0).count())
    };
    assert!(matches!(scan(page(3, 3)), Ok(3)), "a whole page is the whole table");
    for held in 0..3 {
        match scan(page(3, held)) {
            Err(XStoreError::Decode(error)) => {
                let text = error.to_string();
                assert!(text.contains("3 pairs") && text.contains(&format!("{held} pairs")), "{text}");
            }
            other => panic!("of 3 pairs {held} came: {other:?}"),
        }
    }
}

/// The reply to a call of writes, each of which came by a wrong hint.
fn replaced(count: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(count as u32, 0);
    for version in 1..=count as u64 {
        let outcome = WriteOutcome::Replaced(version);
        writer.push_outcome(SentOutcome { outcome, is_hint_wrong: true });
    }
    frame
}

#[test]
fn a_write_does_not_fail_because_a_part_of_the_model_was_refused() {
    let mut client = client(&geometry(), LEAVES, Access::OneSided, 0);
    let mut queue = queue();
    prefill(&mut client, &mut queue, LEAVES);
    let entries: Vec<(u64, &[u8])> = (0..ENTRIES as u64).map(|key| (key % 60, &VALUE[..])).collect();
    let mut outcomes = Vec::new();
    let mut author = Vec::new();
    ReplyWriter::new(&mut author).push_control(&AuthorId(1));
    queue.replies.extend([author, replaced(ENTRIES)]);
    client
        .write(
            &mut queue,
            WriteOperation::Put,
            entries.iter().copied(),
            &mut outcomes,
            &mut OldValues::default(),
        )
        .expect("writes");
    assert_eq!(outcomes.len(), ENTRIES);

    // So many wrong hints: the next write asks for the page beside itself.
    let calls = queue.meters.calls;
    queue.replies.push_back(replaced(1));
    let mut refusal = Vec::new();
    let error = ServerError::new(ErrorCode::BadRequest, "the frame has no end");
    ReplyWriter::new(&mut refusal).refuse(&error);
    queue.replies.push_back(refusal);
    outcomes.clear();
    let written = client.write(
        &mut queue,
        WriteOperation::Put,
        entries[..1].iter().copied(),
        &mut outcomes,
        &mut OldValues::default(),
    );
    assert!(written.is_ok(), "it was executed: {written:?}");
    assert_eq!(outcomes, [WriteOutcome::Replaced(1)]);
    assert_eq!(queue.meters.calls - calls, 2, "the write, and the page");
    assert!(queue.replies.is_empty(), "the refusal has been taken");
}
