//! Regions that a server withdraws, from other processes' side and from hostile clients'.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, Region, RegionRights};
use farsight_fabric_shm::raw_client::{Answer, RawClient, attach, hello};

use crate::harness::{
    Directory, FORMAT, Running, call, connect, connect_once_listening, descriptor_count, eventually,
    isolated, mapping_count, play,
};
use crate::roles::await_ready;

/// Regions that a server has at a time.
const REGIONS_MAX: u32 = 8192;

fn first_word(queue: &mut impl QueuePair, region: u32) -> Result<u64, FabricError> {
    let mut line = [Line::ZERO];
    let from = RemoteAddress { region: RegionId(region), offset_bytes: 0 };
    read_alone(queue, from, &mut line, ReadMode::Plain).map(|()| line[0].0[0])
}

#[test]
fn a_withdrawal_is_heard_in_another_process() {
    let directory = Directory::new();
    let mut server = play("server that withdraws", &directory.socket());
    await_ready(&mut server);
    let connection = connect_once_listening(&directory.socket());
    let mut queue = connection.open_queue().expect("a queue");
    for region in [1, 2] {
        queue.attach(RegionId(region)).expect("it is there");
        assert_eq!(first_word(&mut queue, region).expect("it is there"), region.into());
    }
    let started = Instant::now();
    let error = loop {
        match first_word(&mut queue, 2) {
            Ok(word) => assert_eq!(word, 2, "bytes of another region"),
            Err(error) => break error,
        }
        assert!(started.elapsed() < Duration::from_secs(10), "nothing is heard of the withdrawal");
    };
    assert!(matches!(error, FabricError::RegionWithdrawn { region: RegionId(2), .. }), "{error}");
    assert_eq!(first_word(&mut queue, 1).expect("the other is there"), 1);
    assert!(matches!(queue.attach(RegionId(2)), Err(FabricError::UnknownRegion { .. })));
    eventually("the number", || queue.notice() == 7);
    queue.attach(RegionId(3)).expect("it is there");
    assert_eq!(first_word(&mut queue, 3).expect("it is there"), 3);
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn withdrawn_regions_leave_no_descriptor_and_no_mapping() {
    isolated("withdrawn::withdrawn_regions_leave_no_descriptor_and_no_mapping", || {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let connection = connect(&directory.socket());
        let mut queue = connection.open_queue().expect("a queue");
        let mut idle = connection.open_queue().expect("a queue");
        // An answer to both: the server has nothing more to do for what was opened.
        let first = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
        for queue in [&mut queue, &mut idle] {
            queue.attach(first).expect("it is there");
        }
        let held = (descriptor_count(), mapping_count());
        let regions: Vec<_> = (0..200)
            .map(|_| server.host.create_region(4096, RegionRights::ReadOnly).expect("a region").id())
            .collect();
        for region in &regions {
            queue.attach(*region).expect("it is there");
            idle.attach(*region).expect("it is there");
        }
        // A descriptor and a mapping a region on either side.
        assert_eq!((descriptor_count(), mapping_count()), (held.0 + 400, held.1 + 400));
        let (detached, withdrawn) = regions.split_at(100);
        for region in detached {
            queue.detach(*region);
            idle.detach(*region);
        }
        assert_eq!((descriptor_count(), mapping_count()), (held.0 + 300, held.1 + 300));
        for region in withdrawn {
            server.host.withdraw_region(*region).expect("it was there");
        }
        eventually("the descriptors of both sides", || descriptor_count() == held.0 + 100);
        eventually("the one queue pair", || {
            queue.doorbell().expect("the doorbell rings");
            idle.poll().expect("polling");
            mapping_count() == held.1 + 100
        });
        for region in detached {
            server.host.withdraw_region(*region).expect("it was there");
        }
        eventually("the rest", || (descriptor_count(), mapping_count()) == held);
    });
}

#[test]
fn a_client_that_keeps_a_region_keeps_its_own_mapping_alone() {
    isolated("withdrawn::a_client_that_keeps_a_region_keeps_its_own_mapping_alone", || {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
        let hostile = RawClient::greeted(&directory.socket(), FORMAT);
        let file = hostile.attach(region.id().0);
        let held = mapping_count();
        server.host.withdraw_region(region.id()).expect("it was there");
        drop(region);
        assert_eq!(mapping_count(), held - 1, "the server has let it go");
        let newer = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
        newer.words()[0].store(42, farsight_base::sync::Ordering::Release);
        assert_eq!(first_bytes(&file), [0; 8], "the file is the old region's");
    });
}

fn first_bytes(file: &OwnedFd) -> [u8; 8] {
    let mut bytes = [0; 8];
    rustix::io::pread(file, &mut bytes, 0).expect("a memory file can be read");
    bytes
}

/// A client that takes its end of the socket for news, and does with it what it likes.
struct Listener {
    client: RawClient,
    news: OwnedFd,
}

impl Listener {
    fn new(path: &Path) -> Self {
        let client = RawClient::connect(path);
        client.send(&hello(FORMAT));
        let mut welcome = client.receive().expect("an answer");
        assert_eq!((welcome.kind(), welcome.descriptors.len()), (129, 1), "a welcome with one descriptor");
        let news = welcome.descriptors.pop().expect("the socket for news");
        Self { client, news }
    }

    fn hear(&self) -> Answer {
        let news = RawClient { socket: self.news.try_clone().expect("a descriptor") };
        news.receive().expect("news")
    }
}

#[test]
fn news_name_what_was_attached_and_the_newest_number() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let listener = Listener::new(&directory.socket());
    let create = || server.host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
    let (attached, other) = (create(), create());
    drop(listener.client.attach(attached.0));
    server.host.withdraw_region(other).expect("it was there");
    server.host.withdraw_region(attached).expect("it was there");
    server.host.notify(9);
    server.host.notify(8);
    let expected = [137_u32.to_le_bytes(), attached.0.to_le_bytes()].concat();
    assert_eq!(listener.hear().packet, expected, "of another region it hears nothing");
    let expected = [138_u32.to_le_bytes().as_slice(), &9_u64.to_le_bytes()].concat();
    assert_eq!(listener.hear().packet, expected);
}

