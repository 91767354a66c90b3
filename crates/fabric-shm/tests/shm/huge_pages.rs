//! Huge pages on both sides.

use farsight_base::sync::Ordering;
use farsight_base::{Line, RemoteAddress};
use farsight_fabric::{Connection, Host, QueuePair, ReadMode, Region, RegionRights};

use crate::harness::{Directory, Running, connect};

const PIECE_BYTES: u64 = 2 << 20;

#[test]
fn populated_pieces_collapse_on_both_sides() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_region(6 * PIECE_BYTES, RegionRights::ReadOnly).expect("a region");
    let used_bytes = 3 * PIECE_BYTES;
    let used_words = (used_bytes / 8) as usize;
    for (index, word) in region.words()[..used_words].iter().enumerate() {
        word.store(index as u64, Ordering::Relaxed);
    }
    let server_bytes = region.collapse_to_huge_pages(used_bytes);
    if server_bytes == 0 {
        println!("skipped: this kernel collapses nothing (MADV_COLLAPSE needs Linux 6.1 and huge pages)");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: no huge pages");
        return;
    }
    assert_eq!(server_bytes, used_bytes);
    assert_eq!(region.huge_page_bytes(), used_bytes);

    let connection = connect(&directory.socket());
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(region.id()).expect("the region attaches");
    assert_eq!(connection.collapse_to_huge_pages(), used_bytes, "untouched pieces stay as they are");
    assert_eq!(connection.huge_page_bytes(), used_bytes);

    // A piece that is written later collapses later; what was there stays.
    region.words()[used_words].store(7, Ordering::Release);
    assert_eq!(region.collapse_to_huge_pages(used_bytes + 8), used_bytes + PIECE_BYTES);
    assert_eq!(connection.collapse_to_huge_pages(), used_bytes + PIECE_BYTES);
    for offset_bytes in (0..used_bytes).step_by(4096) {
        queue.post_read(0, RemoteAddress { region: region.id(), offset_bytes }, 1, ReadMode::Plain);
        queue.doorbell().expect("the doorbell rings");
        let mut line = [Line::ZERO];
        queue.take_read(0, &mut line).expect("a READ");
        assert_eq!(line[0].0[7], offset_bytes / 8 + 7);
    }
}
