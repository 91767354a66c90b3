//! Where a test's randomness comes from, and how a failure is replayed.

use std::time::{SystemTime, UNIX_EPOCH};

use farsight_base::prng::{SplitMix64, mix};
use farsight_base::report::say;

/// The environment variable that sets the seed.
pub const SEED_VARIABLE: &str = "FARSIGHT_TEST_SEED";

/// The seed of one test; printed if the test fails while it is held.
pub struct Seed {
    number: u64,
    test: String,
}

impl Seed {
    /// The seed that the environment names, or a new one.
    ///
    /// # Panics
    /// If the environment names one that is no number.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let number = match std::env::var(SEED_VARIABLE) {
            Ok(given) => given.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is no number: {given:?}")),
            Err(_) => mix(SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |at| at.as_nanos() as u64)),
        };
        Self { number, test: test.to_owned() }
    }

    /// The sequence that part `part` of the test draws from.
    #[must_use]
    pub fn random(&self, part: u64) -> SplitMix64 {
        SplitMix64::new(self.number ^ mix(part))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(format_args!("{} failed; replay with {SEED_VARIABLE}={}", self.test, self.number));
        }
    }
}
