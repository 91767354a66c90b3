//! Scans of a server that leads them on for ever: each READ is answered by another leaf, made up as the scan
//! goes. A scan ends all the same, after a bounded number of verbs, by what the server answers to calls.

use std::sync::Arc;

use farsight_base::sync::AtomicU64;
use farsight_base::words::{CopyMode, copy_lines};
use farsight_base::{LeafNumber, Line};
use farsight_index::{Access, Direction, Extent, Pairs, ScanRequest};
use farsight_index_xstore::client::{XParts, XStoreError};
use farsight_layout::{Fences, Geometry, LeafImage, LeafWriter};
use farsight_protocol::ReplyWriter;

use super::client::{client, prefill};
use super::garbage_queue::GarbageQueue;

const VALUE: [u8; 8] = [7; 8];
const LEAVES: usize = 12;
/// Where scans begin, and how far they go.
const FROM: u64 = 20;
const LIMIT: usize = 5;
/// READs of such a scan at most: the leaves without a pair that it puts up with, and a few plans.
const READS_MAX: u64 = 200;
/// Requests for parts of the model beside it.
const REFRESHES_MAX: u64 = 1;

/// The lines of a leaf with these fences, right of which stands `next`, and in which `keys` are stored, be
/// they within the fences or not.
fn leaf((low, high): (u64, u64), next: u32, keys: &[u64]) -> Vec<Line> {
    let geometry = Geometry::new(VALUE.len()).expect("a size of the format");
    let words: Vec<AtomicU64> = (0..geometry.leaf_words()).map(|_| AtomicU64::new(0)).collect();
    let fences = Fences { low, high: Some(high) };
    let mut writer = LeafWriter::latch(&words, &geometry, 1).expect("nobody else latches");
    writer.rewrite(&LeafImage::new(&geometry, 7, LeafNumber(next), fences));
    for key in keys {
        writer.insert(*key, 1, &VALUE).expect("a free slot");
    }
    drop(writer);
    let mut lines = vec![Line::ZERO; geometry.leaf_lines()];
    copy_lines(&words, &mut lines, CopyMode::Stamped);
    lines
}

/// What a scan finds if READ number n is answered by `forge(n)`, and calls by `pages`; and its READs
/// and calls.
fn scan(forge: fn(u64) -> Vec<Line>, pages: Vec<Vec<u8>>) -> (Result<Vec<u64>, XStoreError>, u64, u64) {
    scan_for(Extent::Pairs, forge, pages)
}

/// The same of pairs or of keys alone.
fn scan_for(
    extent: Extent,
    forge: fn(u64) -> Vec<Line>,
    pages: Vec<Vec<u8>>,
) -> (Result<Vec<u64>, XStoreError>, u64, u64) {
    let geometry = Geometry::new(VALUE.len()).expect("a size of the format");
    let mut queue = GarbageQueue::new(vec![Line::ZERO; LEAVES * geometry.leaf_lines()]);
    let mut client = client(&geometry, LEAVES, Access::OneSided, 0);
    prefill(&mut client, &mut queue, LEAVES);
    let calls = queue.meters.calls;
    queue.forge = Some(forge);
    queue.replies.extend(pages);
    let mut parts = XParts::new(Arc::new([]), &[Arc::clone(client.cache())], Access::OneSided);
    let mut pairs = Pairs::default();
    let (queues, scans) = (std::slice::from_mut(&mut queue), [ScanRequest { from: FROM, limit: LIMIT }]);
    let done = match extent {
        Extent::Pairs => parts.scan_batch(queues, Direction::Ascending, &scans, &mut pairs),
        Extent::Keys => parts.scan_keys(queues, Direction::Ascending, &scans, &mut pairs),
    };
    let found = done.map(|()| pairs.scan(0).map(|pair| pair.key).collect());
    (found, queue.meters.reads, queue.meters.calls - calls)
}

/// A page of one key, behind which there are more, or not.
fn page(key: u64, has_more: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(1, if has_more { key + 1 } else { 0 });
    writer.push_pair(key, key, &VALUE);
    frame
}

#[test]
fn a_scan_that_is_led_on_key_by_key_asks_the_server_and_ends() {
    let forge = |read: u64| leaf((FROM + read, FROM + read + 1), 3, &[]);
    let (found, reads, calls) = scan(forge, vec![page(1 << 40, false)]);
    assert_eq!(found.expect("a scan"), [1 << 40]);
    assert!(reads <= READS_MAX && calls <= 1 + REFRESHES_MAX, "{reads} READs, {calls} calls");
}

#[test]
fn a_scan_that_is_led_nowhere_asks_the_server_and_ends() {
    let behind = |_: u64| leaf((0, FROM), 3, &[]);
    let ahead = |read: u64| leaf((FROM + read + 1, FROM + read + 2), 3, &[]);
    let round_and_round = |read: u64| leaf((FROM + read % 2, FROM + read % 2 + 1), 3, &[]);
    let changing = |_: u64| vec![Line([1; 8]); 7];
    let nothing = |_: u64| vec![Line::ZERO; 7];
    let greatest = |_: u64| leaf((u64::MAX - 1, u64::MAX), u32::MAX, &[]);
    for (way, forge) in [behind, ahead, round_and_round, changing, nothing, greatest].into_iter().enumerate()
    {
        let pages = (1..=LIMIT as u64).map(|key| page(key << 32, true)).collect();
        let (found, reads, calls) = scan(forge, pages);
        assert_eq!(found.expect("a scan").len(), LIMIT, "way {way}");
        let (reads_max, calls_max) = (READS_MAX * LIMIT as u64, LIMIT as u64 + REFRESHES_MAX);
        assert!(reads <= reads_max && calls <= calls_max, "way {way}: {reads} READs, {calls} calls");
    }
}

/// The keys of a scan ascend, whatever a leaf holds: one with a key beyond its fence counts as none.
#[test]
fn a_key_beyond_its_leafs_fence_is_not_taken() {
    let forge = |read: u64| {
        let low = FROM + 10 * read;
        leaf((low, low + 10), 3, &[low, low + 12])
    };
    for extent in [Extent::Pairs, Extent::Keys] {
        let (found, _, calls) = scan_for(extent, forge, vec![page(1 << 40, false)]);
        assert_eq!(found.expect("a scan"), [1 << 40], "{extent:?}");
        assert!(calls <= 1 + REFRESHES_MAX, "{extent:?}: {calls} calls");
    }
}
