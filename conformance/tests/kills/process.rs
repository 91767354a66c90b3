//! What a process holds, as the kernel counts it.

use std::fs;
use std::time::{Duration, Instant};

use farsight_conformance::engine::harness::PATIENCE;

/// Threads, descriptors, memory files mapped, and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
    /// Mappings of the fabric's memory files.
    pub(crate) mappings: usize,
    /// Memory of its own, without what it shares.
    pub(crate) anonymous_bytes: u64,
}

/// What an allocator may keep for later.
const SLACK_BYTES: u64 = 48 << 20;

impl Footprint {
    pub(crate) fn of_this_process() -> Self {
        Self::of("self")
    }

    /// Of the process with this number.
    pub(crate) fn of(process: &str) -> Self {
        let count = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).expect("/proc").count();
        let read = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).expect("/proc");
        let status = read("status");
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a size");
        let kibibytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().expect("a number");
        Self {
            threads: count("task"),
            descriptors: count("fd"),
            mappings: read("maps").lines().filter(|line| line.contains("memfd:farsight")).count(),
            anonymous_bytes: kibibytes << 10,
        }
    }

    /// Waits until what `now` finds is no more than this in anything that must not grow.
    pub(crate) fn await_return(&self, who: &str, now: impl Fn() -> Self) {
        let begun = Instant::now();
        loop {
            let now = now();
            if now.threads <= self.threads
                && now.descriptors <= self.descriptors
                && now.mappings <= self.mappings
                && now.anonymous_bytes <= self.anonymous_bytes + SLACK_BYTES
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{who} had {self:?} and keeps {now:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
