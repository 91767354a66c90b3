//! Clients that do what they like, beside one that behaves.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farsight_base::ClientId;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_fabric::{Connection, Departure, FabricError, Host, RegionRights};
use farsight_fabric_shm::{ShmConnection, ShmQueue};

use crate::harness::{
    Directory, FORMAT, Running, call, connect, descriptor_count, eventually, isolated, mapping_count,
};
use farsight_fabric_shm::raw_client::{RawClient, RawQueue, attach, guarded, hello, userfaultfd};

/// Where the counters lie, in words (the module documentation of the rings).
const REQUEST_TAIL: usize = 0;
const REPLY_TAIL: usize = 32;
const REPLY_HEAD: usize = 48;
const REQUESTS: usize = 512;

struct Scene {
    server: Running,
    directory: Directory,
    good: ShmConnection,
    queue: ShmQueue,
}

impl Scene {
    fn new() -> Self {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let good = connect(&directory.socket());
        let queue = good.open_queue().expect("a queue");
        Self { server, directory, good, queue }
    }

    fn hostile(&self) -> RawClient {
        RawClient::greeted(&self.directory.socket(), FORMAT)
    }

    fn assert_unharmed(&mut self) {
        assert_eq!(call(&mut self.queue, b"unharmed"), b"unharmed");
        let mut another = self.good.open_queue().expect("the control socket works too");
        assert_eq!(call(&mut another, b"too"), b"too");
    }

    /// The hostile client is told why it has to go, and goes.
    fn assert_dismissed(&mut self, client: &RawClient, reason: &str) {
        let farewell = client.receive().expect("a farewell");
        assert_eq!(farewell.kind(), 136, "a dismissal, not {:?}", farewell.text());
        assert!(farewell.text().contains(reason), "{reason:?} is not in {:?}", farewell.text());
        assert!(client.receive().is_none(), "the socket is closed");
        eventually("its end", || self.server.host.client_count() == 1);
        self.assert_unharmed();
    }
}

/// Publishes `tail` words of requests and wakes the server.
fn publish(queue: &RawQueue, tail: u64) {
    queue.words[REQUEST_TAIL].store(tail, Ordering::Release);
    for _ in 0..3 {
        queue.wake();
    }
}

#[test]
fn impossible_ring_contents_end_their_client_alone() {
    type Act = fn(&RawQueue);
    let mut scene = Scene::new();
    let cases: [(&str, Act); 5] = [
        ("words apart", |queue| publish(queue, 32_769)),
        ("words apart", |queue| publish(queue, u64::MAX)),
        ("published", |queue| publish(queue, 1)),
        ("announces", |queue| {
            queue.words[REQUESTS].store(0xffff_ffff, Ordering::Relaxed);
            publish(queue, 100);
        }),
        ("published", |queue| {
            queue.words[REQUESTS].store(1000, Ordering::Relaxed);
            publish(queue, 20);
        }),
    ];
    for (reason, disorder) in cases {
        let client = scene.hostile();
        let queue = client.open_queue();
        disorder(&queue);
        scene.assert_dismissed(&client, reason);
    }
}

#[test]
fn impossible_reply_counters_end_their_client_alone() {
    let mut scene = Scene::new();
    let client = scene.hostile();
    let queue = client.open_queue();
    queue.words[REPLY_HEAD].store(1 << 40, Ordering::Release);
    // Empty requests, two words each: more replies than the ring holds, so that the server must look at the
    // head.
    let mut tail = 0;
    while client.receive_within(Duration::from_millis(5)).is_err() {
        tail += 4_000;
        publish(&queue, tail);
        assert!(tail < 4_000_000, "the server never looked at the reply head");
    }
    eventually("its end", || scene.server.host.client_count() == 1);
    scene.assert_unharmed();
}

/// Room that the server has seen may be kept for a reply to come: nobody takes it back.
#[test]
fn a_reply_head_that_goes_back_ends_its_client_alone() {
    let mut scene = Scene::new();
    let client = scene.hostile();
    let queue = client.open_queue();
    // As above; the server first looks when there are 24,000 words of replies.
    queue.words[REPLY_HEAD].store(20_000, Ordering::Release);
    let mut tail = 0;
    while client.receive_within(Duration::from_millis(5)).is_err() {
        if queue.words[REPLY_TAIL].load(Ordering::Acquire) > 30_000 {
            queue.words[REPLY_HEAD].store(16_000, Ordering::Release);
        }
        tail += 4_000;
        publish(&queue, tail);
        assert!(tail < 4_000_000, "the server believes a head that goes back");
    }
    eventually("its end", || scene.server.host.client_count() == 1);
    scene.assert_unharmed();
}

