//! Frames of calls: what a SEND carries in either direction.
//!
//! Invariant: four words, then the payload. A frame is believed only if its length is that of the message
//! that carried it and its queue number is that of the queue pair it came over. Messages of a queue pair that
//! is gone may still wait in a completion queue, under a number that the device has given out again.
//!
//! | word | holds |
//! |---|---|
//! | 0 | the queue's number, as the server gave it |
//! | 1 | the slot of the call (low 32 bits), the payload's bytes (high 32 bits) |
//! | 2 | the call's sequence number, counted by the client from 1 |
//! | 3 | zero |

use farsight_base::sync::Ordering;

use crate::ibv::memory::Registered;

pub(crate) const HEADER_WORDS: usize = 4;
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * 8;
/// Bytes of the longest request or reply.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 32 << 10;
/// Words of a place for one frame.
pub(crate) const FRAME_WORDS: usize = HEADER_WORDS + PAYLOAD_BYTES_MAX / 8;
pub(crate) const FRAME_BYTES: usize = FRAME_WORDS * 8;

/// What a reply takes over from its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallHeader {
    pub(crate) queue: u64,
    pub(crate) slot: u32,
    pub(crate) sequence: u64,
}

/// Why a message is no frame of this queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Disorder {
    #[error("a message of {got} B is shorter than the header of a call")]
    Short { got: usize },
    #[error("a call announces {announced} B of payload in a message of {got} B")]
    Length { announced: usize, got: usize },
    #[error("a call's reserved word is {got:#x}")]
    Reserved { got: u64 },
}

impl CallHeader {
    /// The words that stand before a payload of so many bytes.
    pub(crate) fn words(self, payload_bytes: usize) -> [u64; HEADER_WORDS] {
        [self.queue, u64::from(self.slot) | (payload_bytes as u64) << 32, self.sequence, 0]
    }

    /// The header that a message of `message_bytes` begins with, and its payload's bytes.
    pub(crate) fn of(words: [u64; HEADER_WORDS], message_bytes: usize) -> Result<(Self, usize), Disorder> {
        let [queue, slot_and_length, sequence, reserved] = words;
        let Some(payload_bytes) = message_bytes.checked_sub(HEADER_BYTES) else {
            return Err(Disorder::Short { got: message_bytes });
        };
        let announced = (slot_and_length >> 32) as usize;
        if announced != payload_bytes {
            return Err(Disorder::Length { announced, got: message_bytes });
        }
        if reserved != 0 {
            return Err(Disorder::Reserved { got: reserved });
        }
        Ok((Self { queue, slot: slot_and_length as u32, sequence }, payload_bytes))
    }
}

/// Writes a frame at word `first` and returns its bytes.
pub(crate) fn store(memory: &Registered, first: usize, header: CallHeader, payload: &[u8]) -> usize {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "the caller checks the limit");
    for (word, value) in memory.words()[first..].iter().zip(header.words(payload.len())) {
        // Relaxed: as in `Registered::store_bytes`.
        word.store(value, Ordering::Relaxed);
    }
    memory.store_bytes(first + HEADER_WORDS, payload);
    HEADER_BYTES + payload.len()
}

/// Reads the frame of a message of `message_bytes` at word `first`; its payload replaces what `payload`
/// holds. Of a message that is shorter than a header the words are those of an earlier one, and not believed.
pub(crate) fn load(
    memory: &Registered,
    first: usize,
    message_bytes: usize,
    payload: &mut Vec<u8>,
) -> Result<CallHeader, Disorder> {
    // Relaxed: as in `Registered::load_bytes`.
    let word = |index: usize| memory.words()[first + index].load(Ordering::Relaxed);
    let (header, payload_bytes) = CallHeader::of(std::array::from_fn(word), message_bytes)?;
    memory.load_bytes(first + HEADER_WORDS, payload_bytes, payload);
    Ok(header)
}
