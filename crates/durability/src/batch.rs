//! Records on their way from the thread that reads files to the one that fills tables.

use farsight_layout::value_block::RecordKind;

use crate::Record;

/// Bytes from which on a batch takes no more.
const FULL_BYTES: usize = 256 << 10;
/// Records that a batch takes at most.
const FULL_RECORDS: usize = 4096;

/// Records in their order, with keys and values of their own.
#[derive(Clone, Default, Debug)]
pub struct RecordBatch {
    heads: Vec<Head>,
    /// Key and value of each, one behind the other.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    table: u32,
    kind: RecordKind,
    version: u64,
    /// Where key and value begin, and where the value ends.
    begin: usize,
    key_bytes: usize,
    end: usize,
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
        self.heads.iter().map(|head| {
            let (key, value) = self.bytes[head.begin..head.end].split_at(head.key_bytes);
            let value = (head.kind == RecordKind::Pair).then_some(value);
            RecoveredRecord { table: head.table, version: head.version, key, value }
        })
    }

    pub(crate) fn push(&mut self, record: Record<'_>) {
        let Record { table, kind, block } = record;
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(block.key());
        self.bytes.extend_from_slice(block.value());
        let key_bytes = block.key().len();
        let end = self.bytes.len();
        self.heads.push(Head { table, kind, version: block.version(), begin, key_bytes, end });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.heads.len() >= FULL_RECORDS || self.bytes.len() >= FULL_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}
