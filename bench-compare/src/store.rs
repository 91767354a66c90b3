//! What a store is asked in a comparison.

use anyhow::Result;

use crate::tally::Tally;

/// A loaded store. Answers go into the tally, which checks them.
pub(crate) trait Store {
    /// GETs of stored keys, one by one.
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()>;

    /// The same GETs together; one by one if the store has no way to take them so.
    fn get_batch(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        self.get_each(keys, tally)
    }

    /// Scans from stored keys, each with its limit.
    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()>;

    /// Stores pairs, new or not.
    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()>;

    /// Bytes that a client keeps in its own memory to find pairs in the store's; `None` if there is nothing
    /// between the two.
    fn client_bytes(&self) -> Option<u64> {
        None
    }
}
