//! Damaged pairs that readers of a part have met, for who repairs them.
//!
//! Invariant: at most [`DAMAGED_MAX`] wait. Others are met again: by the next call for them, or by the next
//! pass that scrubs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pairs that wait at most.
const DAMAGED_MAX: usize = 1024;

/// Versions of damaged pairs by their keys.
#[derive(Default)]
pub(super) struct DamagedPairs(Mutex<BTreeMap<u64, u64>>);

impl DamagedPairs {
    /// Notes that the block of this version was damaged.
    pub(super) fn note(&self, key: u64, version: u64) {
        let mut pairs = self.lock();
        if pairs.len() < DAMAGED_MAX || pairs.contains_key(&key) {
            pairs.insert(key, version);
        }
    }

    /// Takes all keys, with their versions.
    pub(super) fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // A change of it is never half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
