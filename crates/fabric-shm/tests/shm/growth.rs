//! Regions of which clients reach what has grown.

use farsight_base::sync::Ordering;
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::mapped::{lines_in_place, read_alone};
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, Region};
use farsight_fabric::{RegionRights, mapped::Mapped as _};
use farsight_fabric_shm::ShmQueue;
use farsight_fabric_shm::raw_client::RawClient;

use crate::harness::{Directory, FORMAT, Running, connect};

const REGION_BYTES: u64 = 64 << 20;
/// The unit of growth.
const UNIT_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 512;

/// Bytes that the system has given for what a hostile client was given of `region`, after it has read all.
fn given_bytes(directory: &Directory, region: RegionId) -> u64 {
    let hostile = RawClient::greeted(&directory.socket(), FORMAT);
    let files = hostile.read_everything(region.0);
    let blocks = files.iter().map(|file| rustix::fs::fstat(file).expect("an open file").st_blocks);
    blocks.map(|blocks| blocks.unsigned_abs() * BLOCK_BYTES).sum()
}

#[test]
fn a_reader_of_holes_makes_the_system_give_little_more_than_was_written() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let whole = server.host.create_region(REGION_BYTES, RegionRights::ReadOnly).expect("a region");
    assert_eq!(given_bytes(&directory, whole.id()), REGION_BYTES, "the test sees what it looks for");
    let growing = server.host.create_growing_region(REGION_BYTES).expect("a region");
    for used_bytes in [1, UNIT_BYTES, UNIT_BYTES + 1, 20 << 20, 30 << 20, REGION_BYTES] {
        growing.grow_to(used_bytes).expect("memory");
        let most_bytes = (used_bytes + used_bytes / 4 + UNIT_BYTES).min(REGION_BYTES);
        let given_bytes = given_bytes(&directory, growing.id());
        assert!((used_bytes..=most_bytes).contains(&given_bytes), "{given_bytes} B for {used_bytes}");
    }
}

fn word(
    queue: &mut ShmQueue,
    region: RegionId,
    offset_bytes: u64,
    by_slot: bool,
) -> Result<u64, FabricError> {
    let (from, mut line) = (RemoteAddress { region, offset_bytes }, [Line::ZERO]);
    if by_slot {
        queue.post_read(0, from, 1, ReadMode::Plain);
        queue.doorbell()?;
        queue.take_read(0, &mut line)?;
    } else {
        read_alone(queue, from, &mut line, ReadMode::Plain)?;
    }
    Ok(line[0].0[0])
}

/// A client that has READ nothing yet of what has grown since it attached collapses it all the same.
#[test]
fn a_client_collapses_what_has_grown_since_it_attached() {
    const USED_BYTES: u64 = 8 * UNIT_BYTES;
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_growing_region(REGION_BYTES).expect("a region");
    let connection = connect(&directory.socket());
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(region.id()).expect("the region");
    region.grow_to(USED_BYTES).expect("memory");
    let used_words = USED_BYTES as usize / size_of::<u64>();
    for word in &region.words()[..used_words] {
        word.store(1, Ordering::Relaxed);
    }
    // As many as the system has for the server, which has written them all.
    let of_server = region.collapse_to_huge_pages(USED_BYTES);
    let of_client = connection.collapse_to_huge_pages();
    assert!(of_client >= of_server, "{of_client} of {of_server} B on huge pages");
}

