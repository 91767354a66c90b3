//! Results in files: all of one, or what was there before.
//!
//! Invariant: a regular file is replaced by a rename, after its successor was written and synchronized in the
//! same directory. A reader of its name sees the old bytes or the new ones, also after a full disk or a
//! crash. What is no regular file (a terminal, a pipe, `/dev/stdout`) is written where it is.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// What files are made with; the process's mask takes bits away.
const MODE: u32 = 0o666;

/// Where a file's bytes go.
enum FilePlace {
    /// To a name, by a rename in its directory; with the mode of the file that it names now.
    Name(PathBuf, Permissions),
    /// To what is there: no regular file.
    Device,
}

/// Puts `contents` at `path`.
///
/// # Errors
/// The system's; what was at `path` is unchanged then, if it was a regular file.
pub fn write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    match place(path)? {
        FilePlace::Device => OpenOptions::new().write(true).open(path)?.write_all(contents),
        FilePlace::Name(target, permissions) => {
            let mut file = beside(&target, permissions)?;
            file.write_all(contents)?;
            file.as_file().sync_all()?;
            file.persist(&target).map_err(|error| error.error)?;
            // The new name lasts once the directory is on the disk.
            File::open(directory(&target))?.sync_all()
        }
    }
}

/// Finds out, without a trace, whether [`write_whole`] could begin: before minutes of work, not after them.
///
/// # Errors
/// The system's.
pub fn check_whole(path: &Path) -> io::Result<()> {
    match place(path)? {
        FilePlace::Device => OpenOptions::new().write(true).open(path).map(drop),
        FilePlace::Name(target, permissions) => beside(&target, permissions)?.close(),
    }
}

fn place(path: &Path) -> io::Result<FilePlace> {
    match path.metadata() {
        // A name that leads to a file elsewhere goes on doing so.
        Ok(metadata) if metadata.is_file() => {
            Ok(FilePlace::Name(path.canonicalize()?, metadata.permissions()))
        }
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(FilePlace::Device),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(FilePlace::Name(path.to_owned(), Permissions::from_mode(MODE)))
        }
        Err(error) => Err(error),
    }
}

fn beside(target: &Path, permissions: Permissions) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".farsight-").permissions(permissions).tempfile_in(directory(target))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let name = |entry: io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_with_its_mode_and_its_links() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (path, link) = (directory.path().join("result"), directory.path().join("link"));
        check_whole(&path).expect("it can be written");
        assert_eq!(names(directory.path()), [""; 0]);
        write_whole(&path, b"first").expect("it is written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("its own file");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        // A process that has the old file open goes on reading it.
        let mut before = File::open(&path).expect("it is there");
        write_whole(&link, b"second").expect("it is written");
        let mut old = String::new();
        io::Read::read_to_string(&mut before, &mut old).expect("text");
        assert_eq!(old, "first");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"second");
        let metadata = path.metadata().expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        assert_eq!(names(directory.path()), ["link", "result"]);
    }

    #[test]
    fn devices_are_written_where_they_are_and_directories_are_refused() {
        let full = Path::new("/dev/full");
        check_whole(full).expect("it can be opened");
        let error = write_whole(full, b"text").expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        write_whole(Path::new("/dev/null"), b"text").expect("it takes all");
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(check_whole(directory.path()).is_err());
        assert!(check_whole(&directory.path().join("nowhere/result")).is_err());
    }
}
