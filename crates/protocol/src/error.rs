//! What goes wrong in a conversation.

use std::fmt;

/// Received bytes that no encoder of this version writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}: expected {expected}, got {got}")]
pub struct DecodeError {
    /// The part of the frame.
    pub what: &'static str,
    /// Where in it.
    pub offset: usize,
    /// What should stand there.
    pub expected: String,
    /// What stands there.
    pub got: String,
}

impl DecodeError {
    /// A decode error of these words.
    #[must_use]
    pub fn new(what: &'static str, offset: usize, expected: String, got: String) -> Self {
        Self { what, offset, expected, got }
    }
}

/// Why a server refused a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ErrorCode {
    /// The frame could not be decoded.
    BadRequest = 1,
    /// No table of that name or number.
    UnknownTable = 2,
    /// A table of that name exists with another definition.
    TableExists = 3,
    /// A name that is empty, too long, or has characters outside `a-z A-Z 0-9 _ -`.
    BadName = 4,
    /// Values of another size than the table's.
    WrongValueSize = 5,
    /// The table's region has no block left.
    RegionFull = 6,
    /// A bulk load into a table with pairs, or keys that do not ascend.
    BadLoad = 7,
    /// A latch or lock stayed taken for about half a second. Nothing changed; the caller may try again.
    Contended = 8,
    /// The table's versions are used up.
    VersionsExhausted = 9,
    /// The server cannot get memory, has as many tables as it can, or met a bug of its own earlier and
    /// executes nothing any more.
    OutOfResources = 10,
    /// A memory node that belongs to another pool, or stands elsewhere in the list of its own.
    OtherPool = 11,
    /// A compute node that was fenced: another one took it for dead.
    Fenced = 12,
    /// The server met a bug while it executed this very call, which it may have executed in whole, in part or
    /// not at all. Of all codes this one alone is no refusal.
    Bug = 13,
    /// The node's process has as much memory as it may have, or the system gives no more.
    NoMemory = 14,
    /// Memory lost a bit of the value's block. Its bytes are no answer; a write of the key replaces them.
    Damaged = 15,
    /// A fetch-and-add found a value that is no integer of 8 B. Nothing changed.
    NotInteger = 16,
    /// The node knows nothing any more of this call, its author or its author's connection: it did not
    /// execute the call now. Of a repeated call it cannot tell what became of the first.
    Forgotten = 17,
    /// The first call of this number is being executed: the caller may ask again.
    Executing = 18,
    /// A new node is taking the place of a lost one: no compute node is let in. The caller may ask again.
    TakingIn = 19,
}

impl ErrorCode {
    /// The code with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        use ErrorCode::{
            BadLoad, BadName, BadRequest, Bug, Contended, Damaged, Executing, Fenced, Forgotten, NoMemory,
            NotInteger, OtherPool, OutOfResources, RegionFull, TableExists, TakingIn, UnknownTable,
            VersionsExhausted, WrongValueSize,
        };
        let all = [
            BadRequest,
            UnknownTable,
            TableExists,
            BadName,
            WrongValueSize,
            RegionFull,
            BadLoad,
            Contended,
            VersionsExhausted,
            OutOfResources,
            OtherPool,
            Fenced,
            Bug,
            NoMemory,
            Damaged,
            NotInteger,
            Forgotten,
            Executing,
            TakingIn,
        ];
        all.into_iter().find(|code| *code as u8 == number)
    }
}

/// A server's refusal: a code for programs, words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// The code.
    pub code: ErrorCode,
    /// What, expected and got, as the server saw it.
    pub text: String,
}

impl ServerError {
    /// A refusal of these words.
    #[must_use]
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ServerError {}

impl From<DecodeError> for ServerError {
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorCode::BadRequest, error.to_string())
    }
}
