//! Reads and writes of one thread.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use farsight_base::Epoch;
use farsight_client::{Direction, Origin, ReadError, ScanRequest, WriteError};
use farsight_fabric::Meters;
use farsight_index::{Answers, Counters, OldValues};
use farsight_protocol::{ValueKind, WriteOperation, WriteOutcome};

use crate::value::{INLINE_BYTES, WORD_BYTES};
use crate::{AllPairs, IntoPairs, Key, KeyType, Keys, Pairs, Scan, Value};

/// A session on one table, for one thread.
pub struct Session<K: ?Sized> {
    pub(crate) inner: farsight_client::Session,
    /// Integers of a batch's keys, where those are not integers themselves: kept, so that it allocates once.
    encoded: Vec<u64>,
    requests: Vec<ScanRequest>,
    /// Operands of conditional writes, and the value before a single one: kept, so that they allocate once.
    pub(crate) operands: Vec<u8>,
    pub(crate) operand_ends: Vec<usize>,
    pub(crate) old_value: OldValues,
    /// Where a single neighbour is put: kept, so that it allocates once.
    pub(crate) one_pair: Pairs<K>,
    key: PhantomData<fn(&K)>,
}

/// A stored value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The version: it grows with each write of the key and is never zero.
    pub version: u64,
}

fn request<K: Key>((from, limit): &(K, usize)) -> ScanRequest {
    ScanRequest { from: from.encode(), limit: *limit }
}

impl<K: KeyType + ?Sized> Session<K> {
    pub(crate) fn new(session: farsight_client::Session) -> Self {
        Self {
            inner: session,
            encoded: Vec::new(),
            requests: Vec::new(),
            operands: Vec::new(),
            operand_ends: Vec::new(),
            old_value: OldValues::default(),
            one_pair: Pairs::default(),
            key: PhantomData,
        }
    }

