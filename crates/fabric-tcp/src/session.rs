//! Connections as the control thread sees them: greetings, and the clients that come of them.
//!
//! Invariant: a connection is believed nothing before a hello with the right magic and versions, and a queue
//! pair nothing before the key of the client that it claims to be of.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::ClientId;
use farsight_fabric_net::packets::{Next, Packets};
use farsight_fabric_net::{Ending, Manners, os};

use crate::control::{ClientMessage, Purpose, ServerMessage};
use crate::grants::{Grants, Token};
use crate::server_queue::QueueHandle;

/// How long a connection may take to say hello.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that has not said hello.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) packets: Packets,
    pub(crate) due: Instant,
}

impl Greeting {
    pub(crate) fn new(packets: Packets) -> Self {
        Self { packets, due: Instant::now() + HELLO_TIMEOUT }
    }

    /// What the connection says it is to become; `None` if it has not said so yet.
    pub(crate) fn listen(&mut self, manners: &Manners) -> Result<Option<Purpose>, Ending> {
        let refused = |text: String| Err(Ending::Refused(text));
        let packet = match self.packets.receive() {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Unintelligible(error)) => return refused(error.to_string()),
            Ok(Next::End) => return Err(Ending::Gone),
            Err(error) => return refused(format!("the connection failed: {error}")),
        };
        match ClientMessage::decode(&packet) {
            Ok(ClientMessage::Hello { magic, fabric_version, format_version, purpose }) => {
                manners.check(magic, fabric_version, format_version)?;
                Ok(Some(purpose))
            }
            Ok(_) => refused("the first message was no hello".to_owned()),
            Err(error) => refused(error.to_string()),
        }
    }

    /// Says why, if there is something to say, and hangs up.
    pub(crate) fn end(self, ending: Ending) {
        farewell(self.packets, ending);
    }
}

/// A client that has been welcomed.
pub(crate) struct Client {
    pub(crate) packets: Packets,
    /// What its queue pairs prove themselves by.
    key: Token,
    pub(crate) grants: Arc<Grants>,
    pub(crate) queues: Vec<Arc<QueueHandle>>,
}

impl Client {
    /// Welcomes a client.
    pub(crate) fn welcome(id: ClientId, mut packets: Packets, manners: &Manners) -> io::Result<Self> {
        let key = os::random()?;
        let welcome = ServerMessage::Welcome { epoch: manners.epoch.0, client: id.0, key };
        packets.send(&welcome.encode())?;
        Ok(Self { packets, key, grants: Arc::default(), queues: Vec::new() })
    }

    /// True if the key is this client's. Takes the same time for every wrong one.
    pub(crate) fn is_proved_by(&self, key: &Token) -> bool {
        let different =
            self.key.iter().zip(key).fold(0, |different, (own, theirs)| different | (own ^ theirs));
        std::hint::black_box(different) == 0
    }

    /// The next question, `None` if there is none now.
    pub(crate) fn listen(&mut self) -> Result<Option<ClientMessage>, Ending> {
        let packet = match self.packets.receive() {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Unintelligible(error)) => return Err(Ending::Dismissed(error.to_string())),
            Ok(Next::End) | Err(_) => return Err(Ending::Gone),
        };
        match ClientMessage::decode(&packet) {
            Ok(ClientMessage::Hello { .. }) => Err(Ending::Dismissed("a second hello".to_owned())),
            Ok(question) => Ok(Some(question)),
            Err(error) => Err(Ending::Dismissed(error.to_string())),
        }
    }

    /// Answers. A client that does not read its answers is gone.
    pub(crate) fn tell(&mut self, message: &ServerMessage) -> Result<(), Ending> {
        self.packets.send(&message.encode()).map_err(|_| Ending::Gone)
    }

    /// No request of the client executes any more but those that execute now.
    pub(crate) fn close_gates(&self) {
        for queue in &self.queues {
            queue.gate.close();
        }
    }

    /// True while a request of the client executes.
    pub(crate) fn is_being_served(&self) -> bool {
        self.queues.iter().any(|queue| queue.gate.is_being_served())
    }

    /// Says why, before the queues end: a client that sees one end asks here for the reason.
    pub(crate) fn end(self, ending: Ending) -> Vec<Arc<QueueHandle>> {
        self.close_gates();
        farewell(self.packets, ending);
        for queue in &self.queues {
            queue.end();
        }
        self.queues
    }
}

fn farewell(mut packets: Packets, ending: Ending) {
    let message = match ending {
        Ending::Gone => None,
        Ending::Refused(text) => Some(ServerMessage::Refusal { text }),
        Ending::Dismissed(text) => Some(ServerMessage::Dismissal { text }),
        Ending::Broken(text) => Some(ServerMessage::Goodbye { text }),
        Ending::Stopped => Some(ServerMessage::Goodbye { text: "the peer stopped".to_owned() }),
    };
    // A peer that does not read misses the reason, not the end.
    let _ = message.map(|message| packets.send(&message.encode()));
    os::hang_up(packets.socket());
}
