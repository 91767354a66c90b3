//! A copy of tables: their definitions and pairs, as files that any pool can take in again.
//!
//! Invariant: a copy is whole or none. The manifest is kept last, and names each file with its pieces, pairs,
//! bytes and the checksum of its last piece. A piece's checksum covers that of the piece before. So a reader
//! that has come to the end of a file has read what was written, all of it and nothing else.
//!
//! Protocol:
//! 1. [`begin_copy`] refuses a place where something is.
//! 2. [`write_table`] keeps a file a table: a header, and the pairs in pieces, each under its checksum. *A
//!    crash leaves files without a manifest, which are no copy.*
//! 3. [`finish_copy`] keeps the manifest.
//!
//! Who reads a copy begins with the manifest ([`read_manifest`]), and takes the pairs of a table piece by
//! piece ([`read_table`]). It is told of no pair before its piece was checked, and of the end if that fits.

mod manifest;
mod pieces;

use std::io;

use crate::Archive;
use crate::error::{DurabilityError, disk_error};

pub use manifest::{CopiedTable, CopyManifest, SAMPLE_KEYS_MAX};
pub use pieces::{CopyFault, TABLE_HEADER_BYTES, TABLE_PIECE_BYTES_MAX, TABLE_PIECE_HEADER_BYTES};

use pieces::{TableReader, TableWriter};

/// The version of all files of a copy. Another one is refused by its number.
pub const COPY_FORMAT_VERSION: u32 = 1;
/// The name of the manifest.
const MANIFEST: &str = "copy";

/// One pair of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopiedPair<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// When the pair ends, in milliseconds since 1970; 0: it does not.
    pub ends_at_ms: u64,
    /// The value.
    pub value: &'a [u8],
}

/// What is said of a table before its pairs are there.
#[derive(Clone, Copy, Debug)]
pub struct TableToCopy<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its definition, in bytes that mean something to the caller.
    pub definition: &'a [u8],
    /// True if its pairs come in the order of their keys.
    pub is_ascending: bool,
}

/// Where the pairs of a table come from.
pub trait PairSource {
    /// Why they do not come.
    type Error;

    /// The next pair; `None` at the end.
    ///
    /// # Errors
    /// Its own.
    fn next(&mut self) -> Result<Option<CopiedPair<'_>>, Self::Error>;
}

/// Why a table was not copied, or not taken in: its files, or the other side.
#[derive(Debug, thiserror::Error)]
pub enum CopyError<E> {
    /// The files.
    #[error(transparent)]
    Files(#[from] DurabilityError),
    /// The table.
    #[error(transparent)]
    Table(E),
}

/// Refuses a place where something is already.
///
/// # Errors
/// [`DurabilityError`].
pub fn begin_copy(archive: &dyn Archive) -> Result<(), DurabilityError> {
    let found = archive.list().map_err(disk_error("listing", archive.place("")))?;
    match found.into_iter().next() {
        None => Ok(()),
        Some(found) => {
            let remedy = "a copy gets a place of its own, so that the one before stays whole";
            Err(DurabilityError::NotEmpty { place: archive.place(""), found, remedy })
        }
    }
}

/// Keeps the pairs of a table, and tells `progress` how many there are so far.
///
/// # Errors
/// [`CopyError`]; then nothing of the table is kept.
pub fn write_table<S: PairSource>(
    archive: &dyn Archive,
    table: TableToCopy<'_>,
    source: &mut S,
    progress: &mut dyn FnMut(u64),
) -> Result<CopiedTable, CopyError<S::Error>> {
    let file_name = file_name(table.name);
    let mut writer = TableWriter::new(table);
    let (mut failed, mut is_over) = (None, false);
    let mut pieces = std::iter::once(Ok(TableWriter::header())).chain(std::iter::from_fn(|| {
        while !is_over {
            match source.next() {
                Ok(Some(pair)) => writer.push(pair),
                Ok(None) => is_over = true,
                Err(error) => {
                    failed = Some(error);
                    is_over = true;
                    return Some(Err(io::Error::other("the pairs do not come")));
                }
            }
            if writer.is_full() || is_over {
                progress(writer.pairs());
                return writer.seal().map(Ok);
            }
        }
        None
    }));
    let kept = archive.put(&file_name, &mut pieces);
    drop(pieces);
    match (failed, kept) {
        (Some(error), _) => Err(CopyError::Table(error)),
        (None, Err(error)) => Err(disk_error("writing", archive.place(&file_name))(error).into()),
        (None, Ok(())) => Ok(writer.finish()),
    }
}

/// Keeps the manifest: from now on the files are a copy.
///
/// # Errors
/// [`DurabilityError`].
pub fn finish_copy(archive: &dyn Archive, manifest: &CopyManifest) -> Result<(), DurabilityError> {
    let keep = archive.put(MANIFEST, &mut std::iter::once(Ok(manifest.to_bytes())));
    keep.map_err(disk_error("writing", archive.place(MANIFEST)))
}

/// What the copy at a place says of itself.
///
/// # Errors
/// [`DurabilityError`]: there is none, it is of another version, or damaged.
pub fn read_manifest(archive: &dyn Archive) -> Result<CopyManifest, DurabilityError> {
    let file = archive.place(MANIFEST);
    let mut bytes = Vec::new();
    let read = archive.get(MANIFEST, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let why = "it is kept last, so there is no copy, or one that was cut";
            DurabilityError::Missing { file: file.clone(), why }
        }
        _ => disk_error("reading", file.clone())(error),
    })?;
    CopyManifest::parse(&bytes).map_err(|(offset, fault)| fault.in_file(file, offset))
}

/// Reads the pairs of a table of a copy, each of which `visit` is told once its piece was checked.
///
/// # Errors
/// [`CopyError`]: the file is missing, damaged or not the one that the manifest names; that of `visit`.
pub fn read_table<E>(
    archive: &dyn Archive,
    table: &CopiedTable,
    visit: &mut dyn FnMut(CopiedPair<'_>) -> Result<(), E>,
) -> Result<(), CopyError<E>> {
    let name = file_name(&table.name);
    let file = archive.place(&name);
    let mut reader = TableReader::new(table);
    let mut failed = None;
    let read = archive.get(&name, &mut |bytes| {
        reader.feed(bytes, visit).map_err(|error| {
            failed = Some(error);
            io::Error::other("what it holds is refused")
        })
    });
    let of_reader = |error| match error {
        pieces::Refused::By(error) => CopyError::Table(error),
        pieces::Refused::For(offset, fault) => fault.in_file(file.clone(), offset).into(),
    };
    if let Some(error) = failed {
        return Err(of_reader(error));
    }
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DurabilityError::Missing { file: file.clone(), why: "the manifest names it" }
        }
        _ => disk_error("reading", file.clone())(error),
    })?;
    reader.finish().map_err(|(offset, fault)| of_reader(pieces::Refused::For(offset, fault)))
}

/// The file of a table.
fn file_name(table: &str) -> String {
    format!("table-{table}")
}
