//! What several parts ask of the operating system: wake-ups and bounded waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use farsight_fabric::FabricError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

/// Events taken at a time.
const EVENTS: usize = 64;
/// The longest single sleep: longer ones would not fit the system calls' arguments.
pub const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The error of a step that the operating system refused.
#[must_use]
pub fn system_error(what: impl Into<String>, error: &io::Error, remedy: &str) -> FabricError {
    FabricError::System { what: what.into(), source_text: error.to_string(), remedy: remedy.to_owned() }
}

/// Puts the step that a user knows, with its peer, before the one that failed in it.
pub fn during(step: String) -> impl Fn(FabricError) -> FabricError {
    move |error| match error {
        FabricError::System { what, source_text, remedy } => {
            FabricError::System { what: format!("{step}: {what}"), source_text, remedy }
        }
        other => other,
    }
}

/// Ends both directions, and wakes the threads that wait on either end. It may have ended already.
pub fn hang_up(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// A descriptor of this process alone that becomes readable when [`signal`]led.
///
/// # Errors
/// If no descriptors are left.
pub fn wake_descriptor() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes a wake descriptor readable. A full counter is readable already.
pub fn signal(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// Makes a wake descriptor unreadable again.
pub fn drain(wake: &OwnedFd) {
    let _ = rustix::io::read(wake, &mut [0_u8; 8]);
}

/// Lets `epoll` tell of what `descriptor` receives, and of its end, under this token.
///
/// # Errors
/// The system's.
pub fn watch(epoll: &OwnedFd, descriptor: impl AsFd, token: u64) -> io::Result<()> {
    let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    Ok(epoll::add(epoll, descriptor, epoll::EventData::new_u64(token), events)?)
}

/// The kernel's form of a duration, which is at most [`SLEEP_MAX`].
#[must_use]
pub fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(SLEEP_MAX);
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// The tokens of what `epoll` tells of within `timeout`. A signal ends the wait early, with none.
///
/// # Errors
/// [`FabricError::System`]: a bug.
pub fn wait_events(epoll: &OwnedFd, timeout: Duration) -> Result<Vec<u64>, FabricError> {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&timespec(timeout))) {
        Ok(_) | Err(Errno::INTR) => Ok(events.into_iter().map(|event| event.data.u64()).collect()),
        Err(error) => Err(system_error("waiting for clients", &error.into(), "A bug")),
    }
}

/// Waits until a descriptor shows one of its events or `timeout` passes. Returns what each shows; a signal
/// ends the wait early, with nothing shown.
///
/// # Errors
/// The system's.
pub fn poll<const N: usize>(
    descriptors: [(BorrowedFd<'_>, PollFlags); N],
    timeout: Duration,
) -> io::Result<[PollFlags; N]> {
    let mut polled = descriptors.map(|(descriptor, events)| PollFd::from_borrowed_fd(descriptor, events));
    match rustix::event::poll(&mut polled, Some(&timespec(timeout))) {
        Ok(_) => Ok(polled.map(|descriptor| descriptor.revents())),
        Err(Errno::INTR) => Ok([PollFlags::empty(); N]),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system's.
///
/// # Panics
/// For more than 256 bytes, which may come in parts.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    assert_eq!(filled, N, "up to 256 bytes come whole");
    Ok(bytes)
}
