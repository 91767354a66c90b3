//! A client made by hand, from the documented bytes alone, so that it can do what the real one never does.
//!
//! For tests of any crate (feature `hostile`): it panics where a server that keeps its promises would not let
//! it down.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use farsight_base::sync::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::mapping::PAGE_BYTES;
use crate::os;
use crate::userfaultfd::Userfaultfd;

/// Bytes of a queue's memory file: a page of counters and two rings of 256 KiB.
pub const RING_FILE_BYTES: usize = 4096 + 2 * (256 << 10);

/// A socket connected to a server, and nothing more.
#[derive(Debug)]
pub struct RawClient {
    /// The control socket.
    pub socket: OwnedFd,
}

/// A received packet and the descriptors with it.
#[derive(Debug)]
pub struct Answer {
    /// Its bytes.
    pub packet: Vec<u8>,
    /// What came along.
    pub descriptors: Vec<OwnedFd>,
}

impl Answer {
    /// Its message's kind; 0 if it is too short to have one.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.packet.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// What stands after the kind, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.packet.get(4..).unwrap_or_default()).into_owned()
    }
}

/// The message that opens every conversation.
#[must_use]
pub fn hello(format_version: u32) -> Vec<u8> {
    let mut packet = 1_u32.to_le_bytes().to_vec();
    packet.extend(b"FARSHM\0\0");
    packet.extend(5_u32.to_le_bytes());
    packet.extend(format_version.to_le_bytes());
    packet.extend(std::process::id().to_le_bytes());
    packet.extend(0_u32.to_le_bytes());
    packet
}

/// The question for the file of region `region` behind its first `from_bytes`.
#[must_use]
pub fn attach(region: u32, from_bytes: u64) -> Vec<u8> {
    let mut packet = 3_u32.to_le_bytes().to_vec();
    packet.extend(region.to_le_bytes());
    packet.extend(from_bytes.to_le_bytes());
    packet
}

/// What says that region `region` is guarded, and lies at `address`.
#[must_use]
pub fn guarded(region: u32, address: u64) -> Vec<u8> {
    let mut packet = 4_u32.to_le_bytes().to_vec();
    packet.extend(region.to_le_bytes());
    packet.extend(address.to_le_bytes());
    packet
}

/// A userfaultfd of this process, which protects nothing.
///
/// # Panics
/// If the kernel gives none.
#[must_use]
pub fn userfaultfd() -> OwnedFd {
    Userfaultfd::new().expect("a userfaultfd").into()
}

