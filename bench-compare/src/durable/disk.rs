//! One write and one fdatasync: the least that a durable write takes on a file system.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes of a write.
const WRITE_BYTES: usize = 4096;
/// Writes to one place after the other, until the first place follows.
const PLACES: u64 = 256;

/// A file that is written.
pub(super) struct Disk {
    file: File,
    /// Whether the file grows, or is written over.
    is_growing: bool,
    writes: u64,
}

impl Disk {
    /// A new file in `directory`.
    pub(super) fn new(directory: &Path, is_growing: bool) -> Result<Self> {
        let path = directory.join(if is_growing { "growing" } else { "written-over" });
        let file = OpenOptions::new().create_new(true).write(true).open(&path);
        let file = file.with_context(|| format!("making {}", path.display()))?;
        let mut disk = Self { file, is_growing, writes: 0 };
        if !is_growing {
            disk.file.write_all_at(&vec![0x5a; PLACES as usize * WRITE_BYTES], 0)?;
        }
        disk.file.sync_all().with_context(|| format!("syncing {}", path.display()))?;
        disk.write()?;
        Ok(disk)
    }

    /// The name in tables.
    pub(super) fn title(&self) -> &'static str {
        if self.is_growing { "fdatasync, 4 KiB appended" } else { "fdatasync, 4 KiB written over" }
    }

    /// A write and a sync.
    pub(super) fn write(&mut self) -> Result<()> {
        let place = if self.is_growing { self.writes } else { self.writes % PLACES };
        self.writes += 1;
        self.file.write_all_at(&[self.writes as u8; WRITE_BYTES], place * WRITE_BYTES as u64)?;
        self.file.sync_data()?;
        Ok(())
    }
}
