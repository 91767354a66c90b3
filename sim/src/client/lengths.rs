//! Values of any length: which they have, and what that costs.

use farsight_base::LINE_BYTES;
use farsight_base::prng::mix;
use farsight_layout::value_block::block_lines;
use farsight_oracles::Identity;
use farsight_protocol::INTEGER_BYTES;

use super::Client;
use crate::cluster::{Cluster, reads_by_reference_max};

impl<C: Cluster> Client<C> {
    /// Bytes of the value of the write to `key` with this number.
    pub(super) fn value_bytes(&self, key: Identity, number: u64) -> usize {
        match self.plan.block_lengths {
            Some(_) if self.is_counter(key) => INTEGER_BYTES,
            Some(lengths) => lengths[mix(number) as usize % lengths.len()],
            None => self.table.value_bytes(),
        }
    }

    /// Bytes of the blocks of the pairs that the last scan found, if their values have any length.
    pub(crate) fn block_bytes_found(&self) -> u64 {
        let lines = |value: &[u8]| block_lines(size_of::<u64>(), value.len()) as u64;
        self.store.found(0).map(|found| lines(&found.value) * LINE_BYTES as u64).sum()
    }

    /// READs for so many keys at most.
    pub(super) fn reads_max(&self, keys: usize) -> u64 {
        let longest = self.plan.block_lengths.and_then(|lengths| lengths.iter().copied().max());
        let by_reference = |most| longest.map_or(most, |longest| reads_by_reference_max(most, longest));
        C::READS_A_KEY_MAX.map_or(u64::MAX, |most| by_reference(most) * keys as u64)
    }
}
