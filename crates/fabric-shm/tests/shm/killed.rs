//! Clients and servers killed at any moment.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_base::{ClientId, Line, RegionId, RemoteAddress};
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{
    Connection, Departure, FabricError, Host, Lingering, QueuePair, ReadMode, Region as _, RegionRights,
};
use farsight_fabric_shm::ShmQueue;

use crate::harness::{
    Directory, Running, call, connect, connect_once_listening, descriptor_count, eventually, isolated,
    mapping_count, play,
};
use crate::roles::await_ready;

const REGION: RegionId = RegionId(1);
/// Within this time a server's death is noticed, however busy the machine is.
const NOTICE: Duration = Duration::from_secs(10);
const FIRST_LINE: RemoteAddress = RemoteAddress { region: REGION, offset_bytes: 0 };

pub(crate) fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGKILL));
}

/// The first word of the region.
fn read(queue: &mut ShmQueue) -> Result<u64, FabricError> {
    queue.post_read(0, FIRST_LINE, 1, ReadMode::Plain);
    queue.doorbell()?;
    let mut line = [Line::ZERO];
    queue.take_read(0, &mut line)?;
    Ok(line[0].0[0])
}

/// The descriptors open once their number stays the same: a mapping goes before the descriptors beside it.
fn settled_descriptor_count() -> usize {
    let mut last = descriptor_count();
    eventually("a number of descriptors that stays", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = descriptor_count();
        std::mem::replace(&mut last, now) == now
    });
    last
}

#[test]
fn a_hundred_killed_clients_leave_nothing_behind() {
    isolated("killed::a_hundred_killed_clients_leave_nothing_behind", || {
        let directory = Directory::new();
        let server = Running::start(&directory.socket());
        let _region = server.host.create_region(1 << 20, RegionRights::ReadOnly).expect("a region");
        let mut first = play("busy client", &directory.socket());
        await_ready(&mut first);
        kill(first);
        eventually("the first client's end", || server.host.client_count() == 0);
        // The port lets go when it next wakes, which is at once.
        eventually("the first client's mappings", || mapping_count() == 1);
        let descriptors = settled_descriptor_count();

        let mut random = SplitMix64::new(100);
        let mut living = Vec::new();
        let mut connected_max = 0;
        for number in 0..100 {
            let mut child = play("busy client", &directory.socket());
            // Some die while they start and connect, some long after.
            if number % 3 == 0 {
                await_ready(&mut child);
            }
            living.push(child);
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            connected_max = connected_max.max(server.host.client_count());
            if living.len() > 3 {
                kill(living.swap_remove(random.below(4) as usize));
            }
        }
        living.into_iter().for_each(kill);
        assert!(connected_max > 1, "no two clients were ever connected");
        assert!(server.calls() > 10_000, "only {} calls were served", server.calls());
        eventually("every client's end", || server.host.client_count() == 0);
        eventually("every client's mappings", || mapping_count() == 1);
        eventually("every client's descriptors", || descriptor_count() <= descriptors);

        let connection = connect(&directory.socket());
        let mut queue = connection.open_queue().expect("a queue");
        assert_eq!(call(&mut queue, b"still here"), b"still here");
    });
}

#[test]
fn a_killed_server_is_noticed_within_a_second() {
    let directory = Directory::new();
    let mut server = play("server", &directory.socket());
    await_ready(&mut server);
    let connection = connect(&directory.socket());
    let epoch = connection.epoch();
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(REGION).expect("the region attaches");
    assert_eq!(read(&mut queue).expect("a READ"), 42);
    let mut idle = connection.open_queue().expect("a queue");
    assert_eq!(call(&mut idle, b"alive"), b"alive");

    kill(server);
    let died = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = loop {
                if let Err(error) = idle.wait(Duration::from_secs(30)) {
                    break error;
                }
            };
            assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
        });
        while let Ok(word) = read(&mut queue) {
            assert_eq!(word, 42);
            assert!(died.elapsed() < NOTICE, "READs go on after the server's death");
        }
    });
    assert!(died.elapsed() < NOTICE, "noticed after {:?}", died.elapsed());
    assert!(matches!(read(&mut queue), Err(FabricError::Disconnected { .. })));

    // The stale socket is replaced, and the new server has another epoch.
    let mut server = play("server", &directory.socket());
    await_ready(&mut server);
    let again = connect(&directory.socket());
    assert_ne!(again.epoch(), epoch);
    kill(server);
}

