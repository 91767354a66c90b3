//! A client made by hand, from the documented bytes alone, so that it can do what the real one never does.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use farsight_base::sync::AtomicU64;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::harness::FORMAT;

/// Bytes of a queue's memory file: a page of counters and two rings of 256 KiB.
pub(crate) const RING_FILE_BYTES: usize = 4096 + 2 * (256 << 10);

/// A socket connected to a server, and nothing more.
pub(crate) struct RawClient {
    pub(crate) socket: OwnedFd,
}

/// A received packet and the descriptors with it.
pub(crate) struct Answer {
    pub(crate) packet: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Answer {
    pub(crate) fn kind(&self) -> u32 {
        self.packet.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.packet.get(4..).unwrap_or_default()).into_owned()
    }
}

pub(crate) fn hello(format_version: u32) -> Vec<u8> {
    let mut packet = 1_u32.to_le_bytes().to_vec();
    packet.extend(b"FARSHM\0\0");
    packet.extend(1_u32.to_le_bytes());
    packet.extend(format_version.to_le_bytes());
    packet.extend(std::process::id().to_le_bytes());
    packet
}

impl RawClient {
    pub(crate) fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a server");
        Self { socket }
    }

    /// Connects and shakes hands.
    pub(crate) fn greeted(path: &Path) -> Self {
        let client = Self::connect(path);
        client.send(&hello(FORMAT));
        assert_eq!(client.receive().expect("an answer").kind(), 129, "a welcome");
        client
    }

    /// Sends one packet; a server that hung up meanwhile is no concern of a hostile client.
    pub(crate) fn send(&self, packet: &[u8]) {
        let _ = rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL);
    }

    /// Sends one packet with descriptors.
    pub(crate) fn send_with(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)
            .expect("a packet with descriptors");
    }

    /// The next packet; `None` once the server has closed.
    pub(crate) fn receive(&self) -> Option<Answer> {
        self.receive_within(Duration::from_secs(10)).expect("the server answers or closes in time")
    }

    /// As [`RawClient::receive`]; `Err` if nothing came in time.
    pub(crate) fn receive_within(&self, timeout: Duration) -> Result<Option<Answer>, ()> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        if rustix::event::poll(&mut polled, Some(&timeout)).expect("polling") == 0 {
            return Err(());
        }
        let mut packet = vec![0; 2048];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut packet)];
        let received = rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
        let bytes = received.map_or(0, |received| received.bytes);
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        packet.truncate(bytes);
        Ok((bytes > 0).then_some(Answer { packet, descriptors }))
    }

    /// The file of region `region`.
    pub(crate) fn attach(&self, region: u32) -> OwnedFd {
        let mut packet = 3_u32.to_le_bytes().to_vec();
        packet.extend(region.to_le_bytes());
        self.send(&packet);
        let mut answer = self.receive().expect("an answer");
        assert_eq!(answer.kind(), 132, "an attached region");
        answer.descriptors.pop().expect("its file")
    }

    /// The rings of a new queue, and the socket that wakes the server.
    pub(crate) fn open_queue(&self) -> RawQueue {
        self.send(&2_u32.to_le_bytes());
        let mut answer = self.receive().expect("an answer");
        assert_eq!(answer.kind(), 131, "an open queue");
        let wakes = answer.descriptors.pop().expect("its socket");
        let file = answer.descriptors.pop().expect("its file");
        RawQueue { words: map(&file, RING_FILE_BYTES), file, wakes }
    }
}

/// A queue's memory and descriptors.
pub(crate) struct RawQueue {
    pub(crate) words: &'static [AtomicU64],
    pub(crate) file: OwnedFd,
    pub(crate) wakes: OwnedFd,
}

impl RawQueue {
    pub(crate) fn wake(&self) {
        let _ = rustix::net::send(&self.wakes, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Maps a writable file, for as long as the process runs.
fn map(file: &impl AsFd, length_bytes: usize) -> &'static [AtomicU64] {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(null_mut(), length_bytes, access, MapFlags::SHARED, file, 0)
    };
    let start = start.expect("the file can be mapped").cast::<AtomicU64>();
    // SAFETY: the mapping has that many words, is page-aligned, never unmapped, and reached by atomics alone;
    // the server sealed the file's size.
    unsafe { std::slice::from_raw_parts(start, length_bytes / 8) }
}
