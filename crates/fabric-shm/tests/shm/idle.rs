//! Idle servers and clients cost no processor time.

use std::time::{Duration, Instant};

use farsight_fabric::{Connection, QueuePair};

use crate::harness::{Directory, Running, call, connect, isolated};

/// User and system time of this process, all threads.
fn processor_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spent` is live and the call writes one timespec.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut spent) };
    assert_eq!(outcome, 0, "the clock exists");
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

#[test]
fn idle_costs_no_processor_time() {
    isolated("idle::idle_costs_no_processor_time", || {
        let directory = Directory::new();
        let _server = Running::start(&directory.socket());
        let connections: Vec<_> = (0..3).map(|_| connect(&directory.socket())).collect();
        let mut queues: Vec<_> =
            connections.iter().map(|connection| connection.open_queue().expect("a queue")).collect();
        for queue in &mut queues {
            assert_eq!(call(queue, b"warm"), b"warm");
        }
        std::thread::sleep(Duration::from_millis(100));
        let (before, started) = (processor_time(), Instant::now());
        std::thread::scope(|scope| {
            for queue in &mut queues {
                scope.spawn(|| queue.wait(Duration::from_secs(2)).expect("waiting"));
            }
        });
        assert!(started.elapsed() >= Duration::from_secs(2));
        let used = processor_time().saturating_sub(before);
        assert!(used < Duration::from_millis(20), "two idle seconds cost {used:?}");
    });
}
