//! Records on their way from the thread that reads files to the one that fills tables.
//!
//! Invariant: records are not copied. A batch holds the bytes that were read of a file, whole, and says of
//! each record where in them it stands. So a batch that names few of them holds as many bytes as one that
//! names all.

use std::sync::Arc;

use farsight_layout::value_block::RecordKind;

use crate::Record;
use crate::catalogue::key_word;

/// What was read, in as many parts, is the most that a batch holds.
const PARTS_MAX: usize = 1 << u8::BITS;

/// Bits of a table and a key that say in which bucket a record is sorted.
const BUCKET_BITS: u32 = 12;

/// Records in their order, and the bytes that were read of them.
#[derive(Clone, Default, Debug)]
pub struct RecordBatch {
    heads: Vec<Head>,
    /// What was read, in parts.
    parts: Vec<Arc<Vec<u8>>>,
    /// Bytes of all parts.
    bytes: usize,
    /// It has one record of each key at most.
    is_distinct: bool,
}

/// Records of one table in a row.
#[derive(Clone, Copy, Debug)]
pub struct RecordRun<'b> {
    heads: &'b [Head],
    batch: &'b RecordBatch,
}

/// Room in which batches are sorted, one after the other.
#[derive(Default)]
pub(crate) struct SortRoom {
    /// Room to move heads.
    moved: Vec<Head>,
    /// Where buckets of heads end.
    ends: Vec<u32>,
}

/// What is sorted: it has all but the value.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The key, or its first bytes.
    key: [u8; 8],
    version: u64,
    table: u32,
    /// Where in its part the key begins, and the value behind it.
    begin: u32,
    value_bytes: u32,
    key_bytes: u16,
    /// The part's index.
    part: u8,
    kind: RecordKind,
}

const _: () = assert!(size_of::<Head>() == 32, "two of them in a line");

impl Head {
    /// Table and key.
    fn place(&self) -> u128 {
        u128::from(self.table) << 64 | u128::from(u64::from_le_bytes(self.key))
    }

    /// What orders records of one place as they came.
    fn turn(&self) -> u64 {
        u64::from(self.part) << 32 | u64::from(self.begin)
    }
}

/// A record that was found, and checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredRecord<'b> {
    /// The table's number.
    pub table: u32,
    /// The version of the pair or the removal.
    pub version: u64,
    /// The key's bytes.
    pub key: &'b [u8],
    /// The value's; `None` if the key was removed.
    pub value: Option<&'b [u8]>,
}

