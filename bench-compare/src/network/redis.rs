//! Questions to a Redis server. Keys are eight bytes, the most significant first, so that they sort as
//! numbers.

use anyhow::{Result, ensure};

use super::{Contestant, Question, check};
use crate::redis::Server;
use crate::redis::resp::Client;
use crate::tally::value_of;

/// The ordered set.
const SET: &[u8] = b"ordered";
/// Keys of one command while loading.
const LOADED_AT_A_TIME: usize = 512;

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

/// Stores each key with its first value, and as a member of the ordered set.
pub(super) fn load(server: &Server, keys: &[u64]) -> Result<()> {
    let mut client = Client::connect(server.address())?;
    for keys in keys.chunks(LOADED_AT_A_TIME) {
        let pairs: Vec<([u8; 8], [u8; 8])> =
            keys.iter().map(|key| (key.to_be_bytes(), value_of(*key, 0).to_le_bytes())).collect();
        let mut strings: Vec<&[u8]> = vec![b"MSET"];
        let mut members: Vec<&[u8]> = vec![b"ZADD", SET];
        for (key, value) in &pairs {
            strings.extend([&key[..], &value[..]]);
            members.extend([&b"0"[..], &key[..]]);
        }
        client.push(&strings);
        client.push(&members);
        client.send()?;
        client.simple(b"OK")?;
        let added = client.number(b':')?;
        ensure!(added == keys.len() as i64, "{added} members were new, of {}", keys.len());
    }
    Ok(())
}

/// A connection with the command that it asks by.
pub(super) struct Asker {
    client: Client,
    command: Command,
}

impl Asker {
    pub(super) fn connect(server: &Server, command: Command) -> Result<Self> {
        Ok(Self { client: Client::connect(server.address())?, command })
    }

    fn push(&mut self, questions: &[Question]) {
        let client = &mut self.client;
        match self.command {
            Command::Get => {
                for question in questions {
                    client.push(&[b"GET", &question.asked.to_be_bytes()]);
                }
            }
            Command::MultiGet => {
                client.push_count(questions.len() + 1);
                client.push_word(b"MGET");
                for question in questions {
                    client.push_word(&question.asked.to_be_bytes());
                }
            }
            Command::RangeByLex => {
                for question in questions {
                    let mut from = [b'['; 9];
                    from[1..].copy_from_slice(&question.asked.to_be_bytes());
                    client.push(&[b"ZRANGEBYLEX", SET, &from, b"+", b"LIMIT", b"0", b"1"]);
                }
            }
        }
    }

    fn word(&mut self) -> Result<Option<[u8; 8]>> {
        Ok(self.client.bulk()?.and_then(|bytes| bytes.try_into().ok()))
    }
}

impl Contestant for Asker {
    fn ask(&mut self, questions: &[Question]) -> Result<()> {
        self.push(questions);
        self.client.send()?;
        if self.command == Command::MultiGet {
            let count = self.client.number(b'*')?;
            ensure!(count == questions.len() as i64, "MGET answered {count} of {}", questions.len());
        }
        for question in questions {
            if self.command == Command::RangeByLex {
                let count = self.client.number(b'*')?;
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
