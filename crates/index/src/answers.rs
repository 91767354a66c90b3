//! Where reads put what they find: flat, reusable arrays, so that a batch allocates nothing once it is warm.
//!
//! Invariant: values have one size, and each has its place; or they have any length, and each has a *span* of
//! the bytes that were appended.

use std::ops::Range;

use farsight_layout::Deadline;

/// The values of a batch of keys, in the keys' order.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    value_bytes: usize,
    versions: Vec<u64>,
    values: Vec<u8>,
    /// By key, where its value stands; empty where values have one size.
    spans: Vec<Range<usize>>,
    /// By key, when its pair ends; empty where pairs have no deadlines, or they are not taken off yet.
    deadlines: Vec<Deadline>,
}

/// What is stored of a value is too short for the deadline that it must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the value of number {index} has {got_bytes} B, less than its deadline has")]
pub struct NoDeadline {
    /// The number of the answer, or of the pair.
    pub index: usize,
    /// Its bytes.
    pub got_bytes: usize,
}

/// Takes the deadline off what is stored of a value: `span` is the value's, then.
fn take_deadline(values: &[u8], index: usize, span: &mut Range<usize>) -> Result<Deadline, NoDeadline> {
    let (deadline, value) =
        Deadline::split(&values[span.clone()]).ok_or(NoDeadline { index, got_bytes: span.len() })?;
    span.start = span.end - value.len();
    #[cfg(injected)]
    if crate::injected::ENDED_PAIR_RETURNED.is_injected() {
        return Ok(Deadline::NEVER);
    }
    Ok(deadline)
}

impl Answers {
    /// Makes room for `count` values of `value_bytes`, all absent.
    pub fn reset(&mut self, count: usize, value_bytes: usize) {
        self.value_bytes = value_bytes;
        self.versions.clear();
        self.versions.resize(count, 0);
        // What the values held stays: an absent version hides it.
        self.values.resize(count * value_bytes, 0);
        self.spans.clear();
        self.deadlines.clear();
    }

    /// Makes room for `count` values of any length, all absent.
    pub fn reset_any_length(&mut self, count: usize) {
        self.reset(count, 0);
        self.spans.resize(count, 0..0);
    }

    /// Makes value `index` present, with `version`, where values have any length.
    pub fn set_value(&mut self, index: usize, version: u64, value: &[u8]) {
        let begin = self.values.len();
        self.values.extend_from_slice(value);
        self.spans[index] = begin..self.values.len();
        self.versions[index] = version;
    }

    /// Makes room for value `index`, of any length, which comes in pieces. It is absent until it has a
    /// version.
    pub fn begin_value(&mut self, index: usize, value_bytes: usize) {
        let begin = self.values.len();
        self.values.resize(begin + value_bytes, 0);
        self.spans[index] = begin..self.values.len();
    }

    /// Puts a piece of value `index`, behind `offset` bytes of it, where [`Answers::begin_value`] made room.
    ///
    /// # Panics
    /// If the piece is longer than the room.
    pub fn put_piece(&mut self, index: usize, offset: usize, piece: &[u8]) {
        let value = &mut self.values[self.spans[index].clone()];
        value[offset..offset + piece.len()].copy_from_slice(piece);
    }

    /// Takes the deadlines off what is stored of values of any length. Pairs that have ended by `now_ms` are
    /// absent then.
    ///
    /// # Errors
    /// [`NoDeadline`].
    pub fn take_deadlines(&mut self, now_ms: u64) -> Result<(), NoDeadline> {
        self.deadlines.resize(self.versions.len(), Deadline::NEVER);
        for (index, version) in self.versions.iter_mut().enumerate().filter(|(_, version)| **version > 0) {
            let deadline = take_deadline(&self.values, index, &mut self.spans[index])?;
            if deadline.is_past(now_ms) {
                *version = 0;
            }
            self.deadlines[index] = deadline;
        }
        Ok(())
    }

