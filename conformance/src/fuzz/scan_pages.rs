//! What a client makes of the pages of a scan: it goes on where they say, and is led nowhere for ever.

use farsight_base::Line;
use farsight_index::{Access, Direction, Pairs, ScanRequest};
use farsight_index_xstore::client::XStoreError;
use farsight_layout::Geometry;
use farsight_protocol::ReplyWriter;

use super::client::client;
use super::garbage_queue::GarbageQueue;

const VALUE: [u8; 8] = [7; 8];
const LEAVES: usize = 4;

/// A page: its keys, and the key from which to go on.
type Page<'a> = (&'a [u64], u64);

/// The keys of a scan for ten pairs from 0 on, answered by these pages.
fn scan(pages: &[Page<'_>]) -> Result<Vec<u64>, String> {
    let geometry = Geometry::new(VALUE.len()).expect("a size of the format");
    let mut queue = GarbageQueue::new(vec![Line::ZERO; LEAVES * geometry.leaf_lines()]);
    for (keys, next) in pages {
        let mut frame = Vec::new();
        let mut writer = ReplyWriter::new(&mut frame);
        writer.set(keys.len() as u32, *next);
        keys.iter().for_each(|key| writer.push_pair(*key, 1, &VALUE));
        queue.replies.push_back(frame);
    }
    let mut pairs = Pairs::default();
    let scans = [ScanRequest { from: 0, limit: 10 }];
    let mut client = client(&geometry, LEAVES, Access::Rpc, 0);
    match client.scan_batch(&mut queue, Direction::Ascending, &scans, &mut pairs) {
        Ok(()) => {
            assert!(queue.replies.is_empty(), "{} pages were not taken", queue.replies.len());
            Ok(pairs.scan(0).map(|pair| pair.key).collect())
        }
        Err(XStoreError::Decode(error)) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_scan_goes_on_where_its_pages_say() {
    assert_eq!(scan(&[(&[3, 5], 0)]), Ok(vec![3, 5]), "the table's end");
    assert_eq!(scan(&[(&[3, 5], 6), (&[6], 90), (&[95], 0)]), Ok(vec![3, 5, 6, 95]));
    assert_eq!(scan(&[(&[], 10), (&[], 20), (&[25], 40), (&[], 50), (&[], 0)]), Ok(vec![25]));
    let ten: Vec<u64> = (0..10).collect();
    assert_eq!(scan(&[(&ten, 10)]), Ok(ten.clone()), "no call behind the limit");
}

#[test]
fn a_cursor_that_does_not_grow_is_refused() {
    for pages in
        [[(&[3, 5][..], 5)].as_slice(), &[(&[3, 5], 2)], &[(&[], 7), (&[], 7)], &[(&[], 7), (&[], 3)]]
    {
        let error = scan(pages).expect_err("a cursor that leads back");
        assert!(error.contains("a cursor behind"), "{pages:?}: {error}");
    }
    let error = scan(&[(&[3], 8), (&[7], 0)]).expect_err("a key below the cursor");
    assert!(error.contains("keys in the scan's order"), "{error}");
}

#[test]
fn pages_without_pairs_end_somewhere() {
    let pages: Vec<Page<'_>> = (1..100).map(|next| ([].as_slice(), next)).collect();
    let error = scan(&pages).expect_err("more pages than leaves");
    assert!(error.contains("a pair, or the table's end, in all but 64 pages"), "{error}");
}
