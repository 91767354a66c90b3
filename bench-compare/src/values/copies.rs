//! Plain copies of values out of memory: what this machine's memory gives.

use anyhow::{Context, Result};
use memmap2::{Advice, MmapMut};

use crate::peers::first_pair;

/// Each key's first value, one after the other, on huge pages if there are.
pub(super) struct Copies {
    values: MmapMut,
    value_bytes: usize,
    copy: Vec<u8>,
}

impl Copies {
    pub(super) fn new(keys: &[u64], value_bytes: usize) -> Result<Self> {
        let mut values = MmapMut::map_anon(keys.len() * value_bytes).context("asking for memory")?;
        // Where there are none, there are small ones.
        let _ = values.advise(Advice::HugePage);
        for (place, key) in values.chunks_exact_mut(value_bytes).zip(keys) {
            place.copy_from_slice(&first_pair(*key, value_bytes).1);
        }
        Ok(Self { values, value_bytes, copy: vec![0; value_bytes] })
    }

    /// Copies the value of the key at `index`.
    #[inline]
    pub(super) fn copy(&mut self, index: usize) -> &[u8] {
        self.copy.copy_from_slice(&self.values[index * self.value_bytes..][..self.value_bytes]);
        &self.copy
    }
}
