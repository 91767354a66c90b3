//! One client as the server sees it: from its connection over the handshake to its questions.
//!
//! Invariant: a client is believed nothing but who the kernel says it is. Whatever it sends that is not the
//! message due ends it, with a reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};
use farsight_fabric::Gate;

use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC, MESSAGE_BYTES_MAX};
use crate::news::News;
use crate::os::{self, Credentials};
use crate::socket::{self, Packet};

/// How long a client may take to say hello.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// How a server introduces itself, and whom it lets in.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) epoch: Epoch,
    pub(crate) format_version: u32,
    pub(crate) allowed_uids: Vec<u32>,
}

/// Why a client has to go.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It closed, died, or stopped reading.
    Gone,
    /// It was not let in.
    Refused(String),
    /// It broke the protocol, or its rings, or was fenced.
    Dismissed(String),
    /// The server stops.
    Stopped,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: ClientId,
    pub(crate) socket: OwnedFd,
    /// The process that connected, pinned: its pid cannot come to name another one.
    pub(crate) process: OwnedFd,
    pub(crate) credentials: Credentials,
    /// Until when it must have said hello; `None` once it has.
    pub(crate) hello_due: Option<Instant>,
    pub(crate) gates: Vec<Arc<Gate>>,
    /// Its process serves memory itself, as it said in its hello.
    pub(crate) serves: bool,
    /// What it is told unasked, once it has said hello.
    pub(crate) news: Option<News>,
    /// When it was told to leave.
    pub(crate) told: Option<Instant>,
}

impl Session {
    /// Takes in a connection, or says why not.
    pub(crate) fn accept(id: ClientId, socket: OwnedFd, handshake: &Handshake) -> Option<Self> {
        let credentials = os::peer_credentials(socket.as_fd()).ok()?;
        let refuse = |text: String| {
            // A client that does not read its refusal misses it.
            let _ = socket::send(&socket, &FromServer::Refusal { text }.encode(), &[]);
        };
        if !handshake.allowed_uids.contains(&credentials.uid) {
            refuse(format!(
                "this server lets in uid {}, and this client runs as uid {}",
                list(&handshake.allowed_uids),
                credentials.uid
            ));
            return None;
        }
        let process = match os::open_peer(socket.as_fd(), credentials.pid) {
            Ok(process) => process,
            Err(error) => {
                let pid = credentials.pid;
                refuse(format!("the server cannot see the client's process (pid {pid} here): {error}"));
                return None;
            }
        };
        let hello_due = Some(Instant::now() + HELLO_TIMEOUT);
        let (gates, serves, news, told) = (Vec::new(), false, None, None);
        Some(Self { id, socket, process, credentials, hello_due, gates, serves, news, told })
    }

    /// The next question, `None` if there is none now. Greets a client that says hello, with the newest
    /// notice.
    pub(crate) fn listen(
        &mut self,
        handshake: &Handshake,
        notice: u64,
    ) -> Result<Option<FromClient>, Ending> {
        let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
        let packet = match socket::receive_now(&self.socket, &mut buffer) {
            Ok(Packet::None) => return Ok(None),
            Ok(Packet::Bytes(length_bytes)) => &buffer[..length_bytes],
            Ok(Packet::End) | Err(_) => return Err(Ending::Gone),
        };
        if self.told.is_some() {
            // What it asked before it heard that it must leave. It is gone when it hangs up, no sooner.
            return Ok(None);
        }
        if packet.len() > MESSAGE_BYTES_MAX {
            return Err(Ending::Dismissed(format!("a control message exceeds {MESSAGE_BYTES_MAX} B")));
        }
        let message = FromClient::decode(packet).map_err(|error| Ending::Dismissed(error.to_string()))?;
        match (message, self.hello_due) {
            (FromClient::Hello { magic, fabric_version, format_version, serves, .. }, Some(_)) => {
                self.serves = serves;
                Self::check_hello(handshake, magic, fabric_version, format_version)?;
                self.greet(handshake.epoch, notice)?;
                Ok(None)
            }
            (FromClient::Hello { .. }, None) => Err(Ending::Dismissed("a second hello".to_owned())),
            (_, Some(_)) => Err(Ending::Refused("the first message was no hello".to_owned())),
            // Answers that nobody reads would pile up, descriptors with them, which count against the
            // server's user.
            (_, None) if os::unread_bytes(self.socket.as_fd()).unwrap_or(0) > 0 => {
                Err(Ending::Dismissed("a question before the last answer was read".to_owned()))
            }
            (question, None) => Ok(Some(question)),
        }
    }

