//! Where reads put what they find: flat, reusable arrays, so that a batch allocates nothing once it is warm.

/// The values of a batch of keys, in the keys' order.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    value_bytes: usize,
    versions: Vec<u64>,
    values: Vec<u8>,
}

impl Answers {
    /// Makes room for `count` values of `value_bytes`, all absent.
    pub fn reset(&mut self, count: usize, value_bytes: usize) {
        self.value_bytes = value_bytes;
        self.versions.clear();
        self.versions.resize(count, 0);
        // What the values held stays: an absent version hides it.
        self.values.resize(count * value_bytes, 0);
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
        (version != 0).then(|| (&self.values[index * self.value_bytes..][..self.value_bytes], version))
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

    /// The values of all answers, one behind the other; undefined where the key is absent.
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
    }

    /// Appends a pair to the scan being written.
    #[inline]
    pub fn push(&mut self, pair: Pair<'_>) {
        self.begin().copy_from_slice(pair.value);
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
        let PairRoom { keys, versions, values } = self.room(COUNT);
        let values = values.as_chunks_mut().0.try_into().ok()?;
        Some((keys.try_into().ok()?, versions.try_into().ok()?, values))
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
            let (lower, upper) = self.values.split_at_mut(high * self.value_bytes);
            let lower = &mut lower[low * self.value_bytes..][..self.value_bytes];
            lower.swap_with_slice(&mut upper[..self.value_bytes]);
            low += 1;
        }
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

    /// The values of all pairs, one behind the other.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values[..self.count * self.value_bytes]
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
        let value = &self.values[at * self.value_bytes..][..self.value_bytes];
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
