//! One client as the server sees it: from its connection over the handshake to its questions.
//!
//! Invariant: a client is believed nothing but who the kernel says it is. Whatever it sends that is not the
//! message due ends it, with a reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric_host::{DisconnectReason, Farewell, Gate, Handshake, Held};
use rustix::event::epoll;

use crate::control::{FromClient, FromServer, MESSAGE_BYTES_MAX};
use crate::news::News;
use crate::os::{self, Credentials};
use crate::socket::{self, Packet};
use crate::write_protection::WriteProtection;

/// How long a client may take to say hello.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Its process was killed.
    pub(crate) is_killed: bool,
    /// What it may write, and how to keep it from that.
    pub(crate) writable: WriteProtection,
}

impl Session {
    /// Takes in a connection, or says why not.
    pub(crate) fn accept(id: ClientId, socket: OwnedFd, allowed_uids: &[u32]) -> Option<Self> {
        let credentials = os::peer_credentials(socket.as_fd()).ok()?;
        let refuse = |text: String| {
            // A client that does not read its refusal misses it.
            let _ = socket::send(&socket, &FromServer::Refusal { text }.encode(), &[]);
        };
        if !allowed_uids.contains(&credentials.uid) {
            refuse(format!(
                "this server lets in uid {}, and this client runs as uid {}",
                list(allowed_uids),
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
        let (gates, serves, is_killed) = (Vec::new(), false, false);
        let (news, told, writable) = (None, None, WriteProtection::default());
        Some(Self {
            id,
            socket,
            process,
            credentials,
            hello_due,
            gates,
            serves,
            news,
            told,
            is_killed,
            writable,
        })
    }

    /// The next question and the descriptor that came with it; `None` if there is none now. Greets a client
    /// that says hello, with the newest notice.
    pub(crate) fn listen(
        &mut self,
        handshake: &Handshake,
        notice: u64,
    ) -> Result<Option<(FromClient, Option<OwnedFd>)>, DisconnectReason> {
        let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
        let received = if self.hello_due.is_none() && self.writable.wants_descriptor() {
            socket::receive_one_now(&self.socket, &mut buffer)
        } else {
            socket::receive_now(&self.socket, &mut buffer).map(|packet| (packet, None))
        };
        let (packet, descriptor) = match received {
            Ok((Packet::None, _)) => return Ok(None),
            Ok((Packet::Bytes(length_bytes), descriptor)) => (&buffer[..length_bytes], descriptor),
            Ok((Packet::End, _)) | Err(_) => return Err(DisconnectReason::Gone),
        };
        if self.told.is_some() {
            // What it asked before it heard that it must leave. It is gone when it hangs up, no sooner.
            return Ok(None);
        }
        if packet.len() > MESSAGE_BYTES_MAX {
            return Err(DisconnectReason::Dismissed(format!(
                "a control message exceeds {MESSAGE_BYTES_MAX} B"
            )));
        }
        let message =
            FromClient::decode(packet).map_err(|error| DisconnectReason::Dismissed(error.to_string()))?;
        match (message, self.hello_due) {
            (FromClient::Hello { magic, fabric_version, format_version, serves, .. }, Some(_)) => {
                self.serves = serves;
                handshake.check(magic, fabric_version, format_version)?;
                self.greet(handshake.epoch, notice)?;
                Ok(None)
            }
            (FromClient::Hello { .. }, None) => Err(DisconnectReason::Dismissed("a second hello".to_owned())),
            (_, Some(_)) => Err(DisconnectReason::Refused("the first message was no hello".to_owned())),
            // Answers that nobody reads would pile up, descriptors with them, which count against the
            // server's user.
            (_, None) if os::unread_bytes(self.socket.as_fd()).unwrap_or(0) > 0 => {
                Err(DisconnectReason::Dismissed("a question before the last answer was read".to_owned()))
            }
            (question, None) => Ok(Some((question, descriptor))),
        }
    }

    fn greet(&mut self, epoch: Epoch, notice: u64) -> Result<(), DisconnectReason> {
        // A client that says hello was alive after its process was pinned. If the pinned process is already
        // dead, the pid may have named another process by then.
        if os::has_exited(self.process.as_fd(), Duration::ZERO).unwrap_or(true) {
            return Err(DisconnectReason::Gone);
        }
        let news = News::new();
        let (news, client_end) = news.map_err(|error| {
            DisconnectReason::Refused(format!("the server has no socket for this client's news: {error}"))
        })?;
        self.hello_due = None;
        self.news = Some(news);
        let server_pid = std::process::id();
        let welcome = FromServer::Welcome { epoch: epoch.0, client: self.id.0, server_pid, notice };
        socket::send(&self.socket, &welcome.encode(), &[client_end.as_fd()])
            .map_err(|_| DisconnectReason::Gone)
    }

    /// The client has registered a region by which it can be kept from writing there.
    pub(crate) fn note_guarded(
        &mut self,
        region: RegionId,
        address: u64,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), DisconnectReason> {
        let is_guarded =
            self.writable.guarded(region, address, descriptor).map_err(DisconnectReason::Dismissed)?;
        if is_guarded {
            return self.tell(&FromServer::Noted);
        }
        let text = "the server got no descriptor by which to protect the region".to_owned();
        self.tell(&FromServer::Failed { text })
    }

    /// Answers. A client that does not read its answers is gone.
    pub(crate) fn tell(&self, message: &FromServer) -> Result<(), DisconnectReason> {
        socket::send(&self.socket, &message.encode(), &[]).map_err(|_| DisconnectReason::Gone)
    }

    /// What it has open.
    pub(crate) fn held(&self) -> Held {
        Held { connections: 1, queues: self.gates.len() }
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

impl farsight_fabric_host::Session for Session {
    type Queue = Gate;

    fn is_client(&self) -> bool {
        self.hello_due.is_none()
    }

    fn queues(&self) -> &[Arc<Gate>] {
        &self.gates
    }

    fn unwatch(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, &self.socket);
        let _ = epoll::delete(epoll, &self.process);
        if let Some(news) = self.news.as_ref().filter(|news| news.is_awaited) {
            let _ = epoll::delete(epoll, news.socket());
        }
    }

    fn end(self, reason: DisconnectReason) {
        let message = reason.farewell().map(|farewell| match farewell {
            Farewell::Refusal(text) => FromServer::Refusal { text },
            Farewell::Dismissal(text) => FromServer::Dismissal { text },
            Farewell::Goodbye(text) => FromServer::Goodbye { text },
        });
        // A client that does not read misses the reason, not the end.
        let _ = message.map(|message| self.tell(&message));
        os::hang_up(&self.socket);
    }
}

fn list(uids: &[u32]) -> String {
    let uids: Vec<String> = uids.iter().map(u32::to_string).collect();
    uids.join(", ")
}
