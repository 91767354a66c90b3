//! What the operating system knows of this process and its machine.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Taken for the machine's memory where `/proc/meminfo` does not say it.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;
/// Where control groups show their limits.
const GROUPS: &str = "/sys/fs/cgroup";

/// Processor seconds that all threads of this process have used.
#[must_use]
pub fn cpu_s() -> f64 {
    seconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor time that this thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Bytes of the machine's memory.
#[must_use]
pub fn machine_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    meminfo_bytes(&text, "MemTotal:").unwrap_or(UNKNOWN_MEMORY_BYTES)
}

/// Bytes of memory that this process has: its own, and its part of what it shares. `None` where the system
/// does not say it.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let of = |name| meminfo_bytes(&status, name);
    Some(of("RssAnon:")? + of("RssShmem:")?)
}

/// What a node may have by default: nine tenths of what its process has and may still take.
#[must_use]
pub fn default_memory_limit_bytes() -> Option<u64> {
    let all_bytes = memory_bytes()?.checked_add(available_memory_bytes()?)?;
    Some(all_bytes / 10 * 9)
}

/// Bytes of memory that this process may still take, by the machine's and its control groups' word; `None`
/// where neither says it.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own_group = groups.lines().find_map(|line| line.strip_prefix("0::/")).map(Path::new);
    let limits = own_group.into_iter().flat_map(Path::ancestors).filter_map(|group| {
        let limit = Path::new(GROUPS).join(group).join("memory.max");
        std::fs::read_to_string(limit).ok()?.trim().parse().ok()
    });
    limits.chain(meminfo_bytes(&meminfo, "MemAvailable:")).min()
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        let total = |text| meminfo_bytes(text, "MemTotal:");
        assert_eq!(total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
    }

    #[test]
    fn no_more_memory_is_available_than_there_is() {
        let available = available_memory_bytes().expect("Linux says it");
        assert!((1..=machine_memory_bytes()).contains(&available), "{available} B");
    }

    #[test]
    fn work_uses_processor_time() {
        let before = cpu_s();
        let mut sum = 0_u64;
        for index in 0..20_000_000 {
            sum = std::hint::black_box(sum ^ index);
        }
        assert!(cpu_s() > before, "{sum}");
    }
}