#[test]
fn scribbling_over_the_rings_harms_nobody_else() {
    let mut scene = Scene::new();
    let mut random = SplitMix64::new(5);
    for round in 0..12 {
        let client = scene.hostile();
        let queue = client.open_queue();
        let until = Instant::now() + Duration::from_millis(30);
        while Instant::now() < until {
            for _ in 0..2_000 {
                let index = random.below(queue.words.len() as u64) as usize;
                let small = round % 2 == 0;
                let value = if small { random.below(4_000) } else { random.next_u64() };
                queue.words[index].store(value, Ordering::Relaxed);
                if small {
                    let counter = 16 * random.below(6) as usize;
                    queue.words[counter].fetch_add(random.below(3), Ordering::Relaxed);
                }
            }
            queue.wake();
            scene.assert_unharmed();
        }
    }
    eventually("every end", || scene.server.host.client_count() == 1);
    scene.assert_unharmed();
}

#[test]
fn garbage_on_the_control_socket_ends_its_client_alone() {
    let mut scene = Scene::new();
    let mut random = SplitMix64::new(6);
    for _ in 0..300 {
        let greeted = random.below(2) == 0;
        let client = if greeted { scene.hostile() } else { RawClient::connect(&scene.directory.socket()) };
        for _ in 0..random.below(4) {
            let length = [0, 1, 4, 8, 24, 1024, 1025, 60_000][random.below(8) as usize];
            let packet: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
            client.send(&packet);
        }
    }
    eventually("every end", || scene.server.host.client_count() == 1);
    scene.assert_unharmed();

    let client = scene.hostile();
    client.send(&vec![7; 4000]);
    scene.assert_dismissed(&client, "exceeds 1024 B");
    let client = scene.hostile();
    client.send(&hello(FORMAT));
    scene.assert_dismissed(&client, "second hello");
    let client = scene.hostile();
    client.send(&[9, 0, 0, 0]);
    scene.assert_dismissed(&client, "kind 9");
}

/// Twenty silent clients may take so long, on any machine: each is waited for two seconds, so one after the
/// other would take forty.
const SILENT_MAX: Duration = Duration::from_secs(20);

#[test]
fn a_silent_client_is_refused_in_time_and_holds_up_nobody() {
    let mut scene = Scene::new();
    let silent: Vec<RawClient> = (0..20).map(|_| RawClient::connect(&scene.directory.socket())).collect();
    let started = Instant::now();
    let friend = connect(&scene.directory.socket());
    assert!(started.elapsed() < SILENT_MAX, "silent clients held up another");
    drop(friend);
    scene.assert_unharmed();
    for client in silent {
        let refusal = client.receive().expect("a refusal");
        assert_eq!(refusal.kind(), 130);
        assert!(refusal.text().contains("no hello"), "{}", refusal.text());
    }
    let took = started.elapsed();
    assert!((Duration::from_millis(1900)..SILENT_MAX).contains(&took), "{took:?}");
}

#[test]
fn a_client_that_reads_no_answers_is_dropped() {
    let mut scene = Scene::new();
    let client = scene.hostile();
    let question = attach(77, 0);
    rustix::io::ioctl_fionbio(&client.socket, true).expect("a flag");
    eventually("its end", || {
        for _ in 0..1000 {
            client.send(&question);
        }
        scene.server.host.client_count() == 1
    });
    scene.assert_unharmed();
}

#[test]
fn questions_before_the_last_answer_was_read_end_their_client() {
    let mut scene = Scene::new();
    let _region = scene.server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
    let client = scene.hostile();
    let question = attach(1, 0);
    client.send(&question);
    eventually("the answer", || client.is_readable());
    client.send(&question);
    // Reading sooner could take the answer away before the server looks whether it was read.
    eventually("its end", || scene.server.host.client_count() == 1);
    assert_eq!(client.receive().expect("the answer").kind(), 132, "an attached region");
    scene.assert_dismissed(&client, "before the last answer was read");
}

