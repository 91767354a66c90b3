//! The kernel's userfaultfd, as far as a fence needs it: stores of a process that another one may hold up.
//!
//! Invariant: a range that is protected takes no store of the process that registered it, from the moment
//! that [`Userfaultfd::protect`] returns. The kernel flushes the processor's translations before that. A
//! thread that stores there waits in the kernel. It goes on behind [`Userfaultfd::wake`], by what is mapped
//! then.
//!
//! The descriptor acts on the memory of the process that made it, in any hands. Source:
//! ioctl_userfaultfd(2).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::mm::UserfaultfdFlags;

/// What rustix does not name.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);
/// The interface's version.
const API: u64 = 0xaa;
/// Protection against stores, in memory files too.
const FEATURES: u64 = 1 << 0 | 1 << 12;
/// Registers a range for protection against stores; protects one.
const MODE_REGISTER: u64 = 1 << 1;
const MODE_PROTECT: u64 = 1 << 0;
/// The requests, as the kernel numbers them.
const REQUEST_API: libc::c_ulong = 0xc018_aa3f;
const REQUEST_REGISTER: libc::c_ulong = 0xc020_aa00;
const REQUEST_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const REQUEST_WAKE: libc::c_ulong = 0x8010_aa02;
const REQUEST_PROTECT: libc::c_ulong = 0xc018_aa06;
/// What the kernel calls such a descriptor. No file has this name: those of files begin with a slash.
const NAME: &str = "anon_inode:[userfaultfd]";

#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    requests: u64,
}

#[repr(C)]
struct Addresses {
    start: u64,
    length_bytes: u64,
}

#[repr(C)]
struct Register {
    addresses: Addresses,
    mode: u64,
    requests: u64,
}

#[repr(C)]
struct Protect {
    addresses: Addresses,
    mode: u64,
}

impl From<Range<u64>> for Addresses {
    fn from(range: Range<u64>) -> Self {
        Self { start: range.start, length_bytes: range.end - range.start }
    }
}

/// A descriptor by which stores of one process are held up.
#[derive(Debug)]
pub(crate) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// That of this process. The kernel gives it without privileges, as it acts on this process's own code
    /// alone and not on the kernel's.
    ///
    /// # Errors
    /// Where kernel or sandbox refuse it.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | USER_MODE_ONLY;
        // SAFETY: nothing is registered yet. What will be is memory that is reached by atomics alone, and a
        // store that waits for its page is a store that takes long.
        let new = Self(unsafe { rustix::mm::userfaultfd(flags) }?);
        new.request(REQUEST_API, &mut Api { version: API, features: FEATURES, requests: 0 })?;
        Ok(new)
    }

    /// A descriptor that another process sent, if the kernel says that it is one: a request to any other file
    /// could do anything.
    pub(crate) fn of_peer(descriptor: OwnedFd) -> io::Result<Self> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        if name.as_os_str() == NAME {
            return Ok(Self(descriptor));
        }
        Err(io::Error::other(format!("{} came where a userfaultfd was due", name.display())))
    }

    pub(crate) fn register(&self, range: Range<u64>) -> io::Result<()> {
        let mode = MODE_REGISTER;
        self.request(REQUEST_REGISTER, &mut Register { addresses: range.into(), mode, requests: 0 })
    }

    /// Takes the registration back, and the protection with it.
    pub(crate) fn unregister(&self, range: Range<u64>) -> io::Result<()> {
        self.request(REQUEST_UNREGISTER, &mut Addresses::from(range))
    }

    /// Protects a range. An error leaves any part of it protected.
    ///
    /// # Errors
    /// If a page of it is not registered, or the process has ended.
    pub(crate) fn protect(&self, range: Range<u64>) -> io::Result<()> {
        self.request(REQUEST_PROTECT, &mut Protect { addresses: range.into(), mode: MODE_PROTECT })
    }

    /// Lets threads go on that wait there.
    pub(crate) fn wake(&self, range: Range<u64>) -> io::Result<()> {
        self.request(REQUEST_WAKE, &mut Addresses::from(range))
    }

    fn request<T>(&self, number: libc::c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: the descriptor is a userfaultfd, by either constructor. `argument` is what the request of
        // this number reads and writes, and lives. The ranges are checked by the kernel. They concern the
        // memory of the process that made the descriptor, and change when its stores take effect, not what
        // its loads find.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), number, std::ptr::from_mut(argument)) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl From<Userfaultfd> for OwnedFd {
    fn from(from: Userfaultfd) -> Self {
        from.0
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_descriptors_are_refused_by_what_they_are() {
        let file = std::fs::File::open("/proc/self/status").expect("Linux has it");
        let refused = Userfaultfd::of_peer(file.into()).expect_err("it is a file");
        assert!(refused.to_string().contains("status"), "{refused}");
        let event = crate::os::wake_descriptor().expect("a descriptor");
        let refused = Userfaultfd::of_peer(event).expect_err("it is another of the kernel's");
        assert!(refused.to_string().contains("eventfd"), "{refused}");
        let real = Userfaultfd::new().expect("this kernel has it");
        Userfaultfd::of_peer(real.0).expect("it is one");
    }
}
