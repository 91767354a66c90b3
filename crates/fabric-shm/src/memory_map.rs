//! What the kernel says of this process's mappings (`/proc/self/smaps`).
//!
//! Invariant: what is told was read after the moment that its caller names. To read it takes milliseconds, as
//! the kernel walks the page tables of the whole process. So all mappings share what was read last.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two reads for changes that the first one may have missed.
pub(crate) const READ_INTERVAL: Duration = Duration::from_secs(1);

static NEWEST: Mutex<Option<Arc<MemoryMap>>> = Mutex::new(None);

/// The mappings that have huge pages, at one time.
#[derive(Debug)]
pub(crate) struct MemoryMap {
    /// Before it was read.
    pub(crate) at: Instant,
    /// Addresses, in their order, and bytes that are on huge pages there.
    on_huge_pages: Vec<(Range<usize>, u64)>,
}

impl MemoryMap {
    /// What was read last, if that was behind `changed_at` and less than [`READ_INTERVAL`] ago, else what is
    /// read now.
    pub(crate) fn behind(changed_at: Instant) -> Arc<Self> {
        // Each change is complete.
        let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*newest
            && known.at > changed_at
            && known.at.elapsed() < READ_INTERVAL
        {
            return Arc::clone(known);
        }
        let read = Arc::new(Self::read());
        *newest = Some(Arc::clone(&read));
        read
    }

    /// What the kernel says now; nothing if it does not.
    pub(crate) fn read() -> Self {
        let at = Instant::now();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        Self { at, on_huge_pages: parse(&text) }
    }

    /// Bytes of these addresses that are on huge pages.
    pub(crate) fn huge_page_bytes(&self, wanted: Range<usize>) -> u64 {
        let first = self.on_huge_pages.partition_point(|(range, _)| range.start < wanted.start);
        let within = self.on_huge_pages[first..].iter().take_while(|(range, _)| range.end <= wanted.end);
        within.map(|(_, bytes)| bytes).sum()
    }
}

/// The mappings of shared memory that have huge pages.
fn parse(text: &str) -> Vec<(Range<usize>, u64)> {
    let (mut found, mut addresses) = (Vec::new(), 0..0);
    for line in text.lines() {
        if let Some(range) = address_range(line) {
            addresses = range;
        } else if line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:") {
            let kibibytes = line.split_ascii_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
            match kibibytes {
                Some(kibibytes) if kibibytes > 0 => found.push((addresses.clone(), kibibytes * 1024)),
                _ => {}
            }
        }
    }
    found
}

/// The range of a mapping's first line (`start-end perms …`), `None` for the lines about it.
fn address_range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_counted_that_lie_within_the_addresses() {
        let mapping = |range: &str, shmem: u64, file: u64| {
            format!(
                "{range} r--s 00000000 00:01 7 /memfd:x (deleted)\nSize: 8 kB\nShmemPmdMapped: {shmem} kB\n\
                 FilePmdMapped: {file} kB\nVmFlags: rd sh\n"
            )
        };
        let text = [
            mapping("1000-3000", 4, 0),
            mapping("3000-5000", 0, 0),
            mapping("5000-6000", 8, 2),
            mapping("6000-8000", 16, 0),
        ]
        .concat();
        let map = MemoryMap { at: Instant::now(), on_huge_pages: parse(&text) };
        let of = |range| map.huge_page_bytes(range) / 1024;
        assert_eq!([of(0..0x1000), of(0x1000..0x3000), of(0x3000..0x6000)], [0, 4, 10]);
        assert_eq!([of(0x1000..0x8000), of(0x1000..0x7000), of(0x2000..0x8000)], [30, 14, 26]);
        assert_eq!(parse("no such file"), []);
    }

    #[test]
    fn what_was_read_before_a_change_is_read_again() {
        let before = Instant::now();
        let first = MemoryMap::behind(before);
        assert!(first.at > before);
        let second = MemoryMap::behind(Instant::now());
        assert!(second.at > first.at);
    }
}
