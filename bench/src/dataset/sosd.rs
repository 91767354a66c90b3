//! The SOSD binary format: a little-endian `u64` count, then as many little-endian keys, ascending.
//!
//! As in the SOSD collection, a file of 32-bit keys has `uint32` in its name; every other file holds 64-bit
//! keys. Keys must be in ascending order unless sorting is asked; repetitions are dropped and counted.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Write},
    path::Path,
};

use super::{DatasetError, FileOptions, KeySet, file::in_order};

const HEADER_BYTES: u64 = 8;
/// Read at a time; a multiple of both key widths.
const CHUNK_BYTES: usize = 1 << 20;

/// Reads a SOSD file.
///
/// # Errors
/// [`DatasetError::SosdHeader`] and [`DatasetError::SosdSize`] for a file shorter or longer than it states,
/// [`DatasetError::Unsorted`] for keys out of order when `options.sort` is not set, [`DatasetError::Io`].
pub fn read_sosd(path: &Path, options: FileOptions) -> Result<KeySet, DatasetError> {
    let io_error = |source| DatasetError::Io { action: "reading", path: path.to_owned(), source };
    let file = File::open(path).map_err(io_error)?;
    let got_bytes = file.metadata().map_err(io_error)?.len();
    if got_bytes < HEADER_BYTES {
        return Err(DatasetError::SosdHeader { path: path.to_owned(), got_bytes });
    }
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, file);
    let mut header = [0; HEADER_BYTES as usize];
    reader.read_exact(&mut header).map_err(io_error)?;
    let keys_stated = u64::from_le_bytes(header);
    let key_bytes = key_bytes(path);
    check_size(path, key_bytes, keys_stated, got_bytes)?;

    let mut keys = Vec::with_capacity(keys_stated as usize);
    let mut payload = reader.take(got_bytes - HEADER_BYTES);
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    while (keys.len() as u64) < keys_stated {
        chunk.clear();
        payload.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk).map_err(io_error)?;
        if chunk.is_empty() {
            // The file shrank after its size was taken.
            let got_bytes = HEADER_BYTES + keys.len() as u64 * key_bytes;
            check_size(path, key_bytes, keys_stated, got_bytes)?;
        }
        if key_bytes == 4 {
            keys.extend(chunk.as_chunks::<4>().0.iter().map(|&word| u64::from(u32::from_le_bytes(word))));
        } else {
            keys.extend(chunk.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)));
        }
    }
    in_order(path, keys, options)
}

/// Writes keys as a SOSD file of 64-bit keys.
///
/// # Errors
/// [`DatasetError::Io`] with the path.
///
/// # Panics
/// If the keys are not in ascending order, for the file would be refused when read.
pub fn write_sosd(path: &Path, keys: &[u64]) -> Result<(), DatasetError> {
    assert!(keys.is_sorted(), "a SOSD file holds keys in ascending order");
    let write = || {
        let mut writer = BufWriter::with_capacity(CHUNK_BYTES, File::create(path)?);
        writer.write_all(&(keys.len() as u64).to_le_bytes())?;
        for key in keys {
            writer.write_all(&key.to_le_bytes())?;
        }
        writer.flush()
    };
    write().map_err(|source| DatasetError::Io { action: "writing", path: path.to_owned(), source })
}

fn key_bytes(path: &Path) -> u64 {
    let is_narrow = path.file_name().is_some_and(|name| name.to_string_lossy().contains("uint32"));
    if is_narrow { 4 } else { 8 }
}

fn check_size(path: &Path, key_bytes: u64, keys_stated: u64, got_bytes: u64) -> Result<(), DatasetError> {
    let size_of = |width: u64| u128::from(keys_stated) * u128::from(width) + u128::from(HEADER_BYTES);
    if size_of(key_bytes) == u128::from(got_bytes) {
        return Ok(());
    }
    let hint = if key_bytes == 8 && size_of(4) == u128::from(got_bytes) {
        "; if its keys have 32 bits, give it a name that contains `uint32`"
    } else {
        ""
    };
    Err(DatasetError::SosdSize {
        path: path.to_owned(),
        key_bits: key_bytes as u32 * 8,
        keys_stated,
        expected_bytes: size_of(key_bytes).to_string(),
        got_bytes,
        hint,
    })
}
