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
    #[must_use]
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// True for the batch of no keys.
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
    pub fn iter(&self) -> impl Iterator<Item = Option<(&[u8], u64)>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The versions of all answers, in order; zero where the key is absent.
    #[must_use]
    pub fn versions(&self) -> &[u64] {
        &self.versions
    }

    /// The values of all answers, one behind the other; undefined where the key is absent.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The room for value `index`.
    #[inline(always)]
    pub fn value_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.values[index * self.value_bytes..][..self.value_bytes]
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

impl Pairs {
    /// Empties the arrays, for values of `value_bytes`.
    pub fn reset(&mut self, value_bytes: usize) {
        self.value_bytes = value_bytes;
        self.keys.clear();
        self.versions.clear();
        self.values.clear();
        self.ends.clear();
    }

    /// Appends a pair to the scan being written.
    #[inline]
    pub fn push(&mut self, pair: Pair<'_>) {
        self.keys.push(pair.key);
        self.versions.push(pair.version);
        self.values.extend_from_slice(pair.value);
    }

    /// Appends room for a pair's value and returns it; [`Pairs::keep`] or [`Pairs::discard`] follows.
    #[inline]
    pub fn begin(&mut self) -> &mut [u8] {
        let at = self.keys.len() * self.value_bytes;
        self.values.resize(at + self.value_bytes, 0);
        &mut self.values[at..]
    }

    /// Keeps the value begun, under `key` and `version`.
    #[inline]
    pub fn keep(&mut self, key: u64, version: u64) {
        self.keys.push(key);
        self.versions.push(version);
    }

    /// Drops pairs behind the first `count`, and any value begun.
    pub fn truncate(&mut self, count: usize) {
        self.keys.truncate(count);
        self.versions.truncate(count);
        self.values.truncate(count * self.value_bytes);
    }

    /// Ends the scan being written.
    pub fn end_scan(&mut self) {
        self.ends.push(self.keys.len());
    }

    /// Pairs of all scans, the unfinished one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True without pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Scans ended.
    #[must_use]
    pub fn scans(&self) -> usize {
        self.ends.len()
    }

    /// The values of all pairs, one behind the other.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The pairs of scan `index`, in key order.
    #[must_use]
    pub fn scan(&self, index: usize) -> impl ExactSizeIterator<Item = Pair<'_>> {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        (begin..self.ends[index]).map(|at| self.pair(at))
    }

    /// Pair `at`, counted over all scans.
    #[must_use]
    pub fn pair(&self, at: usize) -> Pair<'_> {
        let value = &self.values[at * self.value_bytes..][..self.value_bytes];
        Pair { key: self.keys[at], version: self.versions[at], value }
    }
}
