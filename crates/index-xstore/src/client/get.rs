//! One GET, straight: the latency path.
//!
//! A blocking caller has nothing to do while a line is on its way. So it fetches a short leaf *whole*. The
//! READ of the value does not wait for the key's line to say where the value stands, and two waits become
//! one. Lines of one READ may be of different instants in any order; why that is still linearizable is in
//! docs/protocol/xstore.md. A longer leaf would cost more in lines than the second wait does: there the
//! value's READ follows the key's, as in a batch.
//!
//! No arrays, no lane: one prediction, one READ, one search; and where the leaf lies in the fabric's own
//! memory not even a copy of it. A processor looks ahead a few hundred instructions, so the fewer a GET
//! takes, the more of the next one's waiting lies beside this one's. What does not come out clean goes to the
//! lane.

use farsight_base::LeafNumber;
use farsight_base::words::Widest;
use farsight_fabric::QueuePair;

use super::leaf::Looked;
use super::lookup::Start;
use super::{Access, XClient, XStoreError};

impl XClient {
    /// The value of `key` into `value`; returns its version, or `None` if the key is absent.
    ///
    /// # Errors
    /// [`XStoreError`].
    ///
    /// # Panics
    /// If `value` is not of the table's value size.
    #[inline(always)]
    pub fn get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        let mut leaf = LeafNumber::NONE;
        if let Some(widest) = Widest::if_known() {
            leaf = self.leaf_at_a_glance(key, widest);
            if let Some(version) = self.get_in_place(queue, key, leaf, widest, value) {
                return Ok(Some(version));
            }
        }
        self.get_from(queue, key, leaf, value)
    }

    /// The likeliest leaf of `key`, or [`LeafNumber::NONE`] if that takes a closer look.
    #[inline(always)]
    fn leaf_at_a_glance(&self, key: u64, widest: Widest) -> LeafNumber {
        match self.model.as_deref() {
            Some(model) if self.is_pinned() => model.predict_at_once(key, widest),
            _ => LeafNumber::NONE,
        }
    }

    /// The version of a pair whose value is one word, if the fabric has the leaf in its own memory and `key`
    /// is plainly in it.
    #[inline(always)]
    fn get_in_place<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        leaf: LeafNumber,
        widest: Widest,
        value: &mut [u8],
    ) -> Option<u64> {
        let place = (self.cache.region(), leaf);
        let version = self.cache.reader().get_in_place(queue, place, key, widest, value)?;
        self.counters.gets += 1;
        Some(version)
    }

    /// The value of `key` from `leaf`, or wherever the first look at that leads; from the leaf that a closer
    /// look at the model finds if it is [`LeafNumber::NONE`].
    #[inline(never)]
    fn get_from<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        mut leaf: LeafNumber,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        if self.access == Access::Rpc {
            return self.get_by_call(queue, key, value);
        }
        let mut is_unfetched = false;
        if leaf == LeafNumber::NONE {
            self.pin();
            leaf = self.model.as_deref().map_or(LeafNumber::NONE, |model| model.predict(key));
            is_unfetched = leaf == LeafNumber::NONE;
            if is_unfetched {
                leaf = self.leaf_before(key);
            }
            if leaf == LeafNumber::NONE {
                leaf = self.read_leaf_of(queue, key)?;
            }
            let in_place =
                Widest::if_known().and_then(|widest| self.get_in_place(queue, key, leaf, widest, value));
            if let Some(version) = in_place {
                return self.end_of_get(queue, is_unfetched, Some(version));
            }
        }
        self.counters.gets += 1;
        let start = if leaf == LeafNumber::NONE {
            Start::Unrouted
        } else {
            match self.cache.reader().get(queue, (self.cache.region(), leaf), key, value)? {
                Looked::Value(version) => return self.end_of_get(queue, is_unfetched, Some(version)),
                Looked::Absent => return self.end_of_get(queue, is_unfetched, None),
                Looked::Again => Start::Again(leaf),
                Looked::Elsewhere(found) => Start::after(leaf, found),
            }
        };
        self.counters.slow_path += 1;
        self.lookup_one(queue, key, start, value)
    }

    /// Renews what was missed of the model, and answers.
    fn end_of_get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        is_unfetched: bool,
        version: Option<u64>,
    ) -> Result<Option<u64>, XStoreError> {
        if is_unfetched {
            self.end_published(queue)?;
            self.renew_model(queue, 0)?;
        }
        Ok(version)
    }

    /// The likeliest leaf of `key` by its sub-model, which is READ.
    #[cold]
    fn read_leaf_of<Q: QueuePair>(&mut self, queue: &mut Q, key: u64) -> Result<LeafNumber, XStoreError> {
        let Some(model) = self.model.clone() else { return Ok(LeafNumber::NONE) };
        self.read_sub_models(queue, &model, std::iter::once(key))?;
        Ok(self.published_leaf(&model, key))
    }

    /// The likeliest leaf of `key` by the generation before, because the newest one's sub-model is not there.
    #[cold]
    fn leaf_before(&mut self, key: u64) -> LeafNumber {
        let Some(model) = self.model.as_deref() else { return LeafNumber::NONE };
        let place = model.locate_for_get(key, &mut self.refreshes);
        model.likeliest(place, key)
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
