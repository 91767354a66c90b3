//! What several parts ask of the operating system: sockets that notice a dead peer, wake-ups, bounded waits.

use std::io;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use farsight_fabric::FabricError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt;

/// A peer is asked for a sign of life after so long without any.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(4);
/// Between two such questions.
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(3);
/// Unanswered questions after which it counts as dead.
const KEEP_ALIVE_PROBES: u32 = 2;
/// How long bytes may lie unacknowledged, or the peer take none, before it counts as dead. Longer than one
/// operation waits (5 s), so that a short cut costs that operation alone; no longer, because the kernel
/// doubles the time between its attempts: a connection that outlives a long cut comes to life again much
/// later than a new one could.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A silent peer counts as dead no later than one that does not acknowledge.
const _: () = assert!(
    KEEP_ALIVE_IDLE.as_secs() + KEEP_ALIVE_PAUSE.as_secs() * KEEP_ALIVE_PROBES as u64
        == USER_TIMEOUT.as_secs()
);

/// The longest single sleep: longer ones would not fit the system calls' arguments.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// How a side waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// Looks for some tens of microseconds, then sleeps: for machines that have other things to do.
    #[default]
    Briefly,
    /// Sleeps at once: the least processor time, and the slowest answer.
    Asleep,
    /// Never sleeps before its time is over: the quickest answer, for a whole core.
    Spinning,
}

impl Waiting {
    /// How much of a wait of `timeout` passes awake.
    pub(crate) fn awake(self, timeout: Duration) -> Duration {
        match self {
            Self::Briefly => spin_time().min(timeout),
            Self::Asleep => Duration::ZERO,
            Self::Spinning => timeout,
        }
    }
}

/// About as long as a sleep and a wake take, twice. On a machine of one core there is nobody to look out for.
/// The cores that this thread may run on do not count: each side may be bound to one of its own.
fn spin_time() -> Duration {
    static SPIN: OnceLock<Duration> = OnceLock::new();
    *SPIN.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let is_single = online.is_ok_and(|cores| cores.trim() == "0");
        if is_single { Duration::ZERO } else { Duration::from_micros(50) }
    })
}

/// The error of a step that the operating system refused.
pub(crate) fn system_error(what: String, error: &io::Error, remedy: &str) -> FabricError {
    FabricError::System { what, source_text: error.to_string(), remedy: remedy.to_owned() }
}

/// Prepares a connected socket: nothing blocks, small frames go at once, and a dead peer is noticed.
pub(crate) fn prepare(socket: TcpStream) -> io::Result<OwnedFd> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(&socket, USER_TIMEOUT.as_millis() as u32)?;
    Ok(socket.into())
}

/// Ends both directions; whoever waits on either end is woken. It may have ended already.
pub(crate) fn hang_up(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// A descriptor of this process alone that becomes readable when [`signal`]led.
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

/// The kernel's form of a duration, which is at most [`SLEEP_MAX`].
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(SLEEP_MAX);
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Waits until a descriptor shows one of its events or `timeout` passes. Returns what each shows; a signal
/// ends the wait early, with nothing shown.
pub(crate) fn poll<const N: usize>(
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
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    assert_eq!(filled, N, "up to 256 bytes come whole");
    Ok(bytes)
}