    /// When the pair of key `index` ends, if deadlines were taken off.
    #[must_use]
    pub fn deadline(&self, index: usize) -> Option<Deadline> {
        self.deadlines.get(index).copied()
    }

    /// Answers in the batch.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// True for the batch of no keys.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// The value of key `index` and its version; `None` if the key is absent.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], u64)> {
        let version = self.versions[index];
        if version == 0 {
            return None;
        }
        let value = match self.spans.get(index) {
            None => &self.values[index * self.value_bytes..][..self.value_bytes],
            Some(span) => &self.values[span.clone()],
        };
        Some((value, version))
    }

    /// All answers, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Option<(&[u8], u64)>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The versions of all answers, in order; zero where the key is absent.
    #[inline]
    #[must_use]
    pub fn versions(&self) -> &[u64] {
        &self.versions
    }

    /// The values of all answers, one behind the other; undefined where the key is absent, or if values have
    /// any length.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The room for value `index`.
    #[inline(always)]
    pub fn value_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.values[index * self.value_bytes..][..self.value_bytes]
    }

    /// The versions and values of the `count` keys from `first` on, to be written.
    #[inline]
    pub fn part_mut(&mut self, first: usize, count: usize) -> (&mut [u64], &mut [u8]) {
        let bytes = first * self.value_bytes..(first + count) * self.value_bytes;
        (&mut self.versions[first..first + count], &mut self.values[bytes])
    }

    /// Marks value `index` present with `version`, or absent with zero.
    #[inline(always)]
    pub fn set_version(&mut self, index: usize, version: u64) {
        self.versions[index] = version;
    }
}

/// The pairs that a batch of scans found, scan after scan.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    value_bytes: usize,
    /// Pairs held. The arrays may be longer: what stands behind is room, so that none of it is cleared twice.
    count: usize,
    keys: Vec<u64>,
    versions: Vec<u64>,
    values: Vec<u8>,
    ends: Vec<usize>,
    /// By pair, where its value stands, if values have any length.
    spans: Option<Vec<Range<usize>>>,
    /// Bytes of values of any length from which on a scan is cut.
    bytes_max: Option<usize>,
    is_cut: bool,
}

/// One stored pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<'a> {
    /// The key.
    pub key: u64,
    /// The version, which grows with each write of the key.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
}

/// Room for keys, versions and values of one word each.
pub type ShortRoom<'a, const COUNT: usize> =
    (&'a mut [u64; COUNT], &'a mut [u64; COUNT], &'a mut [[u8; 8]; COUNT]);

/// Room behind the pairs held, for as many as were requested.
pub struct PairRoom<'a> {
    /// Keys.
    pub keys: &'a mut [u64],
    /// Versions.
    pub versions: &'a mut [u64],
    /// Values, one after the other.
    pub values: &'a mut [u8],
}

impl Pairs {
    /// Empties the arrays, for values of `value_bytes`.
    pub fn reset(&mut self, value_bytes: usize) {
        self.value_bytes = value_bytes;
        self.count = 0;
        self.ends.clear();
        self.spans = None;
        self.is_cut = false;
    }

    /// Bounds the memory of a scan of values of any length: it is cut behind the value with which they have
    /// so many bytes. Several scans that are made together are not to be bounded: nobody could say which of
    /// them was cut.
    pub fn bound_bytes(&mut self, bytes: Option<usize>) {
        self.bytes_max = bytes;
    }

    /// The bytes from which on a scan is cut, if there are any.
    #[must_use]
    pub fn bytes_max(&self) -> Option<usize> {
        self.bytes_max
    }

