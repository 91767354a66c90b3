//! One GET, straight: the latency path.
//!
//! A blocking caller has nothing to do while a line is on its way, so a leaf that is short is fetched
//! *whole*: the READ of the value does not wait for the key's line to say where the value stands, and two
//! waits become one. Lines of one READ may be of different instants in any order; why that is still
//! linearizable is in docs/protocol/xstore.md. A longer leaf would cost more in lines than the second wait
//! does: there the value's READ follows the key's, as in a batch.
//!
//! No arrays, no lane: one prediction, one READ, one search. What does not come out clean goes to the lane.

use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::{KEY_LINES, KeyLines, KeySearch};

use super::lookup::Start;
use super::{Access, XClient, XStoreError};

/// Lines of the longest leaf that a single GET fetches whole: those of values of up to sixteen bytes. A READ
/// of a leaf of nineteen lines takes longer than two of a few.
const WHOLE_LEAF_LINES_MAX: usize = 11;

/// What the first try found.
enum First {
    /// The version and a copied value, or that the key is absent.
    Answer(Option<u64>),
    Irregular(Start),
}

impl XClient {
    /// The value of `key` into `value`; returns its version, or `None` if the key is absent.
    ///
    /// # Errors
    /// [`XStoreError`].
    ///
    /// # Panics
    /// If `value` is not of the table's value size.
    #[inline]
    pub fn get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        if self.access == Access::Rpc {
            return self.get_by_call(queue, key, value);
        }
        self.pin();
        self.counters.gets += 1;
        match self.get_at_first_try(queue, key, value)? {
            First::Answer(version) => Ok(version),
            First::Irregular(start) => {
                self.counters.irregular += 1;
                self.lookup_one(queue, key, start, value)
            }
        }
    }

    #[inline(always)]
    fn get_at_first_try<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<First, XStoreError> {
        let route = self.model.as_deref().and_then(|model| model.route(key));
        let Some(route) = route else { return Ok(First::Irregular(Start::Unrouted)) };
        let geometry = self.cache.geometry();
        let from = geometry.address(self.cache.region(), route.leaf, 0);
        let leaf_lines = &mut *self.scratch.leaf_lines;
        let is_whole = leaf_lines.len() <= WHOLE_LEAF_LINES_MAX;
        let fetched = if is_whole { leaf_lines.len() } else { KEY_LINES };
        queue.read_alone(from, &mut leaf_lines[..fetched], ReadMode::Stamped)?;
        let key_lines = leaf_lines.first_chunk().expect("a leaf has a key part");
        let (slot, incarnation) = match KeyLines(key_lines).search(key) {
            KeySearch::Hit { slot, incarnation } => (slot, incarnation),
            KeySearch::Absent => return Ok(First::Answer(None)),
            other => return Ok(First::Irregular(Start::after(route.leaf, other))),
        };
        let place = geometry.value_place(slot);
        let value_lines = &mut leaf_lines[place.line..][..geometry.lines_per_value()];
        if !is_whole {
            let from = geometry.address(self.cache.region(), route.leaf, place.line);
            queue.read_alone(from, value_lines, ReadMode::Stamped)?;
        }
        Ok(match geometry.read_value(value_lines, place, incarnation, value) {
            Ok(version) => First::Answer(Some(version)),
            Err(_) => First::Irregular(Start::Again(route.leaf)),
        })
    }

    /// The server searches: a batch of one.
    fn get_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        let mut answers = std::mem::take(&mut self.single);
        let done = self.multi_get(queue, &[key], &mut answers);
        self.single = answers;
        done?;
        Ok(self.single.get(0).map(|(found, version)| {
            value.copy_from_slice(found);
            version
        }))
    }
}
