//! The manifest of a copy: which tables there are, and how their files end.

use super::COPY_FORMAT_VERSION;
use super::pieces::CopyFault;
use crate::frame::FrameFault;

/// The first word of a manifest.
const COPY_MAGIC: u64 = u64::from_le_bytes(*b"FARSCPY\n");
/// Keys of a table's sample at most.
pub const SAMPLE_KEYS_MAX: usize = 2048;
/// Bytes before the tables: magic, {version 32, checksum 32 of all behind}, {tables 32, zero 32}.
const HEADER_BYTES: usize = 24;
/// Bytes of the header that its checksum leaves out.
const UNCHECKED_BYTES: usize = 16;
/// The bit of a table's flags that says that its keys ascend.
const ASCENDING: u32 = 1;

/// A copy's tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyManifest {
    /// In the order of their names, none twice.
    pub tables: Vec<CopiedTable>,
}

/// One table of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedTable {
    /// Its name.
    pub name: String,
    /// Its definition, in bytes that mean something to who wrote it.
    pub definition: Vec<u8>,
    /// True if its keys ascend.
    pub is_ascending: bool,
    /// Pairs.
    pub pairs: u64,
    /// Pieces of its file.
    pub pieces: u64,
    /// Bytes of that.
    pub bytes: u64,
    /// Checksum of the last piece; zero without pieces.
    pub checksum: u32,
    /// Bytes of the longest value.
    pub value_bytes_max: u32,
    /// Keys at equal distances: first ones of pieces.
    pub sample: Vec<Vec<u8>>,
}

impl CopyManifest {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&COPY_MAGIC.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            for word in [table.pairs, table.pieces, table.bytes] {
                bytes.extend(word.to_le_bytes());
            }
            let flags = if table.is_ascending { ASCENDING } else { 0 };
            for half in [table.checksum, table.value_bytes_max, flags, table.sample.len() as u32] {
                bytes.extend(half.to_le_bytes());
            }
            for part in [table.name.as_bytes(), &table.definition] {
                push_part(&mut bytes, part);
            }
            table.sample.iter().for_each(|key| push_part(&mut bytes, key));
        }
        let checksum = crc32c::crc32c(&bytes[UNCHECKED_BYTES..]);
        bytes[8..12].copy_from_slice(&COPY_FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The manifest of these bytes; else where they are none, and why.
    ///
    /// # Errors
    /// [`CopyFault`], at an offset.
    pub fn parse(bytes: &[u8]) -> Result<Self, (u64, CopyFault)> {
        let mut rest = Rest { bytes, at: 0 };
        let magic = rest.word()?;
        if magic != COPY_MAGIC {
            return Err((0, field("magic", COPY_MAGIC, magic)));
        }
        let (version, got) = (rest.half()?, rest.half()?);
        if version != COPY_FORMAT_VERSION {
            return Err((8, CopyFault::OtherVersion(version)));
        }
        let expected = crc32c::crc32c(&bytes[UNCHECKED_BYTES.min(bytes.len())..]);
        if expected != got {
            return Err((12, FrameFault::Checksum { expected, got }.into()));
        }
        let (tables, zero) = (rest.half()?, rest.half()?);
        if zero != 0 {
            return Err((20, field("a half that is not used", 0, zero.into())));
        }
        let mut manifest = Self::default();
        for _ in 0..tables {
            let at = rest.at;
            let table = rest.table()?;
            let is_next = manifest.tables.last().is_none_or(|last| last.name < table.name);
            if !is_next {
                return Err((at, CopyFault::Order));
            }
            manifest.tables.push(table);
        }
        if rest.at < bytes.len() as u64 {
            return Err((rest.at, field("bytes behind the tables", 0, bytes.len() as u64 - rest.at)));
        }
        Ok(manifest)
    }
}

fn push_part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u32).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn field(what: &'static str, expected: u64, got: u64) -> CopyFault {
    FrameFault::Field { what, expected, got }.into()
}