#[test]
fn one_process_cannot_take_all_descriptors() {
    isolated("hostile::one_process_cannot_take_all_descriptors", || {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let few = rustix::process::Rlimit { current: Some(400), maximum: limit.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).expect("a limit");
        // The server's limit is that of now; this process, which holds the clients' ends too, needs more.
        let mut scene = Scene::new();
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("a limit");
        let mut greedy = Vec::new();
        let refusal = loop {
            let client = RawClient::connect(&scene.directory.socket());
            client.send(&hello(FORMAT));
            let answer = client.receive().expect("an answer");
            if answer.kind() != 129 {
                break answer;
            }
            greedy.push(client);
            assert!(greedy.len() < 200, "no limit was met");
        };
        assert!(refusal.kind() == 130 && refusal.text().contains("one client's share"), "{}", refusal.text());
        let mut queues = Vec::new();
        let error = loop {
            match scene.good.open_queue() {
                Ok(queue) => queues.push(queue),
                Err(error) => break error,
            }
            assert!(queues.len() < 4, "the share was used up before");
        };
        assert!(error.to_string().contains("one client's share"), "{error}");
        drop(queues);
        drop(greedy);
        eventually("their end", || scene.server.host.client_count() == 1);
        scene.assert_unharmed();
    });
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    isolated("hostile::descriptors_that_nobody_asked_for_are_closed", || {
        let mut scene = Scene::new();
        let client = scene.hostile();
        let question = attach(77, 0);
        // Once this is answered, the server holds whatever it holds for a client.
        client.send(&question);
        assert_eq!(client.receive().expect("an answer").kind(), 133, "no such region");
        let before = descriptor_count();
        let zero = std::fs::File::open("/dev/zero").expect("a file");
        let flood = vec![zero.as_fd(); 200];
        for _ in 0..20 {
            client.send_with(&question, &flood);
            assert_eq!(client.receive().expect("an answer").kind(), 133, "no such region");
        }
        drop(zero);
        // Other threads open a file now and then, and close it.
        eventually("the flood's end", || descriptor_count() <= before);
        scene.assert_unharmed();
    });
}

#[test]
fn too_many_queues_are_refused_and_given_back() {
    isolated("hostile::too_many_queues_are_refused_and_given_back", || {
        let mut scene = Scene::new();
        // Few descriptors are allowed by default: raise the limit as far as this process may.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("a limit");
        let greedy = connect(&scene.directory.socket());
        let mut queues = Vec::new();
        let error = loop {
            match greedy.open_queue() {
                Ok(queue) => queues.push(queue),
                Err(error) => break error,
            }
            assert!(queues.len() <= 1024, "no limit was met");
        };
        assert!(matches!(error, FabricError::System { .. }), "{error}");
        assert!(error.to_string().contains("1024") || queues.len() < 1024, "{error}");
        // The good client is this process, too: its own queue goes on, and no more are to be had.
        assert_eq!(call(&mut scene.queue, b"unharmed"), b"unharmed");
        drop(queues);
        // What is left: both ends of the good client's one queue.
        eventually("the queues' end", || mapping_count() == 2);
        assert_eq!(call(&mut greedy.open_queue().expect("a queue again"), b"again"), b"again");
    });
}

#[test]
fn what_says_that_stores_can_be_held_up_is_believed_for_that_client_alone() {
    let mut scene = Scene::new();
    let region = scene.server.host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a descriptor");
    let real = userfaultfd();
    let attached = |client: &RawClient| {
        client.send(&attach(region.id().0, 0));
        assert_eq!(client.receive().expect("an answer").kind(), 132);
    };
    // Another descriptor, or a range that no memory has.
    for (descriptor, address, reason) in
        [(&event, 1 << 30, "userfaultfd was due"), (&real, u64::MAX - 4096, "0xffffffffffffefff")]
    {
        let client = scene.hostile();
        attached(&client);
        client.send_with(&guarded(region.id().0, address), &[descriptor.as_fd()]);
        scene.assert_dismissed(&client, reason);
    }
    // None at all, and then one that protects nothing of what is said, beside others that the kernel drops.
    let client = scene.hostile();
    attached(&client);
    client.send(&guarded(region.id().0, 1 << 30));
    let answer = client.receive().expect("an answer");
    assert!(answer.kind() == 135 && answer.text().contains("no descriptor"), "{:?}", answer.text());
    client.send_with(&guarded(region.id().0, 1 << 30), &[real.as_fd(), event.as_fd(), event.as_fd()]);
    assert_eq!(client.receive().expect("an answer").kind(), 139);
    client.send(&guarded(77, 1 << 30));
    assert_eq!(client.receive().expect("an answer").kind(), 139, "a region that it does not have");
    let id = ClientId(scene.good.client().0 + 3);
    eventually("the time to leave", || match scene.server.host.dismiss(id).expect("a dismissal") {
        Departure::Awaited(lingering) => lingering.told_for > Duration::from_millis(200),
        departure => panic!("{departure:?} of a client that can write"),
    });
    drop(client);
    eventually("its end", || scene.server.host.client_count() == 1);
    scene.assert_unharmed();
}