    fn check_hello(
        handshake: &Handshake,
        magic: u64,
        fabric_version: u32,
        format_version: u32,
    ) -> Result<(), Ending> {
        if magic != MAGIC {
            return Err(Ending::Refused(format!("this is no farsight client: magic {magic:#018x}")));
        }
        let mismatch = |what: &str, own: u32, theirs: u32| {
            Ending::Refused(format!(
                "server speaks {what} {own}, this client {what} {theirs}: use the same version of farsight on both \
                 sides"
            ))
        };
        if fabric_version != FABRIC_VERSION {
            return Err(mismatch("fabric", FABRIC_VERSION, fabric_version));
        }
        if format_version != handshake.format_version {
            return Err(mismatch("format", handshake.format_version, format_version));
        }
        Ok(())
    }

    fn greet(&mut self, epoch: Epoch, notice: u64) -> Result<(), Ending> {
        // A client that says hello was alive after its process was pinned. If the pinned process is already
        // dead, the pid may have named another process by then.
        if os::has_exited(self.process.as_fd(), Duration::ZERO).unwrap_or(true) {
            return Err(Ending::Gone);
        }
        let news = News::new();
        let (news, client_end) = news.map_err(|error| {
            Ending::Refused(format!("the server has no socket for this client's news: {error}"))
        })?;
        self.hello_due = None;
        self.news = Some(news);
        let server_pid = std::process::id();
        let welcome = FromServer::Welcome { epoch: epoch.0, client: self.id.0, server_pid, notice };
        socket::send(&self.socket, &welcome.encode(), &[client_end.as_fd()]).map_err(|_| Ending::Gone)
    }

    /// Answers. A client that does not read its answers is gone.
    pub(crate) fn tell(&self, message: &FromServer) -> Result<(), Ending> {
        socket::send(&self.socket, &message.encode(), &[]).map_err(|_| Ending::Gone)
    }

    /// Closes all gates, says why, and hangs up.
    pub(crate) fn end(self, ending: Ending) {
        for gate in &self.gates {
            gate.close();
        }
        let message = match ending {
            Ending::Gone => None,
            Ending::Refused(text) => Some(FromServer::Refusal { text }),
            Ending::Dismissed(text) => Some(FromServer::Dismissal { text }),
            Ending::Stopped => Some(FromServer::Goodbye { text: "the peer stopped".to_owned() }),
        };
        // A client that does not read misses the reason, not the end.
        let _ = message.map(|message| self.tell(&message));
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// True for the client process `pid`, as far as it can be told from others.
    pub(crate) fn is_of(&self, pid: i32) -> bool {
        self.credentials.pid == pid && pid != 0
    }

    /// Why the client's process is not ended with it, if it is not.
    pub(crate) fn spared(&self) -> Option<&'static str> {
        if self.is_own_process() {
            return Some("it is this very process");
        }
        self.serves.then_some("it serves memory itself, as a memory node or a server")
    }

    /// Tells the client that it is fenced, and that nothing more is said to it: it hangs up when none of its
    /// doorbells changes memory any more.
    pub(crate) fn tell_to_leave(socket: &OwnedFd, text: &str) {
        let dismissal = FromServer::Dismissal { text: text.to_owned() };
        // Errors here mean that it has hung up already.
        let _ = socket::send(socket, &dismissal.encode(), &[]);
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
    }

    /// True while the client's process is this one: a client in a thread.
    pub(crate) fn is_own_process(&self) -> bool {
        self.credentials.pid == os::own_pid()
    }
}

fn list(uids: &[u32]) -> String {
    let uids: Vec<String> = uids.iter().map(u32::to_string).collect();
    uids.join(", ")
}
