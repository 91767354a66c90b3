//! The entries of what a compute node executes for another one: keys and operands of any length.
//!
//! Each entry: a word of the key's length 32 and the operand's length 32, lowest bits first, then the key and
//! the operand, each padded to words. What stands in the padding is ignored.

use farsight_base::Epoch;

use crate::request::{DELEGATE, FIND, header, kind_of_write};
use crate::wire::{put, put_padded};
use crate::{DecodeError, FindWanted, HEADER_BYTES, Request, TableId, WriteOperation, padded};

/// Bytes of an entry before its key.
const ENTRY_HEAD_BYTES: usize = 8;

/// The entries of such writes. They were checked when they were decoded.
#[derive(Clone, Copy, Debug)]
pub struct DelegatedEntries<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelegatedEntry<'a> {
    /// The key; of an integer its little-endian bytes.
    pub key: &'a [u8],
    /// The operand, with its parts one behind the other ([`Operand`](crate::Operand)).
    pub operand: &'a [u8],
}

impl<'a> DelegatedEntries<'a> {
    pub(crate) fn new(bytes: &'a [u8], count: usize, offset: usize) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        let at = |rest: &[u8]| HEADER_BYTES + offset + bytes.len() - rest.len();
        for _ in 0..count {
            let Some((_, behind)) = split(rest) else {
                let (expected, got) = ("lengths, key and operand".to_owned(), format!("{} B", rest.len()));
                return Err(DecodeError::new("an entry of a delegated write", at(rest), expected, got));
            };
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(Self { bytes, count });
        }
        let got = format!("{} B more", rest.len());
        let expected = format!("the end of {count} entries");
        Err(DecodeError::new("a delegated write's entries", at(rest), expected, got))
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = DelegatedEntry<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (entry, behind) = split(rest)?;
            rest = behind;
            Some(entry)
        })
    }

    /// Bytes of an entry whose key and operand have so many.
    #[must_use]
    pub fn entry_bytes(key_bytes: usize, operand_bytes: usize) -> usize {
        ENTRY_HEAD_BYTES + padded(key_bytes) + padded(operand_bytes)
    }

    /// Appends one entry to a frame begun by [`Request::begin_delegate`](crate::Request).
    ///
    /// # Panics
    /// For a key or an operand of 4 GiB or more: no message carries it.
    pub fn push(frame: &mut Vec<u8>, DelegatedEntry { key, operand }: DelegatedEntry<'_>) {
        let length = |bytes: &[u8]| u64::from(u32::try_from(bytes.len()).expect("what a message carries"));
        put(frame, length(key) | length(operand) << u32::BITS);
        put_padded(frame, key);
        put_padded(frame, operand);
    }
}

/// The first entry and the bytes behind it; `None` if they end within it.
fn split(bytes: &[u8]) -> Option<(DelegatedEntry<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
    let lengths = u64::from_le_bytes(*head);
    let (key_bytes, operand_bytes) = (lengths as u32 as usize, (lengths >> u32::BITS) as usize);
    let (key, rest) = rest.split_at_checked(padded(key_bytes))?;
    let (operand, rest) = rest.split_at_checked(padded(operand_bytes))?;
    Some((DelegatedEntry { key: &key[..key_bytes], operand: &operand[..operand_bytes] }, rest))
}

/// The epoch of such a request, and its entries.
fn split_epoch(body: &[u8]) -> Result<(Epoch, &[u8]), DecodeError> {
    let Some((epoch, entries)) = body.split_first_chunk() else {
        let got = format!("{} B", body.len());
        return Err(DecodeError::new("a delegated write's epoch", HEADER_BYTES, "8 B".into(), got));
    };
    Ok((Epoch(u64::from_le_bytes(*epoch)), entries))
}

impl<'a> Request<'a> {
    /// Decodes what is asked of a compute node that serves.
    pub(crate) fn decode_for_others(
        (request, flags): (u8, u8),
        count: usize,
        table: TableId,
        argument: u64,
        body: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let (epoch, entries) = split_epoch(body)?;
        let entries = DelegatedEntries::new(entries, count, body.len() - entries.len())?;
        if request == FIND {
            if let Some(entry) = entries.iter().find(|entry| !entry.operand.is_empty()) {
                let got = format!("{} B", entry.operand.len());
                return Err(DecodeError::new(
                    "an operand of a key that is looked for",
                    HEADER_BYTES,
                    "none".into(),
                    got,
                ));
            }
            return Ok(Self::Find { table, epoch, wanted: FindWanted::from_number(flags)?, entries });
        }
        Ok(Self::Delegate { table, epoch, until: argument, operation: kind_of_write(flags)?, entries })
    }

    /// Begins `count` writes by a compute node that writes for others, to be appended with
    /// [`DelegatedEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn begin_delegate(
        into: &mut Vec<u8>,
        (epoch, table): (Epoch, TableId),
        until: u64,
        operation: WriteOperation,
        count: usize,
    ) {
        header(into, DELEGATE, operation as u8, count, table, until);
        put(into, epoch.0);
    }

    /// Begins a question about `count` keys to a compute node that serves, to be appended with
    /// [`DelegatedEntries::push`].
    ///
    /// # Panics
    /// As [`Request::get`].
    pub fn begin_find(
        into: &mut Vec<u8>,
        (epoch, table): (Epoch, TableId),
        wanted: FindWanted,
        count: usize,
    ) {
        header(into, FIND, wanted as u8, count, table, 0);
        put(into, epoch.0);
    }
}