/// Mappings and descriptors of this process that keep memory of regions.
fn region_holds() -> [usize; 2] {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let mappings = maps.lines().filter(|line| line.contains("memfd:farsight-region")).count();
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").filter(|entry| {
        // Descriptors come and go while others are looked at.
        let target = entry.as_ref().ok().and_then(|entry| std::fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.to_string_lossy().contains("memfd:farsight-region"))
    });
    [mappings, descriptors.count()]
}

#[test]
fn a_killed_servers_regions_are_given_back_without_a_call() {
    isolated("killed::a_killed_servers_regions_are_given_back_without_a_call", || {
        let directory = Directory::new();
        let mut server = play("server", &directory.socket());
        await_ready(&mut server);
        let connection = connect(&directory.socket());
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(REGION).expect("the region attaches");
        assert_eq!(read(&mut queue).expect("a READ"), 42);
        assert_eq!(region_holds(), [1, 1]);
        // A READ that is rung before the end and taken after it.
        queue.post_read(1, FIRST_LINE, 1, ReadMode::Plain);
        queue.doorbell().expect("the server lives");
        kill(server);
        eventually("the memory's end", || region_holds() == [0, 0]);
        let mut line = [Line::ZERO];
        let late = queue.take_read(1, &mut line).expect_err("what it fetches is no longer there");
        assert!(matches!(late, FabricError::Disconnected { .. }), "{late}");
        assert!(matches!(read(&mut queue), Err(FabricError::Disconnected { .. })));
        drop((queue, connection));
        eventually("the rings' end", || mapping_count() == 0);
    });
}

/// Readers that are inside when the pages go: each READ that succeeds fetched what the server wrote.
#[test]
fn readers_of_a_killed_server_find_its_words_or_its_end() {
    for _ in 0..10 {
        let directory = Directory::new();
        let mut server = play("server", &directory.socket());
        await_ready(&mut server);
        let connection = connect(&directory.socket());
        let queues = [(); 3].map(|()| connection.open_queue().expect("a queue"));
        std::thread::scope(|scope| {
            for (number, mut queue) in queues.into_iter().enumerate() {
                queue.attach(REGION).expect("the region attaches");
                scope.spawn(move || {
                    let begun = Instant::now();
                    let error = loop {
                        let mut line = [Line::ZERO];
                        let word = if number == 0 {
                            read(&mut queue)
                        } else {
                            read_alone(&mut queue, FIRST_LINE, &mut line, ReadMode::Plain)
                                .map(|()| line[0].0[0])
                        };
                        match word {
                            Ok(word) => assert_eq!(word, 42, "a word that was never in the region"),
                            Err(error) => break error,
                        }
                        assert!(begun.elapsed() < 3 * NOTICE, "READs go on after the server's death");
                    };
                    assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
                });
            }
            kill(server);
        });
    }
}

#[test]
fn a_killed_server_is_noticed_although_its_forked_child_holds_the_socket() {
    let directory = Directory::new();
    let mut server = play("server with a forked child", &directory.socket());
    let connection = connect_once_listening(&directory.socket());
    let mut queue = connection.open_queue().expect("a queue");
    await_ready(&mut server);
    assert_eq!(call(&mut queue, b"alive"), b"alive");
    kill(server);
    let died = Instant::now();
    while queue.wait(Duration::from_millis(100)).is_ok() {
        assert!(died.elapsed() < NOTICE, "the death was not noticed");
    }
}

#[test]
fn reads_need_nothing_of_the_server_but_its_life() {
    let directory = Directory::new();
    let mut server = play("server", &directory.socket());
    await_ready(&mut server);
    let connection = connect(&directory.socket());
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(REGION).expect("the region attaches");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it can be stopped");
    for _ in 0..1000 {
        assert_eq!(read(&mut queue).expect("a READ of a stopped server's memory"), 42);
    }
    kill(server);
}

