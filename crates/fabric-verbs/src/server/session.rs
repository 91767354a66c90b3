//! One client on the control connection: what it has said and not finished saying, and what it has open.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};

use super::queue::{Receives, ServerQueue};
use crate::control::{FABRIC_VERSION, FRAME_BYTES_MAX, FromClient, FromServer, MAGIC, frame_bytes};
use crate::ibv::pair::Endpoint;
use crate::os;

/// How long a client may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a client ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// It left, died, or does not read.
    Gone,
    /// It was never let in.
    Refused(String),
    /// It broke a rule, or was fenced.
    Dismissed(String),
    /// The server stops.
    Stopped,
}

/// What every client is told and held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    pub(super) epoch: Epoch,
    pub(super) format_version: u32,
}

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: ClientId,
    pub(super) stream: TcpStream,
    /// Bytes of a frame that has begun: never more than one frame.
    input: Vec<u8>,
    /// By when it must have said hello; none once it has.
    pub(super) hello_due: Option<Instant>,
    pub(super) queues: Vec<Arc<ServerQueue>>,
    pub(super) receives: Option<Arc<Receives>>,
    /// A queue that it asked for when there was no port yet.
    pub(super) asked: Option<Endpoint>,
}

impl Session {
    pub(super) fn new(id: ClientId, stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        os::settle_control_socket(&stream)?;
        Ok(Self {
            id,
            stream,
            input: Vec::new(),
            hello_due: Some(Instant::now() + HELLO_TIMEOUT),
            queues: Vec::new(),
            receives: None,
            asked: None,
        })
    }

    /// The next question, `None` if there is none now. Greets a client that says hello.
    pub(super) fn listen(&mut self, manners: &Manners) -> Result<Option<FromClient>, Ending> {
        let Some(frame) = self.next_frame()? else { return Ok(None) };
        let message = FromClient::decode(&frame).map_err(|error| Ending::Dismissed(error.to_string()))?;
        match (message, self.hello_due) {
            (FromClient::Hello { magic, fabric_version, format_version }, Some(_)) => {
                self.greet(manners, magic, fabric_version, format_version)?;
                Ok(None)
            }
            (FromClient::Hello { .. }, None) => Err(Ending::Dismissed("a second hello".to_owned())),
            (_, Some(_)) => Err(Ending::Refused("the first message was no hello".to_owned())),
            (_, None) if self.asked.is_some() => {
                Err(Ending::Dismissed("a question before the last one was answered".to_owned()))
            }
            (question, None) => Ok(Some(question)),
        }
    }

    /// A whole frame, without its length.
    fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Ending> {
        loop {
            let broken = |error: crate::control::Unintelligible| Ending::Dismissed(error.to_string());
            let wanted = match frame_bytes(&self.input).map_err(broken)? {
                None => 4,
                Some(length_bytes) if self.input.len() == 4 + length_bytes => {
                    return Ok(Some(self.input.drain(..).skip(4).collect()));
                }
                Some(length_bytes) => 4 + length_bytes,
            };
            // No byte of the next frame is taken, so one that is here stays visible to epoll.
            let mut buffer = [0; 4 + FRAME_BYTES_MAX];
            match (&self.stream).read(&mut buffer[..wanted - self.input.len()]) {
                Ok(0) => return Err(Ending::Gone),
                Ok(count) => self.input.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Ending::Gone),
            }
        }
    }

    fn greet(
        &mut self,
        manners: &Manners,
        magic: u64,
        fabric_version: u32,
        format_version: u32,
    ) -> Result<(), Ending> {
        if magic != MAGIC {
            return Err(Ending::Refused(format!("this is no farsight client: magic {magic:#018x}")));
        }
        let versions =
            [("fabric", FABRIC_VERSION, fabric_version), ("format", manners.format_version, format_version)];
        for (what, own, theirs) in versions {
            if own != theirs {
                let text = format!("server speaks {what} {own}, this client {what} {theirs}");
                return Err(Ending::Refused(format!(
                    "{text}: use the same version of farsight on both sides"
                )));
            }
        }
        self.hello_due = None;
        self.tell(&FromServer::Welcome { epoch: manners.epoch.0, client: self.id.0 })
    }

    /// Answers. A client that does not read its answers is gone.
    pub(super) fn tell(&self, message: &FromServer) -> Result<(), Ending> {
        let frame = message.encode();
        match (&self.stream).write(&frame) {
            Ok(count) if count == frame.len() => Ok(()),
            _ => Err(Ending::Gone),
        }
    }

    /// Ends its queues, says why, and hangs up.
    pub(super) fn end(self, ending: Ending) {
        for queue in &self.queues {
            queue.destroy();
        }
        let message = match ending {
            Ending::Gone => None,
            Ending::Refused(text) => Some(FromServer::Refusal { text }),
            Ending::Dismissed(text) => Some(FromServer::Dismissal { text }),
            Ending::Stopped => Some(FromServer::Goodbye { text: "the server stopped".to_owned() }),
        };
        // A client that does not read misses the reason, not the end.
        let _ = message.map(|message| self.tell(&message));
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
