//! Bounds of waiting inside a server's process.
//!
//! Invariant: nobody waits for ever. An operation that finds a latch, a lock or a line taken pauses and tries
//! again, a fixed number of times. Then it fails with [`Contended`] and has changed nothing.

use std::fmt;
use std::time::Duration;

use farsight_base::LeafNumber;
use farsight_base::sync::spin_loop;

/// Pauses that only spin: a holder that runs is done within them.
const SPINNING_PAUSES: u32 = 32;
/// Pauses after which a pause no longer only gives the processor away but sleeps. The holder was preempted,
/// and a busy machine needs time to come back to it.
const SLEEPLESS_PAUSES: u32 = 128;
/// How long a pause sleeps.
const SLEEP: Duration = Duration::from_micros(100);
/// Pauses in all: about half a second, however busy the machine.
const PAUSES_MAX: u32 = 1 << 12;

/// What an operation waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// A leaf: its latch, or its lines to be even.
    Leaf(LeafNumber),
    /// The tree's inner nodes to stand still.
    InnerNodes,
    /// The key's block to be another's no more.
    Block,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(leaf) => leaf.fmt(f),
            Self::InnerNodes => f.write_str("the inner nodes"),
            Self::Block => f.write_str("the key's block"),
        }
    }
}

/// A wait came to its bound. Nothing was changed; the operation may be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("key {key}: {waited} stayed busy for {attempts} attempts")]
pub struct Contended {
    /// The key of the operation.
    pub key: u64,
    /// What was waited for, at the end.
    pub waited: Waited,
    /// Attempts made.
    pub attempts: u32,
}

/// The count of one operation's attempts.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// No attempt yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True whenever a thread in the way that runs must have finished: time to look whether any thread is in
    /// the way.
    #[must_use]
    pub fn is_time_to_look(&self) -> bool {
        self.attempts > 0 && self.attempts.is_multiple_of(SPINNING_PAUSES)
    }

    /// Waits a moment before the next attempt.
    ///
    /// # Errors
    /// [`Contended`] when the attempts are spent.
    pub fn pause(&mut self, key: u64, waited: Waited) -> Result<(), Contended> {
        self.attempts += 1;
        if self.attempts > PAUSES_MAX {
            return Err(Contended { key, waited, attempts: self.attempts - 1 });
        }
        if cfg!(any(loom, shuttle)) || self.attempts <= SPINNING_PAUSES {
            (0..self.attempts.min(SPINNING_PAUSES)).for_each(|_| spin_loop());
        } else if self.attempts <= SLEEPLESS_PAUSES {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_and_says_what_for() {
        let mut backoff = Backoff::new();
        let waited = Waited::Leaf(LeafNumber(3));
        let ended = (0..=PAUSES_MAX).find_map(|_| backoff.pause(7, waited).err()).expect("a bound");
        assert_eq!(ended.to_string(), "key 7: leaf 3 stayed busy for 4096 attempts");
    }
}
