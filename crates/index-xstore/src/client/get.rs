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

use farsight_base::words::Widest;
use farsight_base::{LeafNumber, Line};
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::{
    KEY_LINES, KeyLines, KeySearch, SHORT_LEAF_LINES, SHORT_VALUE_BYTES, VALUE_LINES_MAX, ValueFault,
    find_short, read_short_value,
};

use super::lookup::Start;
use super::{Access, XClient, XStoreError};

/// Lines of the longest leaf that a single GET fetches whole: that of values of nine to sixteen bytes. A READ
/// of the next one, of nineteen lines, takes longer than two of a few.
const WHOLE_LEAF_LINES_MAX: usize = 11;

/// What the first try found.
enum First {
    /// The version and a copied value, or that the key is absent.
    Answer(Option<u64>),
    SlowPath(Start),
}

impl First {
    /// What a key part without a hit comes to.
    #[inline(never)]
    fn missed(key_lines: &[Line; KEY_LINES], key: u64, leaf: LeafNumber) -> Self {
        match KeyLines(key_lines).search(key) {
            KeySearch::Absent => Self::Answer(None),
            other => Self::SlowPath(Start::after(leaf, other)),
        }
    }

    #[inline(always)]
    fn accepted(version: Result<u64, ValueFault>, leaf: LeafNumber) -> Self {
        match version {
            Ok(version) => Self::Answer(Some(version)),
            Err(_) => Self::SlowPath(Start::Again(leaf)),
        }
    }
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
            Some(model) if self.is_pinned() => model.likeliest_at_a_glance(key, widest),
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
        let geometry = self.cache.geometry();
        if geometry.value_bytes() != SHORT_VALUE_BYTES {
            return None;
        }
        let value: &mut [u8; SHORT_VALUE_BYTES] = value.try_into().expect("a value is of the table's size");
        let line = u64::from(leaf.0) * SHORT_LEAF_LINES as u64;
        let lines = queue.lines_in_place::<SHORT_LEAF_LINES>(self.cache.region(), line)?;
        let found = find_short(lines, key, widest)?;
        queue.count_read_in_place(SHORT_LEAF_LINES);
        self.counters.gets += 1;
        *value = found.value.to_le_bytes();
        Some(found.version)
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
            leaf = self.model.as_deref().map_or(LeafNumber::NONE, |model| model.likeliest_now(key));
            is_unfetched = leaf == LeafNumber::NONE;
            if is_unfetched {
                leaf = self.leaf_before(key);
            }
            let in_place =
                Widest::if_known().and_then(|widest| self.get_in_place(queue, key, leaf, widest, value));
            if let Some(version) = in_place {
                return self.end_of_get(queue, is_unfetched, Some(version));
            }
        }
        self.counters.gets += 1;
        let first = if leaf == LeafNumber::NONE {
            First::SlowPath(Start::Unrouted)
        } else {
            match self.cache.geometry().leaf_lines() {
                SHORT_LEAF_LINES => self.get_whole::<SHORT_LEAF_LINES, Q>(queue, key, leaf, value),
                WHOLE_LEAF_LINES_MAX => self.get_whole::<WHOLE_LEAF_LINES_MAX, Q>(queue, key, leaf, value),
                _ => self.get_in_two(queue, key, leaf, value),
            }?
        };
        match first {
            First::Answer(version) => self.end_of_get(queue, is_unfetched, version),
            First::SlowPath(start) => {
                self.counters.slow_path += 1;
                self.lookup_one(queue, key, start, value)
            }
        }
    }

    /// Renews what was missed of the model, and answers.
    fn end_of_get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        is_unfetched: bool,
        version: Option<u64>,
    ) -> Result<Option<u64>, XStoreError> {
        if is_unfetched {
            self.renew_model(queue, 0)?;
        }
        Ok(version)
    }

    /// The likeliest leaf of `key` by the generation before, because the newest one's sub-model is not there.
    #[cold]
    fn leaf_before(&mut self, key: u64) -> LeafNumber {
        let Some(model) = self.model.as_deref() else { return LeafNumber::NONE };
        self.refreshes.count_unfetched(model, model.top().dispatch(key));
        model.likeliest(model.place_before(key), key)
    }

    /// From one READ of a whole leaf, of `LINES` lines.
    #[inline(always)]
    fn get_whole<const LINES: usize, Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        leaf: LeafNumber,
        value: &mut [u8],
    ) -> Result<First, FabricError> {
        let geometry = self.cache.geometry();
        let mut missed = First::Answer(None);
        let choose = |key_lines: &[Line; KEY_LINES]| {
            let Some(hit) = KeyLines(key_lines).hit(key) else {
                missed = First::missed(key_lines, key, leaf);
                return None;
            };
            Some((geometry.value_place(hit.0).line, hit))
        };
        let keep = |(slot, incarnation), lines: &[Line; 1]| {
            if LINES == SHORT_LEAF_LINES {
                let value = value.try_into().expect("a value is of the table's size");
                read_short_value(&lines[0], slot, incarnation, value)
            } else {
                geometry.read_value(lines, geometry.value_place(slot), incarnation, value)
            }
        };
        let (region, line) = (self.cache.region(), geometry.line_number(leaf, 0));
        let kept = queue.read_part::<LINES, KEY_LINES, 1, _, _>(region, line, choose, keep)?;
        Ok(kept.map_or(missed, |version| First::accepted(version, leaf)))
    }

    /// From a READ of the key part and one of the value.
    #[inline(never)]
    fn get_in_two<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        leaf: LeafNumber,
        value: &mut [u8],
    ) -> Result<First, FabricError> {
        let geometry = self.cache.geometry();
        let address = |line| geometry.address(self.cache.region(), leaf, line);
        let mut key_lines = [Line::ZERO; KEY_LINES];
        queue.read_alone(address(0), &mut key_lines, ReadMode::Stamped)?;
        let Some((slot, incarnation)) = KeyLines(&key_lines).hit(key) else {
            return Ok(First::missed(&key_lines, key, leaf));
        };
        let place = geometry.value_place(slot);
        let mut lines = [Line::ZERO; VALUE_LINES_MAX];
        let lines = &mut lines[..geometry.lines_per_value()];
        queue.read_alone(address(place.line), lines, ReadMode::Stamped)?;
        Ok(First::accepted(geometry.read_value(lines, place, incarnation, value), leaf))
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