#[test]
fn a_fence_kills_a_client_that_nothing_else_keeps_from_writing_and_returns_when_it_is_dead() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let _region = server.host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
    let mut client = play("unguarded busy client", &directory.socket());
    await_ready(&mut client);
    server.host.fence(ClientId(1)).expect("a fence");
    let calls = server.calls();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", client.id())).expect("it is not reaped yet");
    assert!(stat.contains(") Z "), "the process still runs: {stat}");
    assert_eq!(server.host.client_count(), 0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.calls(), calls, "a request was executed after the fence");
    assert_eq!(client.wait().expect("it ended").signal(), Some(libc::SIGKILL));
    server.host.fence(ClientId(1)).expect("fenced already");
}

pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("a signal");
}

/// Stops a process, and waits until none of its threads runs.
pub(crate) fn stop(child: &Child) {
    signal(child, rustix::process::Signal::STOP);
    let status = format!("/proc/{}/status", child.id());
    eventually("its stop", || {
        std::fs::read_to_string(&status).is_ok_and(|status| status.contains("T (stopped)"))
    });
}

fn awaited(departure: Departure) -> Lingering {
    match departure {
        Departure::Awaited(lingering) => lingering,
        Departure::Gone | Departure::Leaving => panic!("it has gone"),
    }
}

#[test]
fn a_dismissed_client_leaves_when_it_runs_and_its_process_lives() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
    let mut client = play("unguarded writing client", &directory.socket());
    await_ready(&mut client);
    eventually("a write", || region.words()[0].load(Ordering::Acquire) > 0);
    let dismiss = || server.host.dismiss(ClientId(1)).expect("a dismissal");
    stop(&client);
    for _ in 0..3 {
        let lingering = awaited(dismiss());
        assert_eq!((lingering.pid as u32, lingering.spared), (client.id(), None));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(awaited(dismiss()).told_for >= Duration::from_millis(60), "it is told anew each time");
    assert_eq!(server.host.client_count(), 1, "who is stopped has not left");
    signal(&client, rustix::process::Signal::CONT);
    eventually("its leaving", || dismiss() == Departure::Gone);
    let last = region.words()[0].load(Ordering::Acquire);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(region.words()[0].load(Ordering::Acquire), last, "it wrote after it had gone");
    assert!(client.try_wait().expect("its state").is_none(), "its process ended");
    assert_eq!(server.host.client_count(), 0);
    kill(client);
}

#[test]
fn a_process_that_is_ended_is_gone_when_it_has_exited_and_nobody_waits_for_that() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
    let mut client = play("unguarded writing client", &directory.socket());
    await_ready(&mut client);
    eventually("a write", || region.words()[0].load(Ordering::Acquire) > 0);
    let dismiss = || server.host.dismiss(ClientId(1)).expect("a dismissal");
    stop(&client);
    awaited(dismiss());
    server.host.end_process(ClientId(1)).expect("a signal");
    eventually("its end", || match dismiss() {
        Departure::Gone => true,
        Departure::Leaving => false,
        Departure::Awaited(lingering) => panic!("{lingering:?} is waited for"),
    });
    let last = region.words()[0].load(Ordering::Acquire);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(region.words()[0].load(Ordering::Acquire), last, "it wrote after it had gone");
    server.host.end_process(ClientId(1)).expect("there is nothing to end");
    assert!(!client.wait().expect("its end").success(), "it was killed");
}

#[test]
fn a_process_that_serves_memory_is_told_and_never_killed() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let _region = server.host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
    let mut client = play("unguarded writing client that serves", &directory.socket());
    await_ready(&mut client);
    stop(&client);
    assert!(awaited(server.host.dismiss(ClientId(1)).expect("a dismissal")).spared.is_some());
    let refused = server.host.fence(ClientId(1)).expect_err("it cannot be fenced");
    assert!(matches!(refused, FabricError::TimedOut { .. }), "{refused}");
    server.host.end_process(ClientId(1)).expect("it is spared");
    assert!(client.try_wait().expect("its state").is_none(), "it was killed");
    signal(&client, rustix::process::Signal::CONT);
    server.host.fence(ClientId(1)).expect("it runs, and leaves");
    assert!(client.try_wait().expect("its state").is_none(), "it was killed");
    kill(client);
}
