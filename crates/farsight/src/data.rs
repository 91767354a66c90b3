//! A directory of data: looked at while no server uses it, backed up, and restored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use farsight_durability::disk::{Disk, RealDisk};
use farsight_durability::{
    Archive, Backup, DirectoryArchive, DurabilityError, PieceTimes, Store, back_up, log_bytes, read_log,
    read_piece, restore,
};
use farsight_layout::Deadline;
use farsight_protocol::{KeyKind, TableLayout, ValueKind};

/// What a directory of data holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataReport {
    /// Its tables, by their numbers.
    pub tables: Vec<DataTable>,
    /// How often a server was started in it.
    pub lives: u64,
    /// The index of its node in its pool, and how many nodes that has; none before the first table.
    pub place: Option<(usize, usize)>,
    /// Segments of the log that a server would read.
    pub segments: u64,
    /// Bytes of those.
    pub replay_bytes: u64,
    /// The file and the byte from which on the log's end does not count, where something stands there.
    pub cut: Option<(String, u64)>,
}

/// One table of a directory of data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataTable {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What its keys are, if its definition can be read.
    pub key_kind: Option<KeyKind>,
    /// What its values are, if its definition can be read.
    pub values: Option<ValueKind>,
    /// Pairs of its snapshot; `None` without one.
    pub snapshot_pairs: Option<u64>,
    /// When the oldest piece of its snapshot was written, in milliseconds since 1970, if its file says so.
    pub oldest_piece_ms: Option<u64>,
    /// The same of the piece in the middle, by age.
    pub median_piece_ms: Option<u64>,
    /// Records of the log that a server would apply.
    pub records: u64,
}

/// One record of a log.
#[derive(Clone, Copy, Debug)]
pub struct DataRecord<'a> {
    /// The segment.
    pub segment: u64,
    /// Bytes from its begin to the frame of the record.
    pub offset: u64,
    /// The table's number.
    pub table_id: u32,
    /// The table, if there still is one.
    pub table: Option<&'a DataTable>,
    /// The key, as its table's kind encodes it.
    pub key: u64,
    /// The version.
    pub version: u64,
    /// The value; `None` for a removal.
    pub value: Option<&'a [u8]>,
    /// When the pair ends, in milliseconds since 1970; `None` if it does not.
    pub ends_at_ms: Option<u64>,
}

/// Reads all that a server would read from the directory, hands each record of the log to `visit`, and says
/// what there is. Nothing is changed.
///
/// # Errors
/// [`DurabilityError`]: a server uses the directory, or would refuse it.
pub fn read_data(
    directory: &Path,
    mut visit: impl FnMut(DataRecord<'_>),
) -> Result<DataReport, DurabilityError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_directory(directory)?);
    Store::lock(&*disk)?;
    let why = "there are no data of a server here";
    let missing = || DurabilityError::Missing { file: disk.place("catalogue"), why };
    let catalogue = Store::read(&*disk)?.ok_or_else(missing)?;
    let mut tables = BTreeMap::new();
    for (id, table) in &catalogue.tables {
        for piece in &table.pieces {
            read_piece(&*disk, piece, *id, |_| Ok(()))?;
        }
        let definition = TableLayout::from_bytes(&table.definition).ok().map(|layout| layout.definition);
        let times = PieceTimes::of(&*disk, &table.pieces);
        let described = DataTable {
            id: *id,
            name: table.name.clone(),
            key_kind: definition.as_ref().map(|definition| definition.key_kind),
            values: definition.map(|definition| definition.values),
            snapshot_pairs: table.snapshot_pairs(),
            oldest_piece_ms: times.map(|times| times.oldest_ms),
            median_piece_ms: times.map(|times| times.median_ms),
            records: 0,
        };
        tables.insert(*id, described);
    }
    let end = read_log(&*disk, catalogue.first_segment, |position, record| {
        let kept = catalogue.tables.get(&record.table);
        let table = tables.get_mut(&record.table);
        if let (Some(table), Some(kept)) = (table, kept) {
            table.records += u64::from(kept.needs(position, record.key));
        }
        let has_deadlines = tables.get(&record.table).and_then(|table| table.values?.expiry()).is_some();
        let stored = record.is_pair().then_some(record.value);
        let split = stored.filter(|_| has_deadlines).and_then(Deadline::split);
        visit(DataRecord {
            segment: position.segment,
            offset: position.offset,
            table_id: record.table,
            table: tables.get(&record.table),
            key: record.key.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
            version: record.version,
            value: split.map(|(_, value)| value).or(stored),
            ends_at_ms: split.map(|(deadline, _)| deadline.0).filter(|ends_at_ms| *ends_at_ms > 0),
        });
        Ok(())
    })?;
    catalogue.check_end(&*disk, &end)?;
    let replay_bytes = log_bytes(&*disk, catalogue.first_segment, end.position());
    let cut = end.cut.filter(|cut| cut.fault.is_some()).map(|cut| (disk.place(&cut.name), cut.offset));
    let segments = (end.segment + 1).saturating_sub(catalogue.first_segment);
    let (membership, lives) = (&catalogue.membership, catalogue.incarnation);
    let nodes = membership.nodes.len();
    let place = (nodes > 0).then_some((membership.index as usize, nodes));
    Ok(DataReport { tables: tables.into_values().collect(), lives, place, segments, replay_bytes, cut })
}

/// What a backup holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupReport {
    /// The names of its tables.
    pub tables: Vec<String>,
    /// Segments of its log.
    pub segments: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

impl From<Backup> for BackupReport {
    fn from(backup: Backup) -> Self {
        let segments = backup.segments();
        let tables = backup.catalogue.tables.into_values().map(|table| table.name).collect();
        Self { tables, segments, bytes: backup.bytes }
    }
}

/// A directory that keeps a backup, or will.
///
/// # Errors
/// [`DurabilityError`].
pub fn directory_archive(path: &Path) -> Result<DirectoryArchive, DurabilityError> {
    Ok(DirectoryArchive::new(Arc::new(RealDisk::open_directory(path)?)))
}

/// Copies a directory of data to `archive`, while a server may use it, and tells `progress` of the bytes
/// copied. The backup is what the directory held at one instant of the call.
///
/// # Errors
/// [`DurabilityError`]; then the archive holds files that are no backup.
pub fn back_up_data(
    directory: &Path,
    archive: &dyn Archive,
    mut progress: impl FnMut(u64),
) -> Result<BackupReport, DurabilityError> {
    back_up(&RealDisk::open_directory(directory)?, archive, &mut progress).map(BackupReport::from)
}

/// Makes a directory of data, which is empty or not there yet, of the backup in `archive`, and tells
/// `progress` of the bytes copied. All that a server would read was checked when this returns.
///
/// # Errors
/// [`DurabilityError`]; then no server uses the directory.
pub fn restore_data(
    archive: &dyn Archive,
    directory: &Path,
    mut progress: impl FnMut(u64),
) -> Result<BackupReport, DurabilityError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::make(directory)?);
    restore(archive, &disk, &mut progress).map(BackupReport::from)
}
