//! What a node keeps on a disk: a log of its tables' pairs, snapshots of tables, and the catalogue that names
//! both. docs/protocol/durability.md has the protocol, docs/format.md the bytes.
//!
//! Invariants:
//! - a record that [`Log::sync`] has covered is found by every later recovery, until a snapshot that covers
//!   it is named in the catalogue;
//! - whatever recovery finds was appended. It refuses a log in which something durable is damaged or missing,
//!   by file and offset;
//! - the catalogue changes at one instant, by a rename. It names the oldest segment that recovery needs, and
//!   the complete pieces of each table's snapshot. What it does not name does not count;
//! - after a sync that failed nothing is trusted any more: every later append and sync fails.
//!
//! There is one log a node, not one a table. A sync of the disk costs the same whatever it covers, so writes
//! of all tables share it.

#![forbid(unsafe_code)]

mod archive;
mod backup;
mod batch;
mod catalogue;
mod copy;
pub mod disk;
mod error;
mod frame;
#[cfg(injected)]
pub mod injected;
mod log;
mod look_up;
mod note;
mod piece_readers;
mod reader;
mod recovery;
mod restore;
mod segment;
mod snapshot;
mod spares;
mod store;
mod syncs;
mod unsynced;

pub use archive::{Archive, DirectoryArchive, Pieces};
pub use backup::{Backup, back_up};
pub use batch::{RecordBatch, RecordRun, RecoveredRecord};
pub use catalogue::{
    CATALOGUE_MAGIC, Catalogue, CatalogueTable, DirectoryLife, Membership, PoolNode, SnapshotPiece,
};
pub use copy::{
    COPY_FORMAT_VERSION, CopiedPair, CopiedTable, CopyError, CopyFault, CopyManifest, PairSource,
    SAMPLE_KEYS_MAX, TABLE_HEADER_BYTES, TABLE_PIECE_BYTES_MAX, TABLE_PIECE_HEADER_BYTES, TableToCopy,
    begin_copy, finish_copy, read_manifest, read_table, write_table,
};
pub use error::DurabilityError;
pub use frame::{
    FRAME_HEADER_BYTES, Frame, FrameFault, FrameWriter, RECORD_HEADER_BYTES, RUN_BIT, RUN_HEADER_BYTES,
    Record, RecordFault,
};
pub use log::{Log, LogOptions};
pub use look_up::look_up;
pub use note::{
    NOTE_ALL_FORGOTTEN, NOTE_AUTHOR, NOTE_CALL, NOTE_CALL_IN_ROW, NOTE_HEADER_BYTES, Note, NoteBatch,
    NotedReply,
};
pub use reader::{Cut, LogEnd, read_log};
pub use recovery::{Recovered, Recovering, recover};
pub use restore::restore;
pub use segment::{LogPosition, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, SegmentHeader, log_bytes};
pub use snapshot::{PieceTimes, SnapshotWriter, read_piece};
pub use spares::Spares;
pub use store::Store;
pub use syncs::{Syncs, Who};

/// The version of all files here. Another one is refused by its number, but for those from the oldest one on.
pub const DATA_FORMAT_VERSION: u32 = 5;
/// The oldest version that is read, too. What is written into its directory is of today's.
pub const OLDEST_DATA_FORMAT_VERSION: u32 = 3;
/// The version from which on there are notes of calls.
pub(crate) const NOTES_SINCE_VERSION: u32 = 4;

/// True for the versions that are read.
pub(crate) fn is_known_format(version: u32) -> bool {
    (OLDEST_DATA_FORMAT_VERSION..=DATA_FORMAT_VERSION).contains(&version)
}
