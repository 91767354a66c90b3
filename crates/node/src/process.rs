//! What the operating system knows of this process and its machine.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Taken for the machine's memory where `/proc/meminfo` does not say it.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

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
    memory_total_bytes(&text).unwrap_or(UNKNOWN_MEMORY_BYTES)
}

fn memory_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(memory_total_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        assert_eq!(memory_total_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(memory_total_bytes("MemTotal: many kB\n"), None);
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
