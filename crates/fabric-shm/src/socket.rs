//! Packets with descriptors over a Unix `SOCK_SEQPACKET` socket.
//!
//! Invariant: a side that expects no descriptors offers no room for them, so the kernel closes whatever a
//! hostile peer sends. A side that expects some takes them into [`OwnedFd`]s at once. Nothing here blocks but
//! [`receive`], up to its deadline.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::control::MESSAGE_BYTES_MAX;
use crate::os;

/// Descriptors of the message that carries most: a queue's memory file and its wake socket.
const DESCRIPTORS_MAX: usize = 2;

/// One received packet.
#[derive(Debug)]
pub(crate) enum Packet {
    /// Nothing is there now.
    None,
    /// The peer closed.
    End,
    /// So many bytes are in the buffer.
    Bytes(usize),
}

/// One received packet whose sender may have added descriptors.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// True if more descriptors came than this process could take: it has its limit open. The packet itself
    /// is whole, and what was sent after it is unharmed.
    pub(crate) has_lost_descriptors: bool,
}

/// A new unconnected socket.
pub(crate) fn new() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The longest path of a socket: `sun_path` without the zero that ends it.
pub(crate) const PATH_BYTES_MAX: usize = 107;

/// The address of a path that is short enough.
pub(crate) fn address(path: &std::path::Path) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path)?)
}

/// Sends one packet without blocking. A peer that does not read its answers gets an error.
pub(crate) fn send(socket: &impl AsFd, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(packet.len() <= MESSAGE_BYTES_MAX && descriptors.len() <= DESCRIPTORS_MAX, "a message too long");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room for them");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags)?;
    if sent == packet.len() { Ok(()) } else { Err(io::Error::other("a packet went out in part")) }
}

/// Receives one packet without blocking and without descriptors. A packet longer than any message fills the
/// buffer: its length says so.
pub(crate) fn receive_now(
    socket: &impl AsFd,
    buffer: &mut [u8; MESSAGE_BYTES_MAX + 1],
) -> io::Result<Packet> {
    match past_reset(|| rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT)) {
        Ok((0, _)) => Ok(Packet::End),
        Ok((length_bytes, _)) => Ok(Packet::Bytes(length_bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Packet::None),
        Err(error) => Err(error.into()),
    }
}

/// As [`receive_now`], with room for one descriptor.
pub(crate) fn receive_one_now(
    socket: &impl AsFd,
    buffer: &mut [u8; MESSAGE_BYTES_MAX + 1],
) -> io::Result<(Packet, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut slices = [IoSliceMut::new(buffer)];
    let packet = match past_reset(|| rustix::net::recvmsg(socket, &mut slices, &mut control, flags)) {
        Ok(received) if received.bytes == 0 => Packet::End,
        Ok(received) => Packet::Bytes(received.bytes),
        Err(Errno::AGAIN | Errno::INTR) => Packet::None,
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let first = descriptors.next().and_then(|mut rights| rights.next());
    Ok((packet, first))
}

/// Receives, past the news that the peer closed without reading all that it was sent. The kernel tells that
/// once, before the packets that the peer sent earlier, its reason among them.
fn past_reset<T>(mut receive: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match receive() {
        Err(Errno::CONNRESET) => receive(),
        outcome => outcome,
    }
}

/// Receives one packet and the descriptors that came with it, waiting until `deadline`. `None`: the peer
/// closed.
pub(crate) fn receive(socket: &impl AsFd, deadline: Instant) -> io::Result<Option<Parcel>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let [shown] = os::poll([(socket.as_fd(), PollFlags::IN)], left)?;
        if !shown.is_empty() {
            match receive_with_descriptors(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        } else if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn receive_with_descriptors(socket: &impl AsFd) -> io::Result<Option<Parcel>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = past_reset(|| rustix::net::recvmsg(socket, &mut slices, &mut control, flags))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // Descriptors are cut off where the buffer ends, or, before that, where this process's limit is reached.
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    let has_lost_descriptors = is_cut && descriptors.len() < DESCRIPTORS_MAX;
    if received.flags.contains(ReturnFlags::TRUNC) || (is_cut && !has_lost_descriptors) {
        return Err(io::Error::other("a packet longer than any message, or with too many descriptors"));
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some(Parcel { bytes, descriptors, has_lost_descriptors }))
}

/// Two connected stream sockets: over one of them each side of a queue wakes the other.
pub(crate) fn wake_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Two connected packet sockets, for what a client is told unasked.
pub(crate) fn news_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Wakes the other side. Never blocks, whatever the peer did to the socket's flags or how much it left
/// unread; a full socket wakes by itself.
pub(crate) fn wake(socket: &OwnedFd) {
    let _ = rustix::net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes wake-ups from the socket. False if the other side has closed.
pub(crate) fn take_wakes(socket: &OwnedFd) -> bool {
    let mut bytes = [0_u8; 256];
    match rustix::net::recv(socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
        Ok((length_bytes, _)) => length_bytes > 0,
        Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