    /// The value of `key` and its version; `None` if the key is absent. Allocates nothing for values of up to
    /// 16 B.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn get(&mut self, key: K::Ref<'_>) -> Result<Option<Entry>, ReadError> {
        // Of values of any length that is more than any value has.
        let value_bytes = self.inner.buffer_bytes();
        if value_bytes == WORD_BYTES {
            let mut bytes = [0; WORD_BYTES];
            let version = self.get_into(key, &mut bytes)?;
            return Ok(version.map(|version| Entry { value: Value::of_word(bytes), version }));
        }
        let mut bytes = [0; INLINE_BYTES];
        let Some(room) = bytes.get_mut(..value_bytes) else { return self.get_long(key) };
        let version = self.get_into(key, room)?;
        Ok(version.map(|version| Entry { value: Value::in_place(bytes, value_bytes), version }))
    }

    /// [`Session::get`] where values are long, or have any length.
    #[inline(never)]
    fn get_long(&mut self, key: K::Ref<'_>) -> Result<Option<Entry>, ReadError> {
        let mut value = Vec::new();
        let version = self.get_vec(key, &mut value)?;
        Ok(version.map(|version| Entry { value: value.into(), version }))
    }

    /// Copies the value of `key`, whatever its length, to `value` in place of what that held, and returns its
    /// version. Returns `None`, with `value` undefined, if the key is absent. Allocates nothing once `value`
    /// has held one as long.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn get_vec(&mut self, key: K::Ref<'_>, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        self.inner.get_into(K::encoded(key), value)
    }

    /// Copies the value of `key` into `value`, which must be as long as the table's values, and returns its
    /// version. Returns `None`, with `value` undefined, if the key is absent. Allocates nothing.
    ///
    /// # Errors
    /// [`ReadError`]; of a table whose values have any length always [`ReadError::WrongBufferSize`].
    #[inline]
    pub fn get_into(&mut self, key: K::Ref<'_>, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        self.inner.get(K::encoded(key), value)
    }

    /// Values and versions of `keys`, any number of them, in their order. This is how to read fast: the READs
    /// of 64 keys are in flight together. Allocates nothing once `answers` has held a batch of this size.
    ///
    /// # Errors
    /// [`ReadError`]; then `answers` is undefined.
    #[inline]
    pub fn multi_get(&mut self, keys: &[K::Ref<'_>], answers: &mut Answers) -> Result<(), ReadError> {
        let keys = K::all_encoded(keys, &mut self.encoded);
        self.inner.multi_get(keys, answers)
    }

    /// All pairs of the table, whatever its engine: in the order of their keys, or in none where the engine
    /// keeps none. They are fetched page by page while the iterator is used.
    ///
    /// A pair whose key is there from begin to end comes exactly once, with a value that it had meanwhile. No
    /// key comes twice, and each pair that comes was there at an instant between. The iterator ends after the
    /// first error.
    ///
    /// ```
    /// # use farsight::{EngineKind, Options, Server, TableOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("example.sock");
    /// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
    /// # let client = farsight::connect(&server.url().to_string())?;
    /// let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    /// let mut counts = client.create_table_with::<u64>("counts", 8, &options)?.session(Options::default())?;
    /// for key in [30, 10, 20] {
    ///     counts.put(key, &key.to_le_bytes())?;
    /// }
    /// let mut keys = Vec::new();
    /// for pair in counts.pairs() {
    ///     keys.push(pair?.0);
    /// }
    /// keys.sort();
    /// assert_eq!(keys, [10, 20, 30]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pairs(&mut self) -> AllPairs<'_, K> {
        AllPairs::new(self)
    }

    /// [`Session::pairs`] for who keeps the iterator for longer than a borrow: it has the session.
    pub fn into_pairs(self) -> IntoPairs<K> {
        IntoPairs::new(self)
    }

    /// Stores a pair whose key is absent: [`WriteOutcome::Inserted`], or [`WriteOutcome::Exists`] and no
    /// change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn insert(&mut self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Insert, key, value)
    }

    /// Replaces the value of a present key: [`WriteOutcome::Replaced`], or [`WriteOutcome::Absent`] and no
    /// change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn update(&mut self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Update, key, value)
    }

    /// Stores a pair, present or not: [`WriteOutcome::Inserted`] or [`WriteOutcome::Replaced`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn put(&mut self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Put, key, value)
    }

    /// Removes a key: [`WriteOutcome::Removed`], or [`WriteOutcome::Absent`] and no change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn remove(&mut self, key: K::Ref<'_>) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Remove, key, &[])
    }

    /// [`Session::insert`] for many pairs; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn insert_many<V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K::Ref<'_>, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.write_many(WriteOperation::Insert, pairs, outcomes)
    }

    /// [`Session::update`] for many pairs; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn update_many<V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K::Ref<'_>, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.write_many(WriteOperation::Update, pairs, outcomes)
    }

    /// [`Session::put`] for many pairs in few calls. `outcomes` is replaced by one outcome a pair, in order.
    /// Each write is atomic by itself, all together are not. One that the server could not do is
    /// [`WriteOutcome::Failed`] and does not keep it from the others.
    ///
    /// # Errors
    /// [`WriteError`] if a call failed as a whole.
    pub fn put_many<V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K::Ref<'_>, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.write_many(WriteOperation::Put, pairs, outcomes)
    }

    /// [`Session::remove`] for many keys; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn remove_many(
        &mut self,
        keys: &[K::Ref<'_>],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        let entries = keys.iter().map(|key| (K::encoded(*key), &[][..]));
        self.inner.write(WriteOperation::Remove, entries, outcomes)
    }

    /// Fetches the whole model of the table into the process's cache, instead of piece by piece on demand.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn prefill(&mut self) -> Result<(), ReadError> {
        self.inner.prefill()
    }

    /// The server's epoch in which the last call was executed. It changes in a call only, when that had to
    /// connect again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    /// Where the last call was executed: the server's epoch, and the table to which the name led.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.inner.origin()
    }

    /// Bytes of each value of the table; of the longest, if they have any length.
    #[must_use]
    #[inline]
    pub fn value_bytes(&self) -> usize {
        self.inner.value_bytes()
    }

    /// What the values of the table are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.inner.table().values()
    }

    /// What this session did: operations, retries, fallbacks to the server.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }

    /// What went over this session's queue pair: verbs, bytes, round trips.
    #[must_use]
    pub fn meters(&self) -> Meters {
        self.inner.meters()
    }

    fn write_one(
        &mut self,
        operation: WriteOperation,
        key: K::Ref<'_>,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.inner.write_one(operation, K::encoded(key), value)
    }

    fn write_many<V: AsRef<[u8]>>(
        &mut self,
        operation: WriteOperation,
        pairs: &[(K::Ref<'_>, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        let entries = pairs.iter().map(|(key, value)| (K::encoded(*key), value.as_ref()));
        self.inner.write(operation, entries, outcomes)
    }
}

impl<K: Key> Session<K> {
    /// The pairs whose keys lie in `range`, in key order: fetched page by page while the iterator is used.
    /// Every pair was there at an instant during the scan, none is skipped and none comes twice. The iterator
    /// ends after the first error.
    pub fn scan(&mut self, range: impl RangeBounds<K>) -> Scan<'_, K> {
        Scan::new(self, Direction::Ascending, range)
    }

    /// [`Session::scan`] from the greatest key of the range down to the least.
    pub fn scan_descending(&mut self, range: impl RangeBounds<K>) -> Scan<'_, K> {
        Scan::new(self, Direction::Descending, range)
    }

    /// The keys of a range, in their order, without their values: these are not read, however long they are,
    /// unless pairs have deadlines.
    ///
    /// ```
    /// # use farsight::{Options, Server};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("example.sock");
    /// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
    /// # let client = farsight::connect(&server.url().to_string())?;
    /// let mut texts = client.create_blocks_table::<u64>("texts")?.session(Options::default())?;
    /// for key in [30, 10, 20] {
    ///     texts.put(key, &[b'x'; 10_000])?;
    /// }
    /// let keys: Vec<u64> = texts.keys(15..).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [20, 30]);
    /// assert_eq!(texts.count(..)?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&mut self, range: impl RangeBounds<K>) -> Keys<'_, K> {
        Keys::new(self, Direction::Ascending, range)
    }

    /// [`Session::keys`] from the greatest key down.
    pub fn keys_descending(&mut self, range: impl RangeBounds<K>) -> Keys<'_, K> {
        Keys::new(self, Direction::Descending, range)
    }

    /// How many keys of a range there are: each was there at an instant of the call. It looks at all of them,
    /// as [`Session::keys`] does.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(&mut self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        self.keys(range).try_fold(0, |count, key| key.map(|_| count + 1))
    }

    /// Many short scans at once: of each `(from, limit)` up to `limit` pairs, from the key `from` on.
    /// Allocates nothing once `pairs` has held a batch of this size.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_batch(&mut self, scans: &[(K, usize)], pairs: &mut Pairs<K>) -> Result<(), ReadError> {
        self.scan_each(Direction::Ascending, scans.iter().map(request), pairs)
    }

    /// [`Session::scan_batch`] downwards: of each `(from, limit)` up to `limit` pairs, from the key `from` on
    /// towards lesser keys, the greatest first.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_batch_descending(
        &mut self,
        scans: &[(K, usize)],
        pairs: &mut Pairs<K>,
    ) -> Result<(), ReadError> {
        self.scan_each(Direction::Descending, scans.iter().map(request), pairs)
    }

    /// The pairs of each of `scans`.
    pub(crate) fn scan_each(
        &mut self,
        direction: Direction,
        scans: impl Iterator<Item = ScanRequest>,
        pairs: &mut Pairs<K>,
    ) -> Result<(), ReadError> {
        self.requests.clear();
        self.requests.extend(scans);
        self.inner.scan_batch(direction, &self.requests, pairs.encoded_mut())
    }
}