    /// Bytes that values may still take before the scan is cut.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        let most = self.bytes_max.filter(|_| self.spans.is_some());
        most.map_or(usize::MAX, |most| most.saturating_sub(self.values.len()))
    }

    /// Notes that the scan was cut. It goes on behind its last pair.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// True if the scan was cut: there may be more pairs, although fewer were found than its limit.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Empties the arrays, for values of any length.
    pub fn reset_any_length(&mut self) {
        let mut spans = self.spans.take().unwrap_or_default();
        spans.clear();
        self.reset(0);
        self.values.clear();
        self.spans = Some(spans);
    }

    /// Appends a pair to the scan being written.
    #[inline]
    pub fn push(&mut self, pair: Pair<'_>) {
        match &mut self.spans {
            None => self.begin().copy_from_slice(pair.value),
            Some(spans) => {
                let begin = self.values.len();
                self.values.extend_from_slice(pair.value);
                spans.truncate(self.count);
                spans.push(begin..self.values.len());
                self.room(1);
            }
        }
        self.keep(pair.key, pair.version);
    }

    /// Room for `count` pairs; [`Pairs::keep_first`] keeps what was written there.
    #[inline]
    pub fn room(&mut self, count: usize) -> PairRoom<'_> {
        let end = self.count + count;
        if self.keys.len() < end || self.values.len() < end * self.value_bytes {
            self.grow(end);
        }
        PairRoom {
            keys: &mut self.keys[self.count..end],
            versions: &mut self.versions[self.count..end],
            values: &mut self.values[self.count * self.value_bytes..end * self.value_bytes],
        }
    }

    /// Room for `COUNT` pairs whose values are one word; `None` if they are not.
    #[inline]
    pub fn short_room<const COUNT: usize>(&mut self) -> Option<ShortRoom<'_, COUNT>> {
        if self.value_bytes != 8 {
            return None;
        }
        let end = self.count + COUNT;
        if self.keys.len() < end || self.values.len() < 8 * end {
            self.grow(end);
        }
        let place = self.count..end;
        let keys = self.keys.get_mut(place.clone())?.try_into().ok()?;
        let versions = self.versions.get_mut(place.clone())?.try_into().ok()?;
        Some((keys, versions, self.values.as_chunks_mut().0.get_mut(place)?.try_into().ok()?))
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        let count = count.max(2 * self.count);
        let longest = count.max(self.keys.len());
        self.keys.resize(longest, 0);
        self.versions.resize(longest, 0);
        self.values.resize((count * self.value_bytes).max(self.values.len()), 0);
    }

    /// Keeps the first `count` pairs of the room.
    #[inline]
    pub fn keep_first(&mut self, count: usize) {
        assert!(count <= self.keys.len() - self.count, "room is requested before pairs are kept");
        self.count += count;
    }

    /// Room for one pair's value; [`Pairs::keep`] follows, or nothing.
    #[inline]
    pub fn begin(&mut self) -> &mut [u8] {
        self.room(1).values
    }

    /// Keeps the value begun, under `key` and `version`.
    #[inline]
    pub fn keep(&mut self, key: u64, version: u64) {
        (self.keys[self.count], self.versions[self.count]) = (key, version);
        self.count += 1;
    }

    /// Appends the pairs of `other` to the scan being written.
    pub fn append(&mut self, other: &Self) {
        let count = other.len();
        if self.spans.is_some() {
            return (0..count).for_each(|at| self.push(other.pair(at)));
        }
        let room = self.room(count);
        room.keys.copy_from_slice(&other.keys[..count]);
        room.versions.copy_from_slice(&other.versions[..count]);
        room.values.copy_from_slice(other.values());
        self.keep_first(count);
    }

    /// Drops pairs behind the first `count`, and any value begun.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
    }

    /// Turns round the order of the pairs from `first` on.
    pub fn reverse_from(&mut self, first: usize) {
        let (mut low, mut high) = (first, self.count);
        while low + 1 < high {
            high -= 1;
            self.keys.swap(low, high);
            self.versions.swap(low, high);
            if let Some(spans) = &mut self.spans {
                spans.swap(low, high);
                low += 1;
                continue;
            }
            let (lower, upper) = self.values.split_at_mut(high * self.value_bytes);
            let lower = &mut lower[low * self.value_bytes..][..self.value_bytes];
            lower.swap_with_slice(&mut upper[..self.value_bytes]);
            low += 1;
        }
    }

    /// Appends those pairs of scan `index` of `other` that have not ended by `now_ms`, without deadlines.
    /// Both hold values of any length.
    ///
    /// # Errors
    /// [`NoDeadline`].
    pub fn append_lasting(&mut self, other: &Self, index: usize, now_ms: u64) -> Result<(), NoDeadline> {
        for (at, Pair { key, version, value }) in other.scan(index).enumerate() {
            let mut span = 0..value.len();
            if !take_deadline(value, at, &mut span)?.is_past(now_ms) {
                self.push(Pair { key, version, value: &value[span] });
            }
        }
        Ok(())
    }

    /// Makes all values empty, for scans of keys alone.
    pub fn drop_values(&mut self) {
        self.value_bytes = 0;
        self.spans = None;
    }

    /// Ends the scan being written.
    pub fn end_scan(&mut self) {
        self.ends.push(self.count);
    }

    /// Pairs of all scans, the unfinished one included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without pairs.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory, used or not.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        (self.keys.capacity() + self.versions.capacity() + self.ends.capacity()) * size_of::<u64>()
            + self.values.capacity()
    }

    /// Scans ended.
    #[inline]
    #[must_use]
    pub fn scans(&self) -> usize {
        self.ends.len()
    }

    /// The values of all pairs, one behind the other, where they have one size.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values[..self.count * self.value_bytes]
    }

    /// Bytes of the values of all pairs.
    #[must_use]
    pub fn value_bytes_held(&self) -> usize {
        match &self.spans {
            None => self.count * self.value_bytes,
            Some(spans) => spans[..self.count].iter().map(Range::len).sum(),
        }
    }

    /// The pairs of scan `index`, in key order.
    #[inline]
    #[must_use]
    pub fn scan(&self, index: usize) -> impl ExactSizeIterator<Item = Pair<'_>> {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        (begin..self.ends[index]).map(|at| self.pair(at))
    }

    /// The key of the pair that came last, if there is one.
    #[inline(always)]
    #[must_use]
    pub fn last_key(&self) -> Option<u64> {
        self.keys.get(self.count.wrapping_sub(1)).copied()
    }

    /// Pair `at`, counted over all scans.
    #[inline]
    #[must_use]
    pub fn pair(&self, at: usize) -> Pair<'_> {
        assert!(at < self.count, "pair {at} of {}", self.count);
        let value = match &self.spans {
            None => &self.values[at * self.value_bytes..][..self.value_bytes],
            Some(spans) => &self.values[spans[at].clone()],
        };
        Pair { key: self.keys[at], version: self.versions[at], value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_in_the_room_before_is_never_a_pair() {
        let mut pairs = Pairs::default();
        for (round, value_bytes) in [8, 3, 20, 8].into_iter().enumerate() {
            pairs.reset(value_bytes);
            assert!(pairs.is_empty() && pairs.scans() == 0);
            let value = |key: u64| vec![key as u8 + round as u8; value_bytes];
            for key in 0..40 {
                pairs.push(Pair { key, version: key + 1, value: &value(key) });
            }
            let room = pairs.room(5);
            room.keys.fill(7);
            pairs.keep_first(2);
            pairs.truncate(41);
            pairs.begin().fill(9);
            pairs.end_scan();
            assert_eq!((pairs.len(), pairs.scan(0).len()), (41, 41));
            for (at, pair) in pairs.scan(0).take(40).enumerate() {
                assert_eq!((pair.key, pair.version), (at as u64, at as u64 + 1));
                assert_eq!(pair.value, value(pair.key));
            }
            assert_eq!(pairs.pair(40).key, 7);
        }
    }

    #[test]
    fn values_of_any_length_have_spans() {
        let (mut answers, mut pairs, mut copied) = (Answers::default(), Pairs::default(), Pairs::default());
        let value = |key: u64| vec![key as u8; key as usize * 7 % 50];
        for _ in 0..2 {
            answers.reset_any_length(20);
            pairs.reset_any_length();
            copied.reset_any_length();
            for key in (0..20).rev().filter(|key| key % 3 > 0) {
                answers.set_value(key as usize, key, &value(key));
            }
            for (key, answer) in (0..20).zip(answers.iter()) {
                assert_eq!(answer, (key % 3 > 0).then_some((&value(key)[..], key)));
            }
            for key in 0..20 {
                pairs.push(Pair { key, version: key + 1, value: &value(key) });
            }
            pairs.truncate(10);
            pairs.reverse_from(2);
            pairs.push(Pair { key: 5, version: 6, value: &value(5) });
            assert!(pairs.short_room::<4>().is_none());
            copied.append(&pairs);
            copied.end_scan();
            let keys = [0, 1, 9, 8, 7, 6, 5, 4, 3, 2, 5];
            for (pair, key) in copied.scan(0).zip(keys) {
                assert_eq!(pair, Pair { key, version: key + 1, value: &value(key) });
            }
            copied.drop_values();
            assert!(copied.scan(0).map(|pair| (pair.key, pair.value)).eq(keys.map(|key| (key, &[][..]))));
            // Values of one size behind them, and the other way round.
            answers.reset(1, 3);
            answers.value_mut(0).copy_from_slice(b"one");
            answers.set_version(0, 9);
            assert_eq!(answers.get(0), Some((&b"one"[..], 9)));
            pairs.reset(3);
            pairs.push(Pair { key: 1, version: 2, value: b"two" });
            assert_eq!(pairs.pair(0).value, b"two");
        }
    }

    #[cfg(injected)]
    #[test]
    fn ended_pairs_that_are_returned_are_found() {
        let bug = &crate::injected::ENDED_PAIR_RETURNED;
        farsight_base::injection::assert_found(bug, pairs_that_have_ended_are_left_out);
    }

    #[test]
    fn pairs_that_have_ended_are_left_out() {
        let stored = |deadline: u64| [&deadline.to_le_bytes()[..], &vec![7; deadline as usize]].concat();
        let (mut answers, mut pairs, mut lasting) = (Answers::default(), Pairs::default(), Pairs::default());
        answers.reset_any_length(5);
        pairs.reset_any_length();
        for deadline in [3, 0, 9, 4] {
            answers.set_value(deadline as usize % 5, 1, &stored(deadline));
            pairs.push(Pair { key: deadline, version: 1, value: &stored(deadline) });
        }
        pairs.end_scan();
        assert_eq!(answers.deadline(0), None);
        answers.take_deadlines(4).expect("deadlines");
        let found: Vec<_> = answers.iter().map(|found| found.map(|(value, _)| value.len())).collect();
        // 9 and 4 are one index: the later one counts, which has ended.
        assert_eq!(found, [Some(0), None, None, None, None]);
        assert_eq!(answers.deadline(3), Some(Deadline(3)));
        lasting.reset_any_length();
        lasting.append_lasting(&pairs, 0, 4).expect("deadlines");
        lasting.end_scan();
        let found: Vec<_> = lasting.scan(0).map(|pair| (pair.key, pair.value.len())).collect();
        assert_eq!(found, [(0, 0), (9, 9)]);
        answers.reset_any_length(1);
        answers.set_value(0, 1, b"short");
        assert_eq!(answers.take_deadlines(4), Err(NoDeadline { index: 0, got_bytes: 5 }));
    }

    #[test]
    fn pairs_turn_round_with_their_values() {
        for count in 0..6_u64 {
            let mut pairs = Pairs::default();
            pairs.reset(3);
            for key in 0..count {
                pairs.push(Pair { key, version: key + 1, value: &[key as u8; 3] });
            }
            pairs.reverse_from(1.min(count as usize));
            let keys: Vec<u64> = (0..count.min(1)).chain((1..count).rev()).collect();
            for (at, key) in keys.into_iter().enumerate() {
                let turned = Pair { key, version: key + 1, value: &[key as u8; 3] };
                assert_eq!(pairs.pair(at), turned);
            }
        }
    }
}