/// What is left of a manifest.
struct Rest<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], (u64, CopyFault)> {
        let rest = &self.bytes[self.at as usize..];
        let cut = FrameFault::Cut { needed_bytes: length as u64, got_bytes: rest.len() as u64 };
        let taken = rest.get(..length).ok_or((self.at, cut.into()))?;
        self.at += length as u64;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, (u64, CopyFault)> {
        let bytes = self.take(8)?.try_into().expect("eight bytes");
        Ok(u64::from_le_bytes(bytes))
    }

    fn half(&mut self) -> Result<u32, (u64, CopyFault)> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    /// A part behind its length.
    fn part(&mut self) -> Result<&'a [u8], (u64, CopyFault)> {
        let length = self.half()?;
        self.take(length as usize)
    }

    fn table(&mut self) -> Result<CopiedTable, (u64, CopyFault)> {
        let (pairs, pieces, bytes) = (self.word()?, self.word()?, self.word()?);
        let (checksum, value_bytes_max) = (self.half()?, self.half()?);
        let (at, flags, keys) = (self.at, self.half()?, self.half()?);
        if flags > ASCENDING {
            return Err((at, field("flags, at most", ASCENDING.into(), flags.into())));
        }
        if keys as usize > SAMPLE_KEYS_MAX {
            return Err((at + 4, field("keys of a sample, at most", SAMPLE_KEYS_MAX as u64, keys.into())));
        }
        let at = self.at;
        let name = str::from_utf8(self.part()?).map_err(|_| (at, CopyFault::Name))?.to_owned();
        let definition = self.part()?.to_vec();
        let sample = (0..keys).map(|_| Ok(self.part()?.to_vec())).collect::<Result<_, _>>()?;
        let is_ascending = flags == ASCENDING;
        Ok(CopiedTable {
            name,
            definition,
            is_ascending,
            pairs,
            pieces,
            bytes,
            checksum,
            value_bytes_max,
            sample,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_table() -> impl Strategy<Value = CopiedTable> {
        let name = "[a-z]{1,5}";
        let parts = (name, any::<Vec<u8>>(), any::<bool>(), any::<Vec<Vec<u8>>>());
        (parts, any::<[u64; 3]>(), any::<[u32; 2]>()).prop_map(|(parts, words, halves)| {
            let (name, definition, is_ascending, sample) = parts;
            let ([pairs, pieces, bytes], [checksum, value_bytes_max]) = (words, halves);
            CopiedTable {
                name,
                definition,
                is_ascending,
                pairs,
                pieces,
                bytes,
                checksum,
                value_bytes_max,
                sample,
            }
        })
    }

    proptest! {
        #[test]
        fn a_manifest_comes_back_and_no_other(
            mut tables in prop::collection::vec(any_table(), 0..4), change: (usize, u8),
        ) {
            tables.sort_by(|first, second| first.name.cmp(&second.name));
            tables.dedup_by(|first, second| first.name == second.name);
            let manifest = CopyManifest { tables };
            let mut bytes = manifest.to_bytes();
            prop_assert_eq!(CopyManifest::parse(&bytes), Ok(manifest));
            let at = change.0 % bytes.len();
            prop_assert!(CopyManifest::parse(&bytes[..at]).is_err(), "cut at {}", at);
            bytes[at] ^= change.1.max(1);
            prop_assert!(CopyManifest::parse(&bytes).is_err(), "byte {} changed", at);
        }
    }

    #[test]
    fn tables_are_named_once() {
        let table = |name: &str| CopiedTable {
            name: name.to_owned(),
            definition: Vec::new(),
            is_ascending: false,
            pairs: 0,
            pieces: 0,
            bytes: 0,
            checksum: 0,
            value_bytes_max: 0,
            sample: Vec::new(),
        };
        for names in [["b", "a"], ["a", "a"]] {
            let bytes = CopyManifest { tables: names.map(table).into() }.to_bytes();
            assert_eq!(CopyManifest::parse(&bytes), Err((73, CopyFault::Order)), "{names:?}");
        }
    }
}
