//! What several parts ask of the operating system: who the peer is, and what it has read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use farsight_fabric_host::descriptor_limit;
pub(crate) use farsight_fabric_host::os::{
    SLEEP_MAX, drain, hang_up, poll, signal, system_error, timespec, wake_descriptor, watch,
};
use rustix::event::PollFlags;
use rustix::io::Errno;

/// What to do where this process can open no more descriptors.
pub(crate) fn descriptors_remedy() -> String {
    let limit = descriptor_limit();
    let limit = limit.map_or("any number of".to_owned(), |limit| limit.to_string());
    format!("This process may have {limit} descriptors open: raise its limit (ulimit -n), or close sessions")
}

/// True if an operation failed because this process, or the system, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// True once the process of `pidfd` has ended: none of its threads will ever run again.
pub(crate) fn has_exited(pidfd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let [shown] = poll([(pidfd, PollFlags::IN)], timeout)?;
    Ok(!shown.is_empty())
}

/// A process and its user, as the kernel recorded them when the socket was connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    /// Zero if the process cannot be seen from this process's pid namespace.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

/// The peer of a connected Unix socket.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` and `length` are live and as long as `length` says; the call writes no more than that.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: found.pid, uid: found.uid })
}

/// The socket option that names the peer by a descriptor of its process, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of the process that connected a socket, `pid` by its credentials. On kernels that cannot give
/// the peer's own descriptor it is that of the process that has this pid now. The caller must see a sign of
/// life of the peer afterwards.
pub(crate) fn open_peer(socket: BorrowedFd<'_>, pid: i32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    match peer_descriptor(socket) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
        }
        outcome => outcome,
    }
}

fn peer_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut found: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `found` and `length` are live and as long as `length` says; the call writes no more than that.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `found` is a new descriptor (close-on-exec) that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// Bytes sent on this socket that the peer has not taken, with what the kernel adds to each packet.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, and `bytes` is one that lives.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// This process, as sockets record it.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The user that this process acts as.
pub(crate) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a receive from a socket would come to anything.
pub(crate) fn is_readable(socket: &impl AsFd) -> bool {
    let shown = poll([(socket.as_fd(), PollFlags::IN)], Duration::ZERO);
    shown.map_or(true, |[shown]| !shown.is_empty())
}
