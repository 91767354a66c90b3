//! Messages of control connections: a kind, then fields, one message a packet.
//!
//! Invariant: a message is a little-endian `u32` kind and a fixed layout; a text is whatever is left, and
//! bounded. Bytes that are not exactly one message of the expected direction are [`Unintelligible`].

use farsight_base::RegionId;
use farsight_fabric::RegionRights;

/// Bytes of the longest text.
pub const TEXT_BYTES_MAX: usize = 1000;

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unintelligible {
    /// Fields are missing.
    #[error("a packet of {got} B ends inside a message")]
    Short {
        /// Bytes of the packet.
        got: usize,
    },
    /// Something stands behind the fields.
    #[error("a packet of {got} B is {excess} B longer than its message")]
    Excess {
        /// Bytes of the packet.
        got: usize,
        /// Bytes behind the fields.
        excess: usize,
    },
    /// No message of that kind.
    #[error("messages of kind {kind} do not exist in this direction")]
    Kind {
        /// The kind.
        kind: u32,
    },
    /// A field with a value that means nothing.
    #[error("{what} {code} does not exist")]
    Code {
        /// The field.
        what: &'static str,
        /// Its value.
        code: u32,
    },
}

/// As much of a text as a message holds.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// A message being written: kind, fields.
#[must_use]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A message of this kind.
    pub fn new(kind: u32) -> Self {
        Self(kind.to_le_bytes().to_vec())
    }

    /// A number.
    pub fn u32(self, field: u32) -> Self {
        self.bytes(&field.to_le_bytes())
    }

    /// A number.
    pub fn u64(self, field: u64) -> Self {
        self.bytes(&field.to_le_bytes())
    }

    /// A region's number.
    pub fn region(self, region: RegionId) -> Self {
        self.u32(region.0)
    }

    /// What clients may do to a region.
    pub fn rights(self, rights: RegionRights) -> Self {
        self.u32(match rights {
            RegionRights::ReadOnly => 1,
            RegionRights::ReadWrite => 2,
        })
    }

    /// Bytes, as they are.
    pub fn bytes(mut self, field: &[u8]) -> Self {
        self.0.extend(field);
        self
    }

    /// A text, cut at a character if it is too long; nothing may follow it.
    pub fn text(self, text: &str) -> Self {
        self.bytes(cut(text).as_bytes())
    }

    /// The message.
    #[must_use]
    pub fn message(self) -> Vec<u8> {
        self.0
    }
}

/// A message being read.
pub struct Reader<'p> {
    packet: &'p [u8],
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    /// Of a packet.
    #[must_use]
    pub fn new(packet: &'p [u8]) -> Self {
        Self { packet, rest: packet }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Unintelligible> {
        let split = self.rest.split_first_chunk::<N>();
        let (bytes, rest) = split.ok_or(Unintelligible::Short { got: self.packet.len() })?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn u32(&mut self) -> Result<u32, Unintelligible> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn u64(&mut self) -> Result<u64, Unintelligible> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A region's number.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn region(&mut self) -> Result<RegionId, Unintelligible> {
        self.u32().map(RegionId)
    }

    /// What clients may do to a region.
    ///
    /// # Errors
    /// [`Unintelligible::Short`], [`Unintelligible::Code`].
    pub fn rights(&mut self) -> Result<RegionRights, Unintelligible> {
        match self.u32()? {
            1 => Ok(RegionRights::ReadOnly),
            2 => Ok(RegionRights::ReadWrite),
            code => Err(Unintelligible::Code { what: "region right", code }),
        }
    }

    /// The rest, repaired and cut as a writer would have written it.
    pub fn text(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        cut(&String::from_utf8_lossy(rest)).to_owned()
    }

    /// The message that was read, behind which nothing may stand.
    ///
    /// # Errors
    /// [`Unintelligible::Excess`].
    pub fn end<T>(self, message: T) -> Result<T, Unintelligible> {
        match self.rest.len() {
            0 => Ok(message),
            excess => Err(Unintelligible::Excess { got: self.packet.len(), excess }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_went() {
        let message = Writer::new(7).u64(9).region(RegionId(3)).rights(RegionRights::ReadWrite).text("why");
        let message = message.message();
        let mut fields = Reader::new(&message);
        assert_eq!((fields.u32(), fields.u64(), fields.region()), (Ok(7), Ok(9), Ok(RegionId(3))));
        assert_eq!((fields.rights(), fields.text()), (Ok(RegionRights::ReadWrite), "why".to_owned()));
        assert_eq!(fields.end(()), Ok(()));
    }

    #[test]
    fn what_is_no_message_is_named() {
        let mut fields = Reader::new(&[1, 2, 3]);
        assert_eq!(fields.u32(), Err(Unintelligible::Short { got: 3 }));
        assert_eq!(fields.end(()), Err(Unintelligible::Excess { got: 3, excess: 3 }));
        let wrong = Err(Unintelligible::Code { what: "region right", code: 3 });
        assert_eq!(Reader::new(&3_u32.to_le_bytes()).rights(), wrong);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let message = Writer::new(1).text(&"\u{20ac}".repeat(400)).message();
        assert_eq!(Reader::new(&message[4..]).text(), "\u{20ac}".repeat(333));
    }
}