impl RecordBatch {
    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = RecoveredRecord<'_>> {
        self.heads.iter().map(|head| self.record(head))
    }

    /// The records, by tables.
    pub fn runs(&self) -> impl Iterator<Item = RecordRun<'_>> {
        let runs = self.heads.chunk_by(|one, next| one.table == next.table);
        runs.map(|heads| RecordRun { heads, batch: self })
    }

    fn record<'b>(&'b self, head: &'b Head) -> RecoveredRecord<'b> {
        let bytes = &self.parts[usize::from(head.part)];
        let value_begin = head.begin as usize + usize::from(head.key_bytes);
        let value = || &bytes[value_begin..value_begin + head.value_bytes as usize];
        // A key that is whole in its head is read there, for the bytes may be far from those before.
        let is_whole = usize::from(head.key_bytes) == head.key.len();
        let key = if is_whole { &head.key } else { &bytes[head.begin as usize..value_begin] };
        let value = (head.kind == RecordKind::Pair).then(value);
        RecoveredRecord { table: head.table, version: head.version, key, value }
    }

    /// Appends a record of a frame that was parsed in these bytes: the value stands behind its key.
    pub(crate) fn push(&mut self, bytes: &Arc<Vec<u8>>, record: Record<'_>) {
        let Record { table, kind, version, key, value } = record;
        if self.parts.last().is_none_or(|last| !Arc::ptr_eq(last, bytes)) {
            self.parts.push(Arc::clone(bytes));
            self.bytes += bytes.len();
        }
        let begin = key.as_ptr().addr().checked_sub(bytes.as_ptr().addr());
        let begin = begin.and_then(|begin| u32::try_from(begin).ok()).expect("in these bytes");
        let part = u8::try_from(self.parts.len() - 1).expect("of a batch that was not full");
        let lengths = (u16::try_from(key.len()), u32::try_from(value.len()));
        let (Ok(key_bytes), Ok(value_bytes)) = lengths else { panic!("lengths of a block: {lengths:?}") };
        let key = key_word(key).to_le_bytes();
        self.heads.push(Head { key, version, table, begin, value_bytes, key_bytes, part, kind });
        self.is_distinct = false;
    }

    /// True if it takes no record more of these bytes, where a batch has `bytes_max` at most: half of them
    /// for what it says of records. It takes those of one part, however long that is.
    pub(crate) fn is_full_for(&self, bytes: &Arc<Vec<u8>>, bytes_max: usize) -> bool {
        let is_next = || self.parts.last().is_some_and(|last| !Arc::ptr_eq(last, bytes));
        let has_no_room = || self.parts.len() == PARTS_MAX || self.bytes + bytes.len() > bytes_max;
        size_of_val(&*self.heads) >= bytes_max / 2 || is_next() && has_no_room()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Takes all records out. Memory for as many stays. Hands the parts that nobody else holds to `again`.
    pub(crate) fn clear(&mut self, again: impl FnMut(Vec<u8>)) {
        self.heads.clear();
        self.parts.drain(..).filter_map(Arc::into_inner).for_each(again);
        self.bytes = 0;
    }

    /// Leaves of each key what counts in the end: the record of the greatest version, and of two the first.
    /// Then removals come first, for they make room, and both kinds are in the order of tables and keys.
    ///
    /// Keys of other than eight bytes, of which no table has any, leave the batch as it is.
    pub(crate) fn keep_newest(&mut self, room: &mut SortRoom) {
        if self.heads.iter().any(|head| usize::from(head.key_bytes) != head.key.len()) {
            return;
        }
        self.sort(room);
        self.is_distinct = true;
        let (heads, moved) = (&mut self.heads, &mut room.moved);
        heads.dedup_by(|next, kept| {
            let is_same = next.place() == kept.place();
            let is_newer = next.version > kept.version;
            #[cfg(injected)]
            let is_newer = is_newer && !crate::injected::OLDEST_KEPT.is_injected();
            if is_same && is_newer {
                *kept = *next;
            }
            is_same
        });
        if heads.iter().any(|head| head.kind == RecordKind::Removal) {
            let of_kind = |kind| heads.iter().filter(move |head| head.kind == kind).copied();
            moved.clear();
            moved.extend(of_kind(RecordKind::Removal));
            moved.extend(of_kind(RecordKind::Pair));
            std::mem::swap(heads, moved);
        }
    }

    /// Sorts by table and key, and records of a key as they came. Buckets first: what one has is sorted in
    /// the cache, and takes fewer steps each. Keys in few places leave some bucket large, which costs time
    /// alone.
    fn sort(&mut self, room: &mut SortRoom) {
        let (heads, SortRoom { moved, ends }) = (&mut self.heads, room);
        let places = || heads.iter().map(Head::place);
        let (Some(least), Some(greatest)) = (places().min(), places().max()) else { return };
        let shift = (u128::BITS - (greatest - least).leading_zeros()).saturating_sub(BUCKET_BITS);
        let bucket_of = |head: &Head| ((head.place() - least) >> shift) as usize;
        ends.clear();
        ends.resize(1 << BUCKET_BITS, 0);
        for head in &*heads {
            ends[bucket_of(head)] += 1;
        }
        let mut end = 0;
        for bucket in &mut *ends {
            (*bucket, end) = (end, end + *bucket);
        }
        moved.clear();
        moved.resize(heads.len(), heads[0]);
        for head in &*heads {
            // Where the bucket begins becomes where it ends.
            let place = &mut ends[bucket_of(head)];
            moved[*place as usize] = *head;
            *place += 1;
        }
        let mut begin = 0;
        for end in &*ends {
            let end = *end as usize;
            moved[begin..end].sort_unstable_by_key(|head| (head.place(), head.turn()));
            begin = end;
        }
        std::mem::swap(heads, moved);
    }
}

impl<'b> RecordRun<'b> {
    /// The table's number.
    #[must_use]
    pub fn table(self) -> u32 {
        self.heads[0].table
    }

