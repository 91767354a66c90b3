//! The lock of a socket path: one server a path, stale sockets replaced, nothing left behind.
//!
//! Invariant: the process that holds the lock on `<path>.lock` owns the socket at `<path>`, and no other
//! process removes or makes either. The lock dies with its holder, so a socket without a locked lock file is
//! stale.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use crate::{os, socket};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a server cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The path does not fit a socket address.
    #[error("the socket path {path} has {length_bytes} B and the limit is {limit_bytes}: use a shorter one")]
    PathTooLong {
        /// The path.
        path: String,
        /// Its length.
        length_bytes: usize,
        /// What the operating system takes.
        limit_bytes: usize,
    },
    /// The path's directory is not there.
    #[error(
        "cannot listen at {path}: the directory {directory} does not exist. Make it with: mkdir -p {directory}"
    )]
    DirectoryMissing {
        /// The path.
        path: String,
        /// Its directory.
        directory: String,
    },
    /// The path, or what lies there, is another user's.
    #[error(
        "cannot listen at {path}: permission denied for uid {own_uid} on {what}, which belongs to uid {owner_uid}"
    )]
    PermissionDenied {
        /// The path.
        path: String,
        /// The file or directory that denied it.
        what: String,
        /// Its owner.
        owner_uid: String,
        /// Who asked.
        own_uid: u32,
    },
    /// Another server lives there.
    #[error("cannot listen at {path}: {holder} serves there. Stop it, or choose another path")]
    InUse {
        /// The path.
        path: String,
        /// Who it is, with its pid if that is known.
        holder: String,
    },
    /// What lies at the path is not a socket, and is not ours to remove.
    #[error("cannot listen at {path}: what lies there is not a socket. Remove it, or choose another path")]
    NotASocket {
        /// The path.
        path: String,
    },
    /// The operating system refused another step.
    #[error("cannot listen at {path}: {step} failed: {source}")]
    System {
        /// The path.
        path: String,
        /// The step.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A path that this process serves: the listening socket, and the lock that says so.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    lock_path: PathBuf,
    listener: OwnedFd,
    _lock: File,
}

impl PathLock {
    /// Listens at `path`. `shared` lets other users reach the socket.
    pub(crate) fn take(path: &Path, shared: bool, opens_later: bool) -> Result<Self, ListenError> {
        let length_bytes = path.as_os_str().len();
        let limit_bytes = socket::PATH_BYTES_MAX;
        let shown = path.display().to_string();
        if length_bytes > limit_bytes {
            return Err(ListenError::PathTooLong { path: shown, length_bytes, limit_bytes });
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !directory.is_dir() {
            let directory = directory.display().to_string();
            return Err(ListenError::DirectoryMissing { path: shown, directory });
        }
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(path, &lock_path)?;
        clear_stale(path)?;
        let path_lock = Self { path: path.to_owned(), lock_path, listener: bind(path, shared)?, _lock: lock };
        if !opens_later {
            path_lock.open().map_err(system(path, "listening"))?;
        }
        Ok(path_lock)
    }

    /// Lets clients connect from now on.
    pub(crate) fn open(&self) -> io::Result<()> {
        Ok(rustix::net::listen(self.listener.as_fd(), BACKLOG)?)
    }

    pub(crate) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // The socket first: without the lock it would be another's. Who removed either before left no work.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

fn system(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.display().to_string();
    move |source| ListenError::System { path, step, source }
}

fn denied(path: &Path, what: &Path) -> ListenError {
    let parent = what.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let what = if what.exists() { what } else { parent };
    let owner = std::fs::metadata(what).map_or("unknown".to_owned(), |metadata| metadata.uid().to_string());
    ListenError::PermissionDenied {
        path: path.display().to_string(),
        what: what.display().to_string(),
        owner_uid: owner,
        own_uid: os::own_uid(),
    }
}

/// The locked lock file, with this process's pid in it.
fn lock(path: &Path, lock_path: &Path) -> Result<File, ListenError> {
    loop {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW);
        let mut file = match options.open(lock_path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(denied(path, lock_path));
            }
            Err(error) => return Err(system(path, "opening the lock file")(error)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim().parse::<u32>().ok();
                let holder =
                    pid.map_or("another server".to_owned(), |pid| format!("another server (pid {pid})"));
                return Err(ListenError::InUse { path: path.display().to_string(), holder });
            }
            Err(error) => return Err(system(path, "locking the lock file")(error.into())),
        }
        // A server that ended in between removed the file that was opened here: then its lock means nothing.
        let locked = file.metadata().map_err(system(path, "reading the lock file"))?;
        if std::fs::metadata(lock_path)
            .is_ok_and(|found| found.ino() == locked.ino() && found.dev() == locked.dev())
        {
            let write = |file: &mut File| {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())
            };
            write(&mut file).map_err(system(path, "writing the lock file"))?;
            return Ok(file);
        }
    }
}

/// Removes the socket of a dead server.
fn clear_stale(path: &Path) -> Result<(), ListenError> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(path, "looking at what lies there")(error)),
    };
    let shown = || path.display().to_string();
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: shown() });
    }
    // The lock keeps out servers of this fabric; a program without it may listen all the same.
    let probe =
        |error: io::Error| ListenError::System { path: shown(), step: "probing the socket", source: error };
    let socket = socket::new().map_err(probe)?;
    let outcome = rustix::net::connect(&socket, &socket::address(path).map_err(probe)?);
    if matches!(outcome, Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE)) {
        return Err(ListenError::InUse { path: shown(), holder: "another program".to_owned() });
    }
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied(path, path)),
        Err(error) => Err(system(path, "removing a stale socket")(error)),
    }
}

fn bind(path: &Path, shared: bool) -> Result<OwnedFd, ListenError> {
    let failed = |step: &'static str| move |error: io::Error| system(path, step)(error);
    let listener = socket::new().map_err(failed("making a socket"))?;
    // The mode given to the socket before it is bound is that of its file, from the file's first moment.
    let mode = Mode::from_raw_mode(if shared { 0o666 } else { 0o600 });
    rustix::fs::fchmod(&listener, mode).map_err(|error| failed("setting the mode")(error.into()))?;
    let address = socket::address(path).map_err(failed("making the address"))?;
    match rustix::net::bind(&listener, &address) {
        Ok(()) => {}
        Err(Errno::ACCESS | Errno::PERM) => return Err(denied(path, path)),
        Err(error) => return Err(failed("binding the socket")(error.into())),
    }
    Ok(listener)
}
