//! A client of Redis's protocol that does no more than it must: requests into one buffer, one write, answers
//! parsed where they arrive.
//!
//! Bound: the client disconnects from a server that says nothing for [`ANSWER_TIMEOUT`].

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// As long as Farsight's client polls for an answer before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes taken from the kernel at a time at first.
const ARRIVING_BYTES: usize = 64 << 10;
/// The word of INFO before the version.
const VERSION: &str = "redis_version:";

/// A connection.
pub(crate) struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    arrived: Vec<u8>,
    filled: usize,
    parsed: usize,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let arrived = vec![0; ARRIVING_BYTES];
        Ok(Self { socket, request: Vec::new(), arrived, filled: 0, parsed: 0 })
    }

    /// The version that the server says it has.
    pub(crate) fn server_version(&mut self) -> Result<String> {
        self.push(&[b"INFO", b"server"]);
        self.send()?;
        let text = String::from_utf8(self.bulk()?.context("no INFO")?.to_vec())?;
        let version = text.lines().find_map(|line| line.strip_prefix(VERSION));
        Ok(version.with_context(|| format!("no version in {text}"))?.to_owned())
    }

    /// An error unless it answers commands.
    pub(crate) fn ping(&mut self) -> Result<()> {
        self.push(&[b"PING"]);
        self.send()?;
        self.simple(b"PONG")
    }

    /// An error unless the next answer is this simple string.
    pub(crate) fn simple(&mut self, expected: &[u8]) -> Result<()> {
        let answer = self.line(b'+')?;
        ensure!(answer == expected, "Redis answered {}", answer.escape_ascii());
        Ok(())
    }

    /// Adds the beginning of a command of so many words.
    pub(crate) fn push_count(&mut self, words: usize) {
        header(&mut self.request, b'*', words);
    }

    /// Adds a word of a command.
    pub(crate) fn push_word(&mut self, word: &[u8]) {
        header(&mut self.request, b'$', word.len());
        self.request.extend_from_slice(word);
        self.request.extend_from_slice(b"\r\n");
    }

    /// Adds a command to what is sent next.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        self.push_count(words.len());
        for word in words {
            self.push_word(word);
        }
    }

    /// Sends what was added.
    pub(crate) fn send(&mut self) -> Result<()> {
        self.socket.write_all(&self.request).context("sending to Redis")?;
        self.request.clear();
        Ok(())
    }

    /// Takes more of what arrives: polls for a little while, then sleeps.
    fn receive(&mut self) -> Result<()> {
        self.arrived.copy_within(self.parsed..self.filled, 0);
        self.filled -= std::mem::take(&mut self.parsed);
        if self.filled == self.arrived.len() {
            self.arrived.resize(2 * self.filled, 0);
        }
        let begun = Instant::now();
        let length_bytes = loop {
            let into = &mut self.arrived[self.filled..];
            match rustix::net::recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((length_bytes, _)) => break length_bytes,
                Err(Errno::AGAIN) if begun.elapsed() < AWAKE => std::hint::spin_loop(),
                Err(Errno::AGAIN) => break self.socket.read(into).context("waiting for Redis")?,
                Err(error) => return Err(error).context("receiving from Redis"),
            }
        };
        ensure!(length_bytes > 0, "Redis hung up");
        self.filled += length_bytes;
        Ok(())
    }

    /// The next line, which must be of this kind, without kind and end.
    fn line(&mut self, kind: u8) -> Result<&[u8]> {
        let mut looked_at = 0;
        let length = loop {
            let rest = &self.arrived[self.parsed..self.filled];
            if let Some(at) = rest[looked_at..].iter().position(|byte| *byte == b'\n') {
                break looked_at + at;
            }
            looked_at = rest.len();
            self.receive()?;
        };
        let line = &self.arrived[self.parsed..self.parsed + length];
        self.parsed += length + 1;
        match line {
            [first, text @ .., b'\r'] if *first == kind => Ok(text),
            _ => bail!("Redis answered {:?}, not {}", line.escape_ascii().to_string(), kind as char),
        }
    }

    /// The number in the next line, which must be of this kind.
    pub(crate) fn number(&mut self, kind: u8) -> Result<i64> {
        let text = self.line(kind)?;
        let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
        ensure!(!digits.is_empty() && digits.len() <= 18, "no number: {}", text.escape_ascii());
        let mut number = 0;
        for digit in digits {
            ensure!(digit.is_ascii_digit(), "no number: {}", text.escape_ascii());
            number = number * 10 + i64::from(digit - b'0');
        }
        Ok(if is_negative { -number } else { number })
    }

    /// The next string; `None` where there is none.
    pub(crate) fn bulk(&mut self) -> Result<Option<&[u8]>> {
        let length = self.number(b'$')?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        while self.filled - self.parsed < length + 2 {
            self.receive()?;
        }
        let first = self.parsed;
        self.parsed += length + 2;
        Ok(Some(&self.arrived[first..first + length]))
    }
}

/// A count or length on a line of its own.
fn header(request: &mut Vec<u8>, kind: u8, number: usize) {
    request.push(kind);
    if number < 10 {
        request.push(b'0' + number as u8);
    } else {
        request.extend_from_slice(number.to_string().as_bytes());
    }
    request.extend_from_slice(b"\r\n");
}