    /// The records, in their order.
    pub fn iter(self) -> impl Iterator<Item = RecoveredRecord<'b>> {
        self.heads.iter().map(|head| self.batch.record(head))
    }

    /// The same in up to so many pieces, each of `records_min` at least, unless there are fewer. No two
    /// have a key in common. So there is one if some key may have several records.
    pub fn split(self, pieces_max: usize, records_min: usize) -> impl Iterator<Item = Self> {
        let pieces_max = if self.batch.is_distinct { pieces_max } else { 1 };
        let pieces = (self.heads.len() / records_min.max(1)).clamp(1, pieces_max.max(1));
        let begin = move |piece: usize| piece * self.heads.len() / pieces;
        (0..pieces).map(move |piece| Self { heads: &self.heads[begin(piece)..begin(piece + 1)], ..self })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use farsight_base::prng::SplitMix64;

    use super::*;
    use crate::{Frame, FrameWriter};

    /// A record as it is told: table, key, version, and the value of a pair.
    type Told = (u32, Vec<u8>, u64, Option<Vec<u8>>);

    /// Appends the records of a frame of its own.
    fn push_frame(batch: &mut RecordBatch, records: &[Told]) {
        let mut frame = FrameWriter::default();
        for (table, key, version, value) in records {
            let kind = if value.is_some() { RecordKind::Pair } else { RecordKind::Removal };
            let value = value.as_deref().unwrap_or_default();
            frame.push(*table, kind, *version, key, value).expect("short");
        }
        let bytes = Arc::new(frame.seal(1, 1, 1, 0).0.to_vec());
        push_all(batch, &bytes);
    }

    fn push_all(batch: &mut RecordBatch, frame: &Arc<Vec<u8>>) {
        let visited: Result<&[u8], _> = Frame::parse(frame).expect("a frame").visit(|record| {
            batch.push(frame, record);
            Ok::<_, ()>(())
        });
        visited.expect("records");
    }

    fn batch(records: &[Told]) -> RecordBatch {
        let mut batch = RecordBatch::default();
        push_frame(&mut batch, records);
        batch
    }

    fn told(batch: &RecordBatch) -> Vec<Told> {
        let of = |record: RecoveredRecord<'_>| {
            (record.table, record.key.to_vec(), record.version, record.value.map(<[u8]>::to_vec))
        };
        batch.iter().map(of).collect()
    }

    #[test]
    fn the_newest_record_of_each_key_stays_and_removals_come_first() {
        let mut random = SplitMix64::fresh();
        for _ in 0..200 {
            let records: Vec<Told> = (1..=random.below(100))
                .map(|version| {
                    let key = [0, 1, u64::MAX, 256, random.next_u64()][random.below(5) as usize];
                    let value = vec![version as u8; random.below(20) as usize];
                    let value = (random.below(3) > 0).then_some(value);
                    (random.below(3) as u32, key.to_le_bytes().to_vec(), version, value)
                })
                .collect();
            let mut batch = RecordBatch::default();
            let mut rest = &records[..];
            while let Some((frame, behind)) = rest.split_at_checked(1 + random.below(40) as usize) {
                push_frame(&mut batch, frame);
                rest = behind;
            }
            push_frame(&mut batch, rest);
            assert_eq!(told(&batch), records, "as they came");
            batch.keep_newest(&mut SortRoom::default());
            let newest: BTreeMap<_, _> = records
                .iter()
                .map(|record| ((record.0, u64::from_le_bytes(record.1[..].try_into().expect("8 B"))), record))
                .collect();
            let of_kind = |is_pair| newest.values().filter(move |record| record.3.is_some() == is_pair);
            let expected: Vec<Told> =
                of_kind(false).chain(of_kind(true)).map(|record| (*record).clone()).collect();
            assert_eq!(told(&batch), expected, "of {records:?}");
            check_runs(&batch, &mut random);
        }
    }

    /// Runs have all records in their order, and so have the pieces of each.
    fn check_runs(batch: &RecordBatch, random: &mut SplitMix64) {
        let (pieces_max, records_min) = (1 + random.below(5) as usize, random.below(30) as usize);
        let mut in_pieces = Vec::new();
        for run in batch.runs() {
            let pieces: Vec<_> = run.split(pieces_max, records_min).collect();
            assert!((1..=pieces_max).contains(&pieces.len()), "{} pieces", pieces.len());
            for piece in &pieces {
                let count = piece.iter().count();
                assert!(count > 0 && (count >= records_min || pieces.len() == 1), "{count} records");
                assert!(piece.iter().all(|record| record.table == run.table()));
                in_pieces.extend(piece.iter());
            }
        }
        assert!(in_pieces.into_iter().eq(batch.iter()));
    }

    #[test]
    fn of_two_records_of_a_version_the_first_stays_and_other_keys_are_left_alone() {
        let key = 7_u64.to_le_bytes().to_vec();
        let of_version = |version: u64, value: u8| (1, key.clone(), version, Some(vec![value]));
        let mut two = batch(&[of_version(5, 1), of_version(5, 2), of_version(4, 3)]);
        two.keep_newest(&mut SortRoom::default());
        assert_eq!(told(&two), [of_version(5, 1)]);
        let short = [of_version(1, 1), (1, b"key".to_vec(), 2, None), of_version(3, 2)];
        let mut left_alone = batch(&short);
        left_alone.keep_newest(&mut SortRoom::default());
        assert_eq!(told(&left_alone), short);
        assert_eq!(left_alone.runs().flat_map(|run| run.split(3, 1)).count(), 1, "some key may be twice");
    }
}
