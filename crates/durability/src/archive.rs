//! Where a backup is kept: whole files, by name. A directory is one; a store of objects may be another.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};

/// Bytes of a file that are in memory at once.
const PIECE_BYTES: u64 = 1 << 20;
/// What a file is called until it is whole.
const UNFINISHED: &str = ".unfinished";

/// The content of a file, piece by piece.
pub type Pieces<'a> = dyn Iterator<Item = io::Result<Vec<u8>>> + 'a;

/// A place for whole files.
pub trait Archive {
    /// Where a file of this name stands, for people.
    fn place(&self, name: &str) -> String;

    /// The names of all files.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Keeps a file of this content; one of that name is replaced. It is there as a whole or not at all, and
    /// after a crash, too, once this has returned.
    ///
    /// # Errors
    /// That of a piece; the system's.
    fn put(&self, name: &str, content: &mut Pieces<'_>) -> io::Result<()>;

    /// Hands over the content of a file, piece by piece.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; that of `piece`; the system's.
    fn get(&self, name: &str, piece: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A directory that keeps backups.
pub struct DirectoryArchive(Arc<dyn Disk>);

impl DirectoryArchive {
    /// The directory of this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self(disk)
    }
}

impl Archive for DirectoryArchive {
    fn place(&self, name: &str) -> String {
        self.0.place(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn put(&self, name: &str, content: &mut Pieces<'_>) -> io::Result<()> {
        let unfinished = format!("{name}{UNFINISHED}");
        let file = self.0.create(&unfinished, 0)?;
        write_pieces(&*file, content)?;
        self.0.rename(&unfinished, name)?;
        self.0.sync_directory()
    }

    fn get(&self, name: &str, piece: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let file = self.0.open(name)?;
        let length_bytes = file.length_bytes()?;
        pieces(&*file, length_bytes).try_for_each(|bytes| piece(&bytes?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
}

/// The first `length_bytes` of a file, piece by piece.
pub(crate) fn pieces(
    file: &dyn DiskFile,
    length_bytes: u64,
) -> impl Iterator<Item = io::Result<Vec<u8>>> + '_ {
    let offsets = (0..length_bytes).step_by(PIECE_BYTES as usize);
    offsets.map(move |offset| {
        let mut bytes = vec![0; PIECE_BYTES.min(length_bytes - offset) as usize];
        file.read_at(offset, &mut bytes)?;
        Ok(bytes)
    })
}

/// Writes a file's content, and makes it durable.
pub(crate) fn write_pieces(file: &dyn DiskFile, content: &mut Pieces<'_>) -> io::Result<()> {
    let mut end = 0;
    for bytes in content {
        let bytes = bytes?;
        file.write_at(end, &bytes)?;
        end += bytes.len() as u64;
    }
    file.sync()
}
