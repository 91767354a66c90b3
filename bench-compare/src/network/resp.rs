//! A client of Redis's protocol that does no more than it must: requests into one buffer, one write, answers
//! parsed where they arrive. Keys are eight bytes, the most significant first, so that they sort as numbers.
//!
//! Bound: the client disconnects from a server that says nothing for [`ANSWER_TIMEOUT`].

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{Contestant, Question, check};

/// As long as Farsight's client polls for an answer before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes taken from the kernel at a time at first.
const ARRIVING_BYTES: usize = 64 << 10;
/// The ordered set; and a word of INFO before the version.
const SET: &[u8] = b"ordered";
const VERSION: &str = "redis_version:";

/// What a client sends for a question.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    MultiGet,
    RangeByLex,
}

impl Command {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Get => "Redis GET",
            Self::MultiGet => "Redis MGET",
            Self::RangeByLex => "Redis ZRANGEBYLEX",
        }
    }
}

/// A connection.
pub(super) struct Client {
    socket: TcpStream,
    command: Command,
    request: Vec<u8>,
    arrived: Vec<u8>,
    filled: usize,
    parsed: usize,
}

impl Client {
    pub(super) fn connect(address: SocketAddr, command: Command) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let arrived = vec![0; ARRIVING_BYTES];
        Ok(Self { socket, command, request: Vec::new(), arrived, filled: 0, parsed: 0 })
    }

    /// The version that the server says it has.
    pub(super) fn server_version(&mut self) -> Result<String> {
        self.push(&[b"INFO", b"server"]);
        self.send()?;
        let text = String::from_utf8(self.bulk()?.context("no INFO")?.to_vec())?;
        let version = text.lines().find_map(|line| line.strip_prefix(VERSION));
        Ok(version.with_context(|| format!("no version in {text}"))?.to_owned())
    }

    /// Stores keys with their values, and in the ordered set.
    pub(super) fn store(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        let encoded: Vec<([u8; 8], [u8; 8])> =
            pairs.iter().map(|(key, value)| (key.to_be_bytes(), value.to_le_bytes())).collect();
        let mut strings: Vec<&[u8]> = vec![b"MSET"];
        let mut members: Vec<&[u8]> = vec![b"ZADD", SET];
        for (key, value) in &encoded {
            strings.extend([&key[..], &value[..]]);
            members.extend([&b"0"[..], &key[..]]);
        }
        self.push(&strings);
        self.push(&members);
        self.send()?;
        let stored = self.line(b'+')?.to_vec();
        ensure!(stored == b"OK", "MSET answered {}", stored.escape_ascii());
        let added = self.number(b':')?;
        ensure!(added == pairs.len() as i64, "{added} members were new, of {}", pairs.len());
        Ok(())
    }

    /// Adds a command.
    fn push(&mut self, words: &[&[u8]]) {
        header(&mut self.request, b'*', words.len());
        for word in words {
            header(&mut self.request, b'$', word.len());
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) -> Result<()> {
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
    fn number(&mut self, kind: u8) -> Result<i64> {
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
    fn bulk(&mut self) -> Result<Option<&[u8]>> {
        let length = self.number(b'$')?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        while self.filled - self.parsed < length + 2 {
            self.receive()?;
        }
        let first = self.parsed;
        self.parsed += length + 2;
        Ok(Some(&self.arrived[first..first + length]))
    }

    fn word(&mut self) -> Result<Option<[u8; 8]>> {
        Ok(self.bulk()?.and_then(|bytes| bytes.try_into().ok()))
    }

    fn push_questions(&mut self, questions: &[Question]) {
        match self.command {
            Command::Get => {
                for question in questions {
                    self.push(&[b"GET", &question.asked.to_be_bytes()]);
                }
            }
            Command::MultiGet => {
                header(&mut self.request, b'*', questions.len() + 1);
                self.request.extend_from_slice(b"$4\r\nMGET\r\n");
                for question in questions {
                    self.request.extend_from_slice(b"$8\r\n");
                    self.request.extend_from_slice(&question.asked.to_be_bytes());
                    self.request.extend_from_slice(b"\r\n");
                }
            }
            Command::RangeByLex => {
                for question in questions {
                    let mut from = [b'['; 9];
                    from[1..].copy_from_slice(&question.asked.to_be_bytes());
                    self.push(&[b"ZRANGEBYLEX", SET, &from, b"+", b"LIMIT", b"0", b"1"]);
                }
            }
        }
    }
}

impl Contestant for Client {
    fn ask(&mut self, questions: &[Question]) -> Result<()> {
        self.push_questions(questions);
        self.send()?;
        if self.command == Command::MultiGet {
            let count = self.number(b'*')?;
            ensure!(count == questions.len() as i64, "MGET answered {count} of {}", questions.len());
        }
        for question in questions {
            if self.command == Command::RangeByLex {
                let count = self.number(b'*')?;
                ensure!(count == 1, "ZRANGEBYLEX from {} found {count}", question.asked);
                let key = self.word()?.map_or(question.asked, u64::from_be_bytes);
                // Members of a set have no values.
                check(question, key, Some(question.value))?;
            } else {
                let value = self.word()?.map(u64::from_le_bytes);
                check(question, question.asked, value)?;
            }
        }
        Ok(())
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
