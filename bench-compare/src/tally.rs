//! What stores answer goes here and is checked. All stores here have keys of eight bytes, each the number of
//! its identity.

use farsight_bench::driver::checked_value;
use farsight_oracles::Identity;

/// The value of `key` after `counter` writes.
#[inline]
pub(crate) fn value_of(key: u64, counter: u32) -> u64 {
    let mut value = [0; 8];
    checked_value::write(Identity(key), counter, &mut value);
    u64::from_le_bytes(value)
}

/// Answers counted, and the first wrong one.
pub(crate) struct Tally<'a> {
    /// The keys loaded, ascending: how long a scan must be.
    loaded: &'a [u64],
    pub(crate) wrong: u64,
    pub(crate) first_wrong: String,
    scan: Scan,
}

#[derive(Default)]
struct Scan {
    from: u64,
    limit: usize,
    count: usize,
    previous: Option<u64>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(loaded: &'a [u64]) -> Self {
        Self { loaded, wrong: 0, first_wrong: String::new(), scan: Scan::default() }
    }

    /// What a GET of a stored key found.
    #[inline(always)]
    pub(crate) fn read(&mut self, key: u64, value: Option<u64>) {
        if !value.is_some_and(|value| belongs(key, value)) {
            self.note(format!("key {key}, which is stored, has the value {value:x?}"));
        }
    }

    /// Begins a scan of `limit` pairs from the stored key `from`.
    #[inline(always)]
    pub(crate) fn begin_scan(&mut self, from: u64, limit: usize) {
        self.scan = Scan { from, limit, count: 0, previous: None };
    }

    /// The scan's next pair.
    #[inline(always)]
    pub(crate) fn pair(&mut self, key: u64, value: u64) {
        let is_in_order = self.scan.previous.map_or(key == self.scan.from, |previous| previous < key);
        if !(is_in_order && belongs(key, value)) {
            let Scan { from, previous, .. } = self.scan;
            self.note(format!("a scan from {from} has {key}: {value:x} after {previous:?}"));
        }
        self.scan.previous = Some(key);
        self.scan.count += 1;
    }

    /// Ends the scan: it may be short only at the end of the keys.
    #[inline(always)]
    pub(crate) fn end_scan(&mut self) {
        if self.scan.count != self.scan.limit {
            self.check_short_scan();
        }
    }

    #[cold]
    fn check_short_scan(&mut self) {
        let Scan { from, limit, count, .. } = self.scan;
        let least = (self.loaded.len() - self.loaded.partition_point(|&key| key < from)).min(limit);
        if count < least || count > limit {
            self.note(format!("a scan of {limit} from {from} has {count} pairs, not at least {least}"));
        }
    }

    #[cold]
    fn note(&mut self, evidence: String) {
        if self.wrong == 0 {
            self.first_wrong = evidence;
        }
        self.wrong += 1;
    }
}

#[inline(always)]
fn belongs(key: u64, value: u64) -> bool {
    checked_value::counter(Identity(key), &value.to_le_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_of(check: impl FnOnce(&mut Tally<'_>)) -> u64 {
        let keys = [10, 20, 30];
        let mut tally = Tally::new(&keys);
        check(&mut tally);
        assert_eq!(tally.wrong > 0, !tally.first_wrong.is_empty());
        tally.wrong
    }

    #[test]
    fn what_is_wrong_is_seen() {
        assert_eq!(wrong_of(|tally| tally.read(10, Some(value_of(10, 3)))), 0);
        assert_eq!(wrong_of(|tally| tally.read(10, None)), 1);
        assert_eq!(wrong_of(|tally| tally.read(10, Some(value_of(20, 3)))), 1);
        let scan = |tally: &mut Tally<'_>, limit: usize, keys: &[u64]| {
            tally.begin_scan(20, limit);
            for key in keys {
                tally.pair(*key, value_of(*key, 0));
            }
            tally.end_scan();
        };
        assert_eq!(wrong_of(|tally| scan(tally, 5, &[20, 25, 30])), 0);
        assert_eq!(wrong_of(|tally| scan(tally, 5, &[20])), 1, "short");
        assert_eq!(wrong_of(|tally| scan(tally, 1, &[20, 30])), 1, "long");
        assert_eq!(wrong_of(|tally| scan(tally, 2, &[30, 20])), 2, "out of order");
    }
}
