//! A client made by hand after docs/protocol/tcp.md, which says whatever a test wants.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use farsight_conformance::fabric::harness::{FORMAT, PATIENCE};

/// The hello of a client.
pub(crate) fn hello(purpose: &[u8]) -> Vec<u8> {
    let fixed = [&1_u32.to_le_bytes()[..], b"farsight", &4_u32.to_le_bytes(), &FORMAT.to_le_bytes(), purpose];
    packet(&fixed.concat())
}

/// A packet with its length.
pub(crate) fn packet(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], body].concat()
}

/// One verb's sixteen bytes.
pub(crate) fn verb(kind: u8, region: u8, count: u32, offset_bytes: u64) -> Vec<u8> {
    [&[kind, region, 0, 0][..], &count.to_le_bytes(), &offset_bytes.to_le_bytes()].concat()
}

/// What a filtered READ carries: the word wanted, and a filter for these words with parts of so many lines.
pub(crate) fn filter(words: u32, parts_begin: u8, part_lines: u8) -> Vec<u8> {
    [&9_u64.to_le_bytes()[..], &words.to_le_bytes(), &[parts_begin, part_lines, 0, 0]].concat()
}

/// A batch with its header.
pub(crate) fn batch(sequence: u64, regions: u8, verbs: u16, body: &[u8]) -> Vec<u8> {
    let header = [&[1, regions][..], &verbs.to_le_bytes(), &(body.len() as u32).to_le_bytes()].concat();
    [&header[..], &sequence.to_le_bytes(), body].concat()
}

/// A connection by hand.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// Connects and says nothing.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let socket = TcpStream::connect(server).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket.set_write_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        Self(socket)
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server takes it");
    }

    /// The next packet's body; `None` at the end.
    pub(crate) fn hear(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// The text of the next packet, which is of this kind.
    pub(crate) fn hear_text(&mut self, kind: u32) -> String {
        let body = self.hear().expect("a packet");
        assert_eq!(body[..4], kind.to_le_bytes(), "{}", String::from_utf8_lossy(&body));
        String::from_utf8(body[4..].to_vec()).expect("a text")
    }

    /// The next line of a queue pair; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<[u8; 64]> {
        let mut line = [0; 64];
        self.0.read_exact(&mut line).ok().map(|()| line)
    }

    /// Asserts that the server hangs up, with nothing further said.
    pub(crate) fn assert_ends(&mut self) {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("the server should have hung up: {other:?}, {byte:?}"),
        }
    }
}

/// A welcomed client by hand.
pub(crate) struct RawClient {
    pub(crate) server: SocketAddr,
    pub(crate) control: Raw,
    pub(crate) id: u64,
    key: [u8; 16],
}

impl RawClient {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let mut control = Raw::connect(server);
        control.say(&hello(&1_u32.to_le_bytes()));
        let welcome = control.hear().expect("a welcome");
        assert_eq!((welcome.len(), &welcome[..4]), (36, &129_u32.to_le_bytes()[..]));
        let id = u64::from_le_bytes(welcome[12..20].try_into().expect("eight bytes"));
        Self { server, control, id, key: welcome[20..].try_into().expect("sixteen bytes") }
    }

    /// What a queue pair's hello says, with this key.
    pub(crate) fn purpose(&self, key: &[u8; 16]) -> Vec<u8> {
        [&2_u32.to_le_bytes()[..], &self.id.to_le_bytes(), key].concat()
    }

    pub(crate) fn open_queue(&self) -> Raw {
        let mut queue = Raw::connect(self.server);
        queue.say(&hello(&self.purpose(&self.key)));
        assert_eq!(queue.hear().expect("an answer"), 130_u32.to_le_bytes());
        queue
    }

    /// The region's token.
    pub(crate) fn attach(&mut self, region: u32) -> [u8; 16] {
        self.control.say(&packet(&[&2_u32.to_le_bytes()[..], &region.to_le_bytes()].concat()));
        let attached = self.control.hear().expect("an answer");
        assert_eq!((attached.len(), &attached[..4]), (36, &132_u32.to_le_bytes()[..]));
        attached[20..].try_into().expect("sixteen bytes")
    }
}
