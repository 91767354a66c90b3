//! Writing a block: a draft first, then its version.

use farsight_base::sync::{AtomicU64, Ordering};

use super::{
    BLOCK_HEADER_WORDS, BLOCK_KEY_BYTES_MAX, BLOCK_KEY_LENGTH_SHIFT, BLOCK_KIND_DRAFT, BLOCK_KIND_PAIR,
    BLOCK_KIND_SHIFT, BLOCK_TABLE_SHIFT, BLOCK_VALUE_BYTES_MAX, block_bytes, block_lines, sealed_checksum,
};
use crate::PAIR_VERSION_BITS;

/// A key or a value that no block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a {what} of {got_bytes} B is longer than a block holds: at most {max_bytes} B")]
pub struct BlockTooLong {
    /// "key" or "value".
    pub what: &'static str,
    /// Its length.
    pub got_bytes: usize,
    /// The greatest length.
    pub max_bytes: usize,
}

impl BlockTooLong {
    /// Fails for a key or a value that no block holds.
    ///
    /// # Errors
    /// [`BlockTooLong`] with the first offence.
    pub fn check(key_bytes: usize, value_bytes: usize) -> Result<(), Self> {
        let limits = [("key", key_bytes, BLOCK_KEY_BYTES_MAX), ("value", value_bytes, BLOCK_VALUE_BYTES_MAX)];
        match limits.into_iter().find(|(_, got, max)| got > max) {
            Some((what, got_bytes, max_bytes)) => Err(Self { what, got_bytes, max_bytes }),
            None => Ok(()),
        }
    }
}

/// Writes key and value into `words`, whose memory is the caller's alone, as a draft: no reader takes it for
/// a block. The last word is padded with zeros; words behind it stay as they are.
///
/// # Errors
/// [`BlockTooLong`]; then nothing was written.
///
/// # Panics
/// If `words` are fewer than the block needs.
pub fn write_draft(words: &[AtomicU64], key: &[u8], value: &[u8]) -> Result<(), BlockTooLong> {
    let mut draft = DraftInPieces::begin(words, key, value.len())?;
    draft.append(words, value);
    draft.end(words);
    Ok(())
}

/// The checksum of a draft with this key and this value: who sends a value in pieces says it.
#[must_use]
pub fn draft_checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(head_checksum(key, value.len()), value)
}

fn head_checksum(key: &[u8], value_bytes: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(value_bytes as u64).to_le_bytes()), key)
}

/// A draft whose value comes piece by piece. `words` are the same memory in each call.
#[derive(Clone, Copy, Debug)]
pub struct DraftInPieces {
    key_bytes: usize,
    value_bytes: usize,
    /// Bytes of the value that are there.
    written_bytes: usize,
    checksum: u32,
}

impl DraftInPieces {
    /// Begins one with this key, for a value of so many bytes.
    ///
    /// # Errors
    /// [`BlockTooLong`]; then nothing was written.
    ///
    /// # Panics
    /// If `words` are fewer than the block needs.
    pub fn begin(words: &[AtomicU64], key: &[u8], value_bytes: usize) -> Result<Self, BlockTooLong> {
        BlockTooLong::check(key.len(), value_bytes)?;
        let words = &words[..block_bytes(key.len(), value_bytes).div_ceil(8)];
        // Relaxed, as all stores here: who publishes the reference orders them.
        words[0].store(u64::from(BLOCK_KIND_DRAFT) << BLOCK_KIND_SHIFT, Ordering::Relaxed);
        words[2].store(value_bytes as u64, Ordering::Relaxed);
        store_bytes(&words[BLOCK_HEADER_WORDS..], 0, key);
        let checksum = head_checksum(key, value_bytes);
        Ok(Self { key_bytes: key.len(), value_bytes, written_bytes: 0, checksum })
    }

