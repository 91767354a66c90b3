//! Runs: pairs of a table in a frame that need no header each.
//!
//! Invariant: all keys of a run have eight bytes, all values one length, and each pair has the version behind
//! that of the pair before. So do the pairs that a call writes.
//!
//! A run is a word {table 32, bytes 32}, in which [`RUN_BIT`] is set of the bytes. Then come a word {version
//! of the first pair 48, bytes of a value 16} and the pairs: key and value, padded to words. The frame's
//! checksum covers it, and it has none of its own.

use std::ops::Range;

use farsight_layout::PAIR_VERSION_BITS;
use farsight_layout::value_block::RecordKind;

use super::{FrameFault, RECORD_HEADER_BYTES, Record};

/// The bit of a record's bytes that says that it is a run. Bytes of blocks are those of whole words.
pub const RUN_BIT: usize = 1;
/// Bytes of a run before its pairs, without the word that every record has.
pub const RUN_HEADER_BYTES: usize = 8;
/// Bytes of a key in a run.
const KEY_BYTES: usize = 8;

/// Bytes of a pair with its key.
fn pair_bytes(value_bytes: u16) -> usize {
    KEY_BYTES + usize::from(value_bytes).next_multiple_of(8)
}

/// A run that is written.
#[derive(Debug)]
pub(super) struct RunWriter {
    /// Where it begins in the frame.
    begin: usize,
    table: u32,
    next_version: u64,
    value_bytes: u16,
}

impl RunWriter {
    /// Begins one, without a pair yet, at the end of `frame`.
    pub(super) fn begin(frame: &mut Vec<u8>, table: u32, version: u64, value_bytes: u16) -> Self {
        assert!(version != 0 && version >> PAIR_VERSION_BITS == 0, "a record of version {version}");
        let begin = frame.len();
        let header = u64::from(table) | ((RUN_HEADER_BYTES | RUN_BIT) as u64) << 32;
        let second = version | u64::from(value_bytes) << PAIR_VERSION_BITS;
        frame.extend_from_slice(&header.to_le_bytes());
        frame.extend_from_slice(&second.to_le_bytes());
        Self { begin, table, next_version: version, value_bytes }
    }

    /// True if a pair like this stands in it, next.
    #[inline]
    pub(super) fn goes_on(&self, table: u32, version: u64, value_bytes: u16) -> bool {
        let is_next = self.next_version == version && version >> PAIR_VERSION_BITS == 0;
        is_next && self.table == table && self.value_bytes == value_bytes
    }

    /// Appends a pair, which stands in it. Returns where its value stands in `frame`.
    #[inline]
    pub(super) fn push(&mut self, frame: &mut Vec<u8>, key: [u8; KEY_BYTES], value: &[u8]) -> Range<usize> {
        frame.extend_from_slice(&key);
        let begin = frame.len();
        frame.extend_from_slice(value);
        let end = frame.len();
        if !value.len().is_multiple_of(8) {
            frame.resize(end.next_multiple_of(8), 0);
        }
        self.next_version += 1;
        let bytes = (frame.len() - self.begin - RECORD_HEADER_BYTES) | RUN_BIT;
        let said = self.begin + 4..self.begin + RECORD_HEADER_BYTES;
        frame[said].copy_from_slice(&(bytes as u32).to_le_bytes());
        begin..end
    }
}

/// A run that was read.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    table: u32,
    version: u64,
    value_bytes: u16,
    pairs: &'a [u8],
}

impl<'a> Run<'a> {
    /// The run of these bytes, behind the word that every record has. The frame has up to `records_max` more.
    pub(super) fn parse(table: u32, bytes: &'a [u8], records_max: u32) -> Result<Self, FrameFault> {
        let cut = FrameFault::Cut { needed_bytes: RUN_HEADER_BYTES as u64, got_bytes: bytes.len() as u64 };
        let (second, pairs) = bytes.split_first_chunk::<RUN_HEADER_BYTES>().ok_or(cut)?;
        let second = u64::from_le_bytes(*second);
        let version = second & ((1 << PAIR_VERSION_BITS) - 1);
        let value_bytes = (second >> PAIR_VERSION_BITS) as u16;
        let (one, got) = (pair_bytes(value_bytes), pairs.len() as u64);
        let count = pairs.len() / one;
        let field = |what, expected: u64, got: u64| Err(FrameFault::Field { what, expected, got });
        if count == 0 || !pairs.len().is_multiple_of(one) {
            return field("bytes of the pairs of a run", (count.max(1) * one) as u64, got);
        }
        if count > records_max as usize {
            return field("pairs of a run, at most", records_max.into(), count as u64);
        }
        let versions_max = (1 << PAIR_VERSION_BITS) - count as u64;
        if !(1..=versions_max).contains(&version) {
            return field("first version of a run, from one and at most", versions_max, version);
        }
        Ok(Self { table, version, value_bytes, pairs })
    }

