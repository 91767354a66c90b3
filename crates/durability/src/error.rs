//! What goes wrong with a directory of data.

use std::io;

use crate::frame::FrameFault;
use crate::{COPY_FORMAT_VERSION, CopyFault, DATA_FORMAT_VERSION, OLDEST_DATA_FORMAT_VERSION};

/// Why data cannot be kept, or not be found again.
#[derive(Debug, thiserror::Error)]
pub enum DurabilityError {
    /// The disk failed.
    #[error("{what} {file}: {source}")]
    Disk {
        /// What was done.
        what: &'static str,
        /// Which file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is full. Nothing changed.
    #[error("{file} needs {needed_bytes} B, and the disk has no room: free some, and try again")]
    Full {
        /// Which file.
        file: String,
        /// Its bytes.
        needed_bytes: u64,
    },
    /// Another process uses the directory.
    #[error("{directory} is in use by another process: a directory of data belongs to one server at a time")]
    InUse {
        /// The directory.
        directory: String,
    },
    /// Files of another version.
    #[error(
        "{file} is of format {got}, this program reads {OLDEST_DATA_FORMAT_VERSION} to {DATA_FORMAT_VERSION}: use the \
         release that wrote it"
    )]
    OtherFormat {
        /// Which file.
        file: String,
        /// Its version.
        got: u32,
    },
    /// A copy of tables of another version.
    #[error(
        "{file} is of version {got} of copies, this program reads {COPY_FORMAT_VERSION}: use the release that wrote it"
    )]
    OtherCopyFormat {
        /// Which file.
        file: String,
        /// Its version.
        got: u32,
    },
    /// A file is none of a copy of tables.
    #[error("{file} is damaged at byte {offset}: {fault}")]
    NoCopy {
        /// Which file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        fault: CopyFault,
    },
    /// Something durable is damaged.
    #[error("{file} is damaged at byte {offset}{}: {fault}", of_table(*table))]
    Damaged {
        /// Which file.
        file: String,
        /// Where.
        offset: u64,
        /// The table, if that can be told.
        table: Option<u32>,
        /// What is wrong.
        fault: FrameFault,
    },
    /// A file that belongs to the data is not there.
    #[error("{file} is missing: {why}")]
    Missing {
        /// Which file.
        file: String,
        /// Why it is needed.
        why: &'static str,
    },
    /// There are files where none may be.
    #[error("{place} holds {found} already: {remedy}")]
    NotEmpty {
        /// Where.
        place: String,
        /// One of them.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A backup that did not come to an end beside a server that changed its tables all the time.
    #[error("the tables in {place} changed {times} times while they were copied: try again later")]
    Changing {
        /// The directory.
        place: String,
        /// How often.
        times: usize,
    },
    /// What the files say of a table is refused by who makes it.
    #[error("table {table}: {why}")]
    Refused {
        /// Its name, or its number.
        table: String,
        /// Why.
        why: String,
    },
    /// An earlier failure after which nothing can be trusted.
    #[error(
        "the data are not written any more, since {why}. Start the server again: it goes on with what is on the disk"
    )]
    Poisoned {
        /// That failure.
        why: String,
    },
}

fn of_table(table: Option<u32>) -> String {
    table.map_or_else(String::new, |table| format!(", in records of table {table}"))
}

/// Says what was done to which file, where the disk failed.
pub(crate) fn disk_error(what: &'static str, file: String) -> impl FnOnce(io::Error) -> DurabilityError {
    move |source| DurabilityError::Disk { what, file, source }
}
