//! A directory of the machine's file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::UNIX_EPOCH;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

use super::{Disk, DiskFile};
use crate::DurabilityError;
use crate::error::disk_error;

/// The file whose lock says that a process uses the directory. It holds its own inode's number and time of
/// birth: a copy of it has others.
const LOCK: &str = "lock";

/// Threads that read at once, at most: as many are ahead of one that fills tables.
const READERS_MAX: usize = 4;

/// A directory.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    /// The locked file, once it is.
    locked: Mutex<Option<File>>,
}

struct RealFile(File);

impl RealDisk {
    /// The directory of this path, which is made if it is not there.
    ///
    /// # Errors
    /// [`DurabilityError::Disk`].
    pub fn make(path: impl AsRef<Path>) -> Result<Self, DurabilityError> {
        let path = path.as_ref();
        std::fs::create_dir_all(path).map_err(disk_error("making", path.display().to_string()))?;
        Self::open_directory(path)
    }

    /// The directory of this path.
    ///
    /// # Errors
    /// [`DurabilityError::Disk`].
    pub fn open_directory(path: impl AsRef<Path>) -> Result<Self, DurabilityError> {
        let path = path.as_ref().to_owned();
        let opened = File::open(&path);
        let directory = opened.map_err(disk_error("opening", path.display().to_string()))?;
        Ok(Self { path, directory, locked: Mutex::default() })
    }
}

impl Disk for RealDisk {
    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn lock(&self) -> io::Result<()> {
        let path = self.path.join(LOCK);
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let file = match opened {
            // Data can be read there. Without the file no process has ever used them there.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => opened?,
            },
            opened => opened?,
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    fn is_copied(&self) -> io::Result<bool> {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &*locked else { return Ok(false) };
        let metadata = file.metadata()?;
        // A number may be given again; where the file system has no time of birth, that is all.
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let own = [metadata.ino(), born.map_or(0, |born| born.as_nanos() as u64)].map(u64::to_le_bytes);
        let own = own.as_flattened();
        let mut noted = [0; 16];
        let is_noted = metadata.len() == noted.len() as u64;
        if is_noted {
            file.read_exact_at(&mut noted, 0)?;
        }
        if noted != own {
            file.write_all_at(own, 0)?;
        }
        Ok(is_noted && noted != own)
    }

    fn readers(&self) -> usize {
        available_parallelism().map_or(1, NonZero::get).min(READERS_MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| !matches!(name, Ok(name) if name == LOCK)).collect()
    }

    fn changed_ms(&self, name: &str) -> io::Result<Option<u64>> {
        let changed = std::fs::metadata(self.path.join(name))?.modified()?;
        Ok(changed.duration_since(UNIX_EPOCH).ok().map(|since| since.as_millis() as u64))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        // Offline tools may have no right to write.
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => File::open(&path),
            _ => Err(error),
        })?;
        Ok(Box::new(RealFile(file)))
    }

    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        if length_bytes > 0 {
            match fallocate(&file, FallocateFlags::empty(), 0, length_bytes) {
                // A file system that cannot reserve grows the file as it is written.
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(length_bytes)?,
                allocated => allocated?,
            }
        }
        Ok(Box::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

impl DiskFile for RealFile {
    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        self.0.set_len(length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
