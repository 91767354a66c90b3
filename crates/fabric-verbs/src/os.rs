//! What several parts ask of the operating system: wake-up descriptors, bounded waits, random numbers, the
//! settings of control sockets.

use std::io;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use farsight_fabric::FabricError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::rand::GetRandomFlags;

/// After this long without a sign of life of the peer's machine a control connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The error of a step that the operating system refused.
pub(crate) fn system_error(what: impl Into<String>, error: &io::Error, remedy: &str) -> FabricError {
    FabricError::System { what: what.into(), source_text: error.to_string(), remedy: remedy.to_owned() }
}

/// A descriptor that becomes readable when [`signal`]led.
pub(crate) fn wake_descriptor() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes a wake descriptor readable. A full counter is readable already.
pub(crate) fn signal(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// Makes a wake descriptor unreadable again.
pub(crate) fn drain(wake: &OwnedFd) {
    let _ = rustix::io::read(wake, &mut [0_u8; 8]);
}

/// The kernel's form of a duration; one beyond its range is the longest it has.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Waits until one of two descriptors shows its events or `timeout` passes; true where it did. A signal ends
/// the wait early, with nothing shown.
pub(crate) fn await_either(
    descriptors: [(BorrowedFd<'_>, PollFlags); 2],
    timeout: Duration,
) -> io::Result<[bool; 2]> {
    let mut polled = descriptors.map(|(descriptor, events)| PollFd::from_borrowed_fd(descriptor, events));
    match rustix::event::poll(&mut polled, Some(&timespec(timeout))) {
        Ok(_) => Ok(polled.map(|descriptor| !descriptor.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; 2]),
        Err(error) => Err(error.into()),
    }
}

/// A number that nobody can guess.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    assert_eq!(filled, bytes.len(), "up to 256 bytes come whole");
    Ok(u64::from_le_bytes(bytes))
}

/// This process.
pub(crate) fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Small frames go at once, and a peer whose machine is gone is noticed.
pub(crate) fn settle_control_socket(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    Ok(sockopt::set_tcp_user_timeout(socket, u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX))?)
}