impl RawClient {
    /// Connects, and says nothing.
    ///
    /// # Panics
    /// If nobody listens at `path`.
    #[must_use]
    pub fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a server");
        Self { socket }
    }

    /// Connects and shakes hands.
    ///
    /// # Panics
    /// If the server does not welcome it.
    #[must_use]
    pub fn greeted(path: &Path, format_version: u32) -> Self {
        let client = Self::connect(path);
        client.send(&hello(format_version));
        assert_eq!(client.receive().expect("an answer").kind(), 129, "a welcome");
        client
    }

    /// Sends one packet; a server that hung up meanwhile is no concern of a hostile client.
    pub fn send(&self, packet: &[u8]) {
        let _ = rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL);
    }

    /// Sends one packet with descriptors.
    ///
    /// # Panics
    /// If the socket does not take them.
    pub fn send_with(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)
            .expect("a packet with descriptors");
    }

    /// The next packet; `None` once the server has closed.
    ///
    /// # Panics
    /// If nothing comes within ten seconds.
    #[must_use]
    pub fn receive(&self) -> Option<Answer> {
        self.receive_within(Duration::from_secs(10)).expect("the server answers or closes in time")
    }

    /// As [`RawClient::receive`].
    ///
    /// # Errors
    /// If nothing came in time.
    ///
    /// # Panics
    /// If the socket cannot be polled.
    pub fn receive_within(&self, timeout: Duration) -> Result<Option<Answer>, NothingCame> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        if rustix::event::poll(&mut polled, Some(&timeout)).expect("polling") == 0 {
            return Err(NothingCame);
        }
        let mut packet = vec![0; 2048];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut packet)];
        let mut receive =
            || rustix::net::recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
        // That the server closed without reading all is told once, before the packets that it sent earlier.
        let received = match receive() {
            Err(rustix::io::Errno::CONNRESET) => receive(),
            outcome => outcome,
        };
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

    /// True if a packet, or the end, is there to be received.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        os::is_readable(&self.socket)
    }

    /// The first file of region `region`.
    ///
    /// # Panics
    /// If the server does not give it.
    #[must_use]
    pub fn attach(&self, region: u32) -> OwnedFd {
        self.attach_behind(region, 0).expect("its file")
    }

    /// The file of region `region` behind its first `from_bytes`; `None` if there is none.
    ///
    /// # Panics
    /// If the server does not know the region.
    #[must_use]
    pub fn attach_behind(&self, region: u32, from_bytes: u64) -> Option<OwnedFd> {
        self.send(&attach(region, from_bytes));
        let mut answer = self.receive().expect("an answer");
        assert_eq!(answer.kind(), 132, "an attached region");
        answer.descriptors.pop()
    }

    /// All files of region `region`, after a load from each of their pages.
    ///
    /// # Panics
    /// If the server does not know the region.
    #[must_use]
    pub fn read_everything(&self, region: u32) -> Vec<OwnedFd> {
        let (mut files, mut from_bytes) = (Vec::new(), 0);
        while let Some(file) = self.attach_behind(region, from_bytes) {
            let length_bytes = rustix::fs::fstat(&file).expect("an open file").st_size.unsigned_abs();
            let words = map(&file, length_bytes as usize, ProtFlags::READ);
            for page in words.chunks(PAGE_BYTES / 8) {
                // Relaxed: the value is of no interest, but a load without any use may be left out.
                std::hint::black_box(page[0].load(Ordering::Relaxed));
            }
            from_bytes += length_bytes;
            files.push(file);
        }
        files
    }

    /// The rings of a new queue, and the socket that wakes the server.
    ///
    /// # Panics
    /// If the server does not give them.
    #[must_use]
    pub fn open_queue(&self) -> RawQueue {
        self.send(&2_u32.to_le_bytes());
        let mut answer = self.receive().expect("an answer");
        assert_eq!(answer.kind(), 131, "an open queue");
        let wakes = answer.descriptors.pop().expect("its socket");
        let file = answer.descriptors.pop().expect("its file");
        RawQueue { words: map(&file, RING_FILE_BYTES, ProtFlags::READ | ProtFlags::WRITE), file, wakes }
    }
}

/// No packet came in the time allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NothingCame;

/// A queue's memory and descriptors.
#[derive(Debug)]
pub struct RawQueue {
    /// The memory file, mapped for as long as the process runs.
    pub words: &'static [AtomicU64],
    /// The memory file.
    pub file: OwnedFd,
    /// The client's end of the socket that wakes.
    pub wakes: OwnedFd,
}

impl RawQueue {
    /// Wakes the server, whether it sleeps or not.
    pub fn wake(&self) {
        let _ = rustix::net::send(&self.wakes, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Maps a file, for as long as the process runs. Nobody stores into what is mapped to be read.
fn map(file: &impl AsFd, length_bytes: usize, access: ProtFlags) -> &'static [AtomicU64] {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { rustix::mm::mmap(null_mut(), length_bytes, access, MapFlags::SHARED, file, 0) };
    let start = start.expect("the file can be mapped").cast::<AtomicU64>();
    // SAFETY: the mapping has that many words, is page-aligned, never unmapped, and reached by atomics alone;
    // the server sealed the file's size.
    unsafe { std::slice::from_raw_parts(start, length_bytes / 8) }
}
