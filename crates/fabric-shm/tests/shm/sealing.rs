//! What a client's process can do to the files that it is given.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::null_mut;

use farsight_base::sync::Ordering;
use farsight_fabric::{Host, Region, RegionRights};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::harness::{Directory, FORMAT, Running, play};
use farsight_fabric_shm::raw_client::{RING_FILE_BYTES, RawClient};

const REGION_BYTES: usize = 2 << 20;

#[test]
fn another_process_cannot_write_or_resize_what_it_is_given() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let read_only = server.host.create_region(4096, RegionRights::ReadOnly).expect("a region");
    let writable = server.host.create_region(4096, RegionRights::ReadWrite).expect("a region");
    for region in [&read_only, &writable] {
        assert_eq!(region.words().len() * 8, REGION_BYTES);
        region.words()[0].store(1234, Ordering::Release);
    }
    let outcome = play("sealing client", &directory.socket()).wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "something was not refused:\n{told}");
    assert_eq!(read_only.words()[0].load(Ordering::Acquire), 1234);
    assert_eq!(writable.words()[0].load(Ordering::Acquire), 5678, "the writable one was written");
}

/// What the other process does: region 1 is read-only, region 2 writable.
pub(crate) fn try_everything(socket: &Path) {
    let client = RawClient::greeted(socket, FORMAT);
    try_read_only(&client.attach(1));
    let writable = client.attach(2);
    assert_not_resizable(&writable, REGION_BYTES as u64);
    rustix::io::pwrite(&writable, &5678_u64.to_le_bytes(), 0).expect("a writable region is writable");
    assert_not_resizable(&client.open_queue().file, RING_FILE_BYTES as u64);
}

fn try_read_only(file: &OwnedFd) {
    assert_not_resizable(file, REGION_BYTES as u64);
    assert!(!maps_writable(file), "a read-only region could be mapped for writing");
    assert!(rustix::io::pwrite(file, b"x", 0).is_err(), "pwrite");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(file, hole, 0, 4096).is_err(), "a hole could be punched");

    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let readable =
        unsafe { rustix::mm::mmap(null_mut(), REGION_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0) };
    let readable = readable.expect("it can be mapped for reading");
    // SAFETY: the range was mapped above and nothing else refers to it.
    let upgraded =
        unsafe { rustix::mm::mprotect(readable, REGION_BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert!(upgraded.is_err(), "mprotect made it writable");
    // SAFETY: the mapping is page-aligned, readable, and two megabytes long.
    let first = unsafe { readable.cast::<u64>().read_volatile() };
    assert_eq!(first, 1234, "the server's word is seen");

    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Ok(reopened) = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        assert!(!maps_writable(&reopened), "a reopened descriptor could be mapped for writing");
        assert!(rustix::io::pwrite(&reopened, b"x", 0).is_err(), "pwrite to a reopened descriptor");
    }
}

fn maps_writable(file: &impl AsFd) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    unsafe { rustix::mm::mmap(null_mut(), REGION_BYTES, access, MapFlags::SHARED, file, 0) }.is_ok()
}

fn assert_not_resizable(file: &OwnedFd, length_bytes: u64) {
    for length_bytes in [0, 4096, length_bytes * 2] {
        assert!(rustix::fs::ftruncate(file, length_bytes).is_err(), "ftruncate to {length_bytes}");
    }
    assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err(), "a client could add seals");
    let seals = rustix::fs::fcntl_get_seals(file).expect("its seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL), "{seals:?}");
}
