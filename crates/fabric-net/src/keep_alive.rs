//! Sockets that notice a dead peer.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;

/// When a silent peer counts as dead.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// The kernel probes it after so long without a sign of life.
    pub idle: Duration,
    /// Between two such questions.
    pub pause: Duration,
    /// Unanswered questions after which it counts as dead.
    pub probes: u32,
    /// How long bytes may lie unacknowledged, or the peer take none, before it counts as dead.
    pub unacknowledged_max: Duration,
}

/// Prepares a connected socket: nothing blocks, small frames go at once, and a dead peer is noticed.
pub(crate) fn prepare(socket: TcpStream, alive: &KeepAlive) -> io::Result<OwnedFd> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, alive.idle)?;
    sockopt::set_tcp_keepintvl(&socket, alive.pause)?;
    sockopt::set_tcp_keepcnt(&socket, alive.probes)?;
    sockopt::set_tcp_user_timeout(&socket, alive.unacknowledged_max.as_millis() as u32)?;
    Ok(socket.into())
}