    /// Bytes of the whole value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of it that are there.
    #[must_use]
    pub fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// The [`draft_checksum`] of what is there.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Writes the next bytes of the value.
    ///
    /// # Panics
    /// If the value has not so many more.
    pub fn append(&mut self, words: &[AtomicU64], piece: &[u8]) {
        assert!(piece.len() <= self.value_bytes - self.written_bytes, "a piece behind the value's end");
        let at = self.key_bytes + self.written_bytes;
        #[cfg(injected)]
        let at = if crate::injected::PIECE_MISPLACED.is_injected() { self.key_bytes } else { at };
        store_bytes(&words[BLOCK_HEADER_WORDS..], at, piece);
        self.checksum = crc32c::crc32c_append(self.checksum, piece);
        self.written_bytes += piece.len();
    }

    /// Makes it a draft that can be sealed.
    ///
    /// # Panics
    /// If the value is not whole.
    pub fn end(self, words: &[AtomicU64]) {
        assert_eq!(self.written_bytes, self.value_bytes, "bytes of the value of a draft");
        let first = u64::from(self.checksum)
            | (self.key_bytes as u64) << BLOCK_KEY_LENGTH_SHIFT
            | u64::from(BLOCK_KIND_DRAFT) << BLOCK_KIND_SHIFT;
        words[0].store(first, Ordering::Relaxed);
    }
}

/// Makes the draft in `words` a block of this version in this table. The publication of a reference to it
/// orders these stores before it.
///
/// # Panics
/// If `words` hold no draft, or the version is zero or has more than [`PAIR_VERSION_BITS`].
pub fn seal(words: &[AtomicU64], version: u64, table: u16) {
    assert!(version != 0 && version >> PAIR_VERSION_BITS == 0, "a block of version {version}");
    let draft = words[0].load(Ordering::Relaxed);
    assert_eq!((draft >> BLOCK_KIND_SHIFT) as u8, BLOCK_KIND_DRAFT, "the kind of a draft");
    let key_bytes = (draft >> BLOCK_KEY_LENGTH_SHIFT) as u16;
    let second = version | u64::from(table) << BLOCK_TABLE_SHIFT;
    let checksum = sealed_checksum(draft as u32, second, key_bytes, BLOCK_KIND_PAIR);
    words[1].store(second, Ordering::Relaxed);
    let first = u64::from(checksum)
        | u64::from(key_bytes) << BLOCK_KEY_LENGTH_SHIFT
        | u64::from(BLOCK_KIND_PAIR) << BLOCK_KIND_SHIFT;
    words[0].store(first, Ordering::Relaxed);
}

/// What the header of a sealed block says, to the writer to whom its memory belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealedHeader {
    /// The pair's version.
    pub version: u64,
    /// The table.
    pub table: u16,
    /// Lines of the block.
    pub lines: usize,
}

impl SealedHeader {
    /// The header in `words`, without a look at the checksum.
    ///
    /// # Panics
    /// If `words` are fewer than a header has.
    #[must_use]
    pub fn read(words: &[AtomicU64]) -> Self {
        // Relaxed: the writer's own block, or one that it reached by a published reference.
        let [first, second, lengths] = [0, 1, 2].map(|word: usize| words[word].load(Ordering::Relaxed));
        let key_bytes = (first >> BLOCK_KEY_LENGTH_SHIFT) as u16;
        Self {
            version: second & ((1 << PAIR_VERSION_BITS) - 1),
            table: (second >> BLOCK_TABLE_SHIFT) as u16,
            lines: block_lines(key_bytes.into(), lengths as u32 as usize),
        }
    }
}

/// Stores bytes from byte `at` of `words` on, behind what stands there, with zeros up to the end of the last
/// word.
fn store_bytes(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let words_left = &words[at / 8..];
    let mut words = words_left.iter();
    let mut store = |bytes: [u8; 8]| {
        let word = words.next().expect("room for key and value");
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    };
    let before = at % 8;
    let (filling, bytes) = bytes.split_at(bytes.len().min((8 - before) % 8));
    if !filling.is_empty() {
        let mut shared = words_left[0].load(Ordering::Relaxed).to_le_bytes();
        shared[before..before + filling.len()].copy_from_slice(filling);
        store(shared);
    }
    let (whole, rest) = bytes.as_chunks::<8>();
    whole.iter().copied().for_each(&mut store);
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        store(last);
    }
}