    /// Its pairs.
    pub(super) fn len(&self) -> u32 {
        // Not more than a frame's records.
        (self.pairs.len() / pair_bytes(self.value_bytes)) as u32
    }

    /// The same, one by one.
    #[inline]
    pub(super) fn records(self) -> impl Iterator<Item = Record<'a>> {
        let Self { table, version, value_bytes, pairs } = self;
        pairs.chunks_exact(pair_bytes(value_bytes)).zip(version..).map(move |(pair, version)| {
            let (key, value) = pair.split_at(KEY_BYTES);
            let value = &value[..value_bytes.into()];
            Record { table, kind: RecordKind::Pair, version, key, value }
        })
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;
    use crate::{Frame, FrameWriter, RecordFault};

    /// Table, kind, version, key and value.
    type Told = (u32, bool, u64, Vec<u8>, Vec<u8>);

    fn write(records: &[Told]) -> FrameWriter {
        let mut frame = FrameWriter::default();
        for (table, is_pair, version, key, value) in records {
            let kind = if *is_pair { RecordKind::Pair } else { RecordKind::Removal };
            let place = frame.push(*table, kind, *version, key, value).expect("short");
            assert_eq!(frame.bytes_at(place), value);
        }
        frame
    }

    fn read(bytes: &[u8]) -> Result<Vec<Told>, RecordFault<()>> {
        let mut told = Vec::new();
        Frame::parse(bytes).expect("a frame").visit(|record| {
            let (key, value) = (record.key.to_vec(), record.value.to_vec());
            told.push((record.table, record.is_pair(), record.version, key, value));
            Ok(())
        })?;
        Ok(told)
    }

    #[test]
    fn records_come_back_whatever_runs_they_stand_in() {
        let mut random = SplitMix64::fresh();
        for _ in 0..500 {
            let mut version = 1 + random.below(1 << 40);
            let records: Vec<Told> = (0..random.below(50))
                .map(|_| {
                    version += [1, 1, 1, 1, 7, 1 << 20][random.below(6) as usize];
                    let (table, is_pair) = (1 + random.below(10) as u32 / 9, random.below(8) > 0);
                    let key_bytes = [8, 8, 8, 8, 8, 3, 0, 9][random.below(8) as usize];
                    let value_bytes = [8, 8, 8, 0, 13][random.below(5) as usize] * usize::from(is_pair);
                    let mut bytes = |count: usize| (0..count).map(|_| random.next_u64() as u8).collect();
                    (table, is_pair, version, bytes(key_bytes), bytes(value_bytes))
                })
                .collect();
            let mut frame = write(&records);
            let bytes = frame.seal(1, 1, 1, 0).0;
            assert_eq!(read(bytes).as_ref(), Ok(&records));
        }
    }

    #[test]
    fn pairs_of_a_call_take_no_header_each() {
        let of =
            |version: u64, value: &[u8]| (1, true, version, version.to_le_bytes().to_vec(), value.to_vec());
        let in_a_run: Vec<Told> = (5..105).map(|version| of(version, &[7; 8])).collect();
        let begin = write(&[]).len();
        assert_eq!(write(&in_a_run).len(), begin + RECORD_HEADER_BYTES + RUN_HEADER_BYTES + 100 * 16);
        let others = [of(5, &[7; 8]), of(7, &[7; 8]), of(8, &[7; 16]), (2, true, 9, vec![1; 8], vec![1; 16])];
        assert_eq!(
            write(&others).len(),
            begin + 4 * (RECORD_HEADER_BYTES + RUN_HEADER_BYTES) + 2 * 16 + 2 * 24
        );
        let last = (1 << PAIR_VERSION_BITS) - 1;
        assert_eq!(read(write(&[of(last, &[7; 8])]).seal(1, 1, 1, 0).0), Ok(vec![of(last, &[7; 8])]));
        let longest = vec![of(5, &[7; 65_535]), of(6, &[7; 65_536])];
        assert_eq!(read(write(&longest).seal(1, 1, 1, 0).0), Ok(longest));
    }

    #[test]
    fn bytes_that_are_no_run_are_refused() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let second = |version: u64, value_bytes: u64| version | value_bytes << PAIR_VERSION_BITS;
        let fault = |bytes: &[u64], records_max| Run::parse(1, &words(bytes), records_max).err();
        assert_eq!(fault(&[second(1, 8), 1, 2, 3, 4], 2), None);
        let last = (1 << PAIR_VERSION_BITS) - 1;
        for (bytes, records_max) in [
            (&[][..], 9),
            (&[second(1, 8)], 9),
            (&[second(1, 8), 1], 9),
            (&[second(1, 8), 1, 2, 3], 9),
            (&[second(1, 9), 1, 2], 9),
            (&[second(1, 8), 1, 2, 3, 4], 1),
            (&[second(0, 8), 1, 2], 9),
            (&[second(last, 8), 1, 2, 3, 4], 9),
        ] {
            assert!(fault(bytes, records_max).is_some(), "{bytes:x?}, {records_max} records");
        }
    }
}