#[test]
fn a_client_reads_what_has_grown_since_it_attached() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_growing_region(REGION_BYTES).expect("a region");
    let id = region.id();
    let connection = connect(&directory.socket());
    let mut queues = [(); 2].map(|()| connection.open_queue().expect("a queue"));
    for queue in &mut queues {
        assert_eq!(queue.attach(id).expect("it is there"), REGION_BYTES, "all that it may come to have");
    }
    for (step, end_bytes) in
        (2..=REGION_BYTES / UNIT_BYTES).step_by(3).map(|units| units * UNIT_BYTES).enumerate()
    {
        region.grow_to(end_bytes).expect("memory");
        let last = end_bytes - 64;
        region.words()[last as usize / 8].store(end_bytes, Ordering::Release);
        for (number, queue) in queues.iter_mut().enumerate() {
            let by_slot = (step + number).is_multiple_of(2);
            assert_eq!(word(queue, id, last, by_slot).expect("it has grown"), end_bytes);
            let mapped = queue.mapped().expect("regions are in place");
            assert!(mapped.lines(id).len() as u64 * 64 >= end_bytes);
        }
    }
}

/// A client may be led to a place that nobody has written yet: by what it made of another's words.
#[test]
fn what_has_not_grown_yet_reads_as_zeros_and_takes_no_memory() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_growing_region(REGION_BYTES).expect("a region");
    let (id, connection) = (region.id(), connect(&directory.socket()));
    for by_slot in [true, false] {
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(id).expect("it is there");
        for beyond_bytes in [UNIT_BYTES, 20 << 20, REGION_BYTES - 64] {
            assert_eq!(word(&mut queue, id, beyond_bytes, by_slot).expect("the region's"), 0);
            let mapped = queue.mapped().expect("regions are in place");
            let lines: Option<&[_; 1]> = lines_in_place(mapped, id, beyond_bytes / 64);
            assert_eq!(lines.expect("the region's")[0][0].load(Ordering::Relaxed), 0);
            assert_eq!(mapped.lines(id).len() as u64 * 64, UNIT_BYTES, "the server is asked again");
        }
    }
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(id).expect("it is there");
    assert_eq!(word(&mut queue, id, UNIT_BYTES, true).expect("the region's"), 0);
    region.grow_to(2 * UNIT_BYTES).expect("memory");
    region.words()[UNIT_BYTES as usize / 8].store(7, Ordering::Release);
    assert_eq!(word(&mut queue, id, UNIT_BYTES, true).expect("it has grown"), 7);
}

#[test]
fn a_read_beyond_its_region_breaks_its_queue_alone() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_growing_region(REGION_BYTES).expect("a region");
    let connection = connect(&directory.socket());
    for by_slot in [true, false] {
        for beyond_bytes in [REGION_BYTES, 1 << 60] {
            let mut queue = connection.open_queue().expect("a queue");
            queue.attach(region.id()).expect("it is there");
            let refused = word(&mut queue, region.id(), beyond_bytes, by_slot).expect_err("nothing is there");
            assert!(!matches!(refused, FabricError::Disconnected { .. }), "{refused}");
        }
    }
    let mut queue = connection.open_queue().expect("the connection lives");
    queue.attach(region.id()).expect("it is there");
    assert_eq!(word(&mut queue, region.id(), 0, true).expect("it is there"), 0);
}

#[test]
fn a_read_of_what_has_grown_in_a_withdrawn_region_says_so() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let connection = connect(&directory.socket());
    for by_slot in [true, false] {
        let region = server.host.create_growing_region(REGION_BYTES).expect("a region");
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(region.id()).expect("it is there");
        region.grow_to(2 * UNIT_BYTES).expect("memory");
        server.host.withdraw_region(region.id()).expect("it is there");
        let gone = word(&mut queue, region.id(), UNIT_BYTES, by_slot).expect_err("it is gone");
        assert!(matches!(gone, FabricError::RegionWithdrawn { .. }), "{gone}");
    }
}

/// A client that asks for a file where none begins gets none.
#[test]
fn files_begin_where_they_begin() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_growing_region(REGION_BYTES).expect("a region").id().0;
    let client = RawClient::greeted(&directory.socket(), FORMAT);
    for from_bytes in [1, 4096, UNIT_BYTES - 1, UNIT_BYTES, u64::MAX] {
        assert!(client.attach_behind(region, from_bytes).is_none(), "a file at {from_bytes}");
    }
    assert!(client.attach_behind(region, 0).is_some());
}
