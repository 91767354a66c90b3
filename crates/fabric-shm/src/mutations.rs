//! Posted WRITEs and atomics of one batch, until the doorbell executes them.
//!
//! Invariant: every target was checked against its region's bounds and rights when it was posted. They
//! execute in posting order; two WRITEs become visible in that order. An atomic does not execute if the WRITE
//! before it did not: nobody is to find what was not written.

use std::ops::Range;

use farsight_base::RegionId;
use farsight_base::sync::{AtomicU64, Ordering, fence};

/// A change as it is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'w> {
    Write(&'w [u64]),
    CompareSwap { expected: u64, new: u64 },
    FetchAdd { delta: u64 },
}

/// The checked place of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) region: RegionId,
    /// The word at which the change begins.
    pub(crate) first: usize,
}

#[derive(Debug)]
enum Pending {
    /// Words of `Mutations::written`.
    Write(Range<usize>),
    CompareSwap {
        expected: u64,
        new: u64,
    },
    FetchAdd {
        delta: u64,
    },
}

/// The changes of the open batch.
#[derive(Debug, Default)]
pub(crate) struct Mutations {
    pending: Vec<(usize, Target, Pending)>,
    written: Vec<u64>,
}

impl Mutations {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn post(&mut self, slot: usize, target: Target, change: Change<'_>) {
        let pending = match change {
            Change::Write(words) => {
                let start = self.written.len();
                self.written.extend_from_slice(words);
                Pending::Write(start..self.written.len())
            }
            Change::CompareSwap { expected, new } => Pending::CompareSwap { expected, new },
            Change::FetchAdd { delta } => Pending::FetchAdd { delta },
        };
        self.pending.push((slot, target, pending));
    }

    /// Executes and forgets them. `words(region)` are a region's words, none if the region is no longer
    /// there; `found` gets what each found, or nothing if it did not execute.
    pub(crate) fn execute<'r>(
        &mut self,
        words: impl Fn(RegionId) -> &'r [AtomicU64],
        mut found: impl FnMut(usize, Option<u64>),
    ) {
        let mut is_unwritten = false;
        for (slot, target, pending) in self.pending.drain(..) {
            let words = words(target.region);
            if matches!(pending, Pending::Write(_)) {
                is_unwritten = words.is_empty();
            }
            if words.is_empty() || is_unwritten {
                found(slot, None);
                continue;
            }
            let shared = &words[target.first..];
            let word = match pending {
                Pending::Write(range) => {
                    // Release: what was written before is visible before. Partner: the Acquire fences of
                    // `copy_stamped`, or whatever orders a reader's two looks.
                    fence(Ordering::Release);
                    for (shared, word) in shared.iter().zip(&self.written[range]) {
                        shared.store(*word, Ordering::Relaxed);
                    }
                    0
                }
                // AcqRel: an atomic word hands over what was written before it, a latch as well as a counter.
                // Partner: the atomics and Acquire loads of other processes on the same word.
                Pending::CompareSwap { expected, new } => {
                    let outcome =
                        shared[0].compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
                    outcome.unwrap_or_else(|found| found)
                }
                Pending::FetchAdd { delta } => shared[0].fetch_add(delta, Ordering::AcqRel),
            };
            found(slot, Some(word));
        }
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atomic_does_not_execute_behind_a_write_that_did_not() {
        let (there, gone) = (RegionId(1), RegionId(2));
        let memory: [AtomicU64; 2] = Default::default();
        let mut mutations = Mutations::default();
        for (slot, region, change) in [
            (0, there, Change::FetchAdd { delta: 1 }),
            (1, gone, Change::Write(&[9])),
            (2, there, Change::FetchAdd { delta: 2 }),
            (3, there, Change::CompareSwap { expected: 1, new: 7 }),
            (4, there, Change::Write(&[4])),
            (5, there, Change::FetchAdd { delta: 8 }),
        ] {
            mutations.post(slot, Target { region, first: 0 }, change);
        }
        let mut outcomes = Vec::new();
        mutations.execute(
            |region| if region == there { &memory[..] } else { &[] },
            |slot, found| outcomes.push((slot, found)),
        );
        let expected = [(0, Some(0)), (1, None), (2, None), (3, None), (4, Some(0)), (5, Some(4))];
        assert_eq!(outcomes, expected);
        assert_eq!(memory[0].load(Ordering::Relaxed), 12);
    }
}