#[test]
fn a_client_that_scribbles_on_its_news_harms_nobody() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let good = connect(&directory.socket());
    let mut queue = good.open_queue().expect("a queue");
    let listener = Listener::new(&directory.socket());
    for length in [0, 1, 4, 60_000] {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(listener.news.as_fd(), &vec![7; length], flags);
    }
    let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
    drop(listener.client.attach(region.0));
    let Listener { client, news } = listener;
    drop(news);
    server.host.withdraw_region(region).expect("it was there");
    server.host.notify(3);
    eventually("the number", || queue.notice() == 3);
    assert_eq!(call(&mut queue, b"unharmed"), b"unharmed");
    drop(client);
    eventually("its end", || server.host.client_count() == 1);
}

/// It is told as much as its socket takes; what waits beyond that is bounded.
#[test]
fn a_client_that_does_not_read_its_news_is_dismissed() {
    isolated("withdrawn::a_client_that_does_not_read_its_news_is_dismissed", || {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let good = connect(&directory.socket());
        let mut queue = good.open_queue().expect("a queue");
        let listener = Listener::new(&directory.socket());
        let held = descriptor_count();
        let mut rounds = 0;
        while server.host.client_count() == 2 {
            rounds += 1;
            assert!(rounds < 2 * REGIONS_MAX, "{rounds} withdrawn regions wait for it");
            let region = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
            listener.client.send(&attach(region.0, 0));
            drop(listener.client.receive());
            server.host.withdraw_region(region).expect("it was there");
        }
        assert!(rounds > REGIONS_MAX, "{rounds} are no reason");
        assert!(descriptor_count() <= held, "its regions are let go");
        server.host.notify(4);
        eventually("the number", || queue.notice() == 4);
        assert_eq!(call(&mut queue, b"unharmed"), b"unharmed");
    });
}
