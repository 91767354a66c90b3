//! The rings of one queue: requests one way, replies the other, in one writable memory file.
//!
//! Invariant: a side believes its own counter alone, which it keeps privately. It checks the peer's against
//! that each time it loads it, and masks indices. It copies a frame once to private memory before it looks at
//! anything but the length. A peer can therefore make a ring useless, never unsafe: what is wrong comes back
//! as [`Disorder`].
//!
//! Protocol: counters count words and never wrap in practice (2^64). The producer writes frames past its
//! published tail and publishes them together with one Release store; the consumer takes what lies before the
//! tail and publishes its head likewise. A frame is a word `{payload bytes 32, slot 32}`, a word with the
//! call's sequence number, and the payload, padded to words.
//!
//! Sleeping: a side that is about to sleep sets its `sleeping` word, fences (SeqCst) and looks once more
//! ([`sleep`]). A side that has published fences (SeqCst) and looks at the other's word ([`wake`]). Of the
//! two looks at least one sees the other's store.
//!
//! Words 0, 16, 32 … of the header (two lines apart, for the prefetcher fetches pairs) hold: request tail,
//! request head, reply tail, reply head, server sleeping, client sleeping. The header has 4096 B, then come
//! the rings.

use farsight_base::sync::{AtomicU64, Ordering, fence};

#[cfg(any(loom, shuttle))]
use crate::injected;
use crate::mapping::SharedWords;

#[cfg(all(test, any(loom, shuttle)))]
mod models;

/// Words of each ring; a power of two. A model has no room for as many: two frames fill its ring.
const RING_WORDS: usize = if cfg!(any(loom, shuttle)) { 8 } else { 32 << 10 };
/// Words between two counters.
const APART: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
const HEADER_WORDS: usize = 32 * APART;
const FRAME_HEADER_WORDS: usize = 2;

/// Bytes of the longest request or reply.
pub(crate) const PAYLOAD_BYTES_MAX: usize = if cfg!(any(loom, shuttle)) { 16 } else { 64 << 10 };
/// Bytes of the file with both rings.
pub(crate) const FILE_BYTES: usize = (HEADER_WORDS + 2 * RING_WORDS) * 8;
/// Free words that any frame fits in.
const FRAME_WORDS_MAX: u64 = frame_words(PAYLOAD_BYTES_MAX) as u64;

const SERVER_SLEEPING: usize = 4 * APART;
const CLIENT_SLEEPING: usize = 5 * APART;

const fn frame_words(payload_bytes: usize) -> usize {
    FRAME_HEADER_WORDS + payload_bytes.div_ceil(8)
}

/// Where one of the two rings lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    first: usize,
    tail: usize,
    head: usize,
}

/// From the client to the server.
pub(crate) const REQUESTS: Place = Place { first: HEADER_WORDS, tail: 0, head: APART };
/// From the server to the client.
pub(crate) const REPLIES: Place =
    Place { first: HEADER_WORDS + RING_WORDS, tail: 2 * APART, head: 3 * APART };

/// What a peer did to a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Disorder {
    #[error("ring counters are {apart} words apart, in a ring of {RING_WORDS}")]
    Counters { apart: u64 },
    #[error("a frame announces {length_bytes} B, and the limit is {PAYLOAD_BYTES_MAX}")]
    TooLong { length_bytes: u64 },
    #[error("a frame of {needed} words stands where {available} are published")]
    Cut { needed: u64, available: u64 },
}

/// What stands before a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    /// The slot of the call.
    pub(crate) slot: u32,
    /// Tells a call from earlier ones in the same slot.
    pub(crate) sequence: u64,
}

/// The writing side of one ring.
#[derive(Debug)]
pub(crate) struct Producer {
    memory: SharedWords,
    place: Place,
    tail: u64,
    published: u64,
    head_seen: u64,
    /// Words that frames to come will take.
    reserved: u64,
}

impl Producer {
    pub(crate) fn new(memory: SharedWords, place: Place) -> Self {
        Self { memory, place, tail: 0, published: 0, head_seen: 0, reserved: 0 }
    }

    /// True if a frame of any length fits now, besides those that room is kept for.
    pub(crate) fn has_room_for_any(&mut self) -> Result<bool, Disorder> {
        self.has_room(self.reserved + FRAME_WORDS_MAX)
    }

    /// False if [`Producer::has_room_for_any`] would say so: nothing can be pushed, and nothing is amiss.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let wanted = self.reserved + FRAME_WORDS_MAX;
        let is_short = |head: u64| RING_WORDS as u64 - (self.tail - head) < wanted;
        if !is_short(self.head_seen) {
            return true;
        }
        // Relaxed: `has_room` loads it again with its ordering.
        let head = self.memory.words()[self.place.head].load(Ordering::Relaxed);
        self.tail.wrapping_sub(head) > self.tail - self.head_seen || !is_short(head)
    }

    /// Keeps room for a frame with so long a payload, which fits now. The room stays: a consumer whose head
    /// goes back is in disorder.
    pub(crate) fn reserve(&mut self, payload_bytes_max: usize) {
        self.reserved += frame_words(payload_bytes_max) as u64;
    }

    /// Gives up the room of [`Producer::reserve`], for the frame or without one.
    pub(crate) fn release(&mut self, payload_bytes_max: usize) {
        self.reserved -= frame_words(payload_bytes_max) as u64;
    }

    fn has_room(&mut self, words: u64) -> Result<bool, Disorder> {
        let fits = |head: u64, tail: u64| RING_WORDS as u64 - (tail - head) >= words;
        if fits(self.head_seen, self.tail) {
            return Ok(true);
        }
        // Acquire: the consumer's loads of the words that it gave back come before our stores to them.
        // Partner: the Release store in `Consumer::publish`.
        let head = self.memory.words()[self.place.head].load(Ordering::Acquire);
        let apart = self.tail.wrapping_sub(head);
        // No more words than were seen in use, hence no more than the ring has.
        if apart > self.tail - self.head_seen {
            return Err(Disorder::Counters { apart });
        }
        self.head_seen = head;
        Ok(fits(head, self.tail))
    }

    /// Writes one frame, unpublished. False if there is no room for it now.
    pub(crate) fn try_push(&mut self, header: FrameHeader, payload: &[u8]) -> Result<bool, Disorder> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "the caller checks the limit");
        let words = frame_words(payload.len());
        if !self.has_room(words as u64)? {
            return Ok(false);
        }
        let ring = ring(&self.memory, self.place);
        let first = payload.len() as u64 | u64::from(header.slot) << 32;
        let (chunks, rest) = payload.as_chunks::<8>();
        let mut padded = [0; 8];
        padded[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(padded);
        let body = chunks.iter().copied().chain(last).map(u64::from_le_bytes);
        // Relaxed: the tail's Release store publishes them.
        for (offset, word) in [first, header.sequence].into_iter().chain(body).enumerate() {
            ring[(self.tail as usize + offset) & (RING_WORDS - 1)].store(word, Ordering::Relaxed);
        }
        self.tail += words as u64;
        Ok(true)
    }

    /// Lets the consumer see every frame pushed so far. True if there was a new one.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        // Release: the frames' words come before the tail. Partner: the Acquire load in
        // `Consumer::available`.
        self.memory.words()[self.place.tail].store(self.tail, Ordering::Release);
        true
    }
}

/// The reading side of one ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    memory: SharedWords,
    place: Place,
    head: u64,
    published: u64,
    tail_seen: u64,
}

impl Consumer {
    pub(crate) fn new(memory: SharedWords, place: Place) -> Self {
        Self { memory, place, head: 0, published: 0, tail_seen: 0 }
    }

    /// True if [`Consumer::take`] has something to say: a frame, or a disorder.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Relaxed: `take` loads it again with its ordering.
        self.head != self.tail_seen
            || self.memory.words()[self.place.tail].load(Ordering::Relaxed) != self.head
    }

    fn available(&mut self) -> Result<u64, Disorder> {
        if self.head == self.tail_seen {
            // Acquire: the frames' words are read after the tail. Partner: the Release store in
            // `Producer::publish`.
            let tail = self.memory.words()[self.place.tail].load(Ordering::Acquire);
            let apart = tail.wrapping_sub(self.head);
            #[cfg(any(loom, shuttle))]
            let apart = if injected::COUNTER_BELIEVED.is_injected() { 0 } else { apart };
            if apart > RING_WORDS as u64 {
                return Err(Disorder::Counters { apart });
            }
            self.tail_seen = tail;
        }
        Ok(self.tail_seen.wrapping_sub(self.head))
    }

    /// Copies the next frame's payload into `payload`, replacing what it held. `None` if there is no frame.
    pub(crate) fn take(&mut self, payload: &mut Vec<u8>) -> Result<Option<FrameHeader>, Disorder> {
        let available = self.available()?;
        if available == 0 {
            return Ok(None);
        }
        if available < FRAME_HEADER_WORDS as u64 {
            return Err(Disorder::Cut { needed: FRAME_HEADER_WORDS as u64, available });
        }
        let ring = ring(&self.memory, self.place);
        // Relaxed, each word once: the tail's Acquire load came before, and a peer that writes them still can
        // only garble its own frame.
        let word = |offset: usize| {
            ring[(self.head as usize).wrapping_add(offset) & (RING_WORDS - 1)].load(Ordering::Relaxed)
        };
        let first = word(0);
        let header = FrameHeader { slot: (first >> 32) as u32, sequence: word(1) };
        let length_bytes = first & 0xffff_ffff;
        if length_bytes > PAYLOAD_BYTES_MAX as u64 {
            return Err(Disorder::TooLong { length_bytes });
        }
        let length_bytes = length_bytes as usize;
        let needed = frame_words(length_bytes);
        if needed as u64 > available {
            return Err(Disorder::Cut { needed: needed as u64, available });
        }
        payload.resize((needed - FRAME_HEADER_WORDS) * 8, 0);
        for (index, bytes) in payload.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = word(FRAME_HEADER_WORDS + index).to_le_bytes();
        }
        payload.truncate(length_bytes);
        self.head = self.head.wrapping_add(needed as u64);
        Ok(Some(header))
    }

    /// Gives the words of all frames taken so far back to the producer. True if there were any.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        // Release: our loads of the frames come before the head. Partner: the Acquire load in
        // `Producer::has_room`.
        self.memory.words()[self.place.head].store(self.head, Ordering::Release);
        true
    }
}

#[inline]
fn ring(memory: &SharedWords, place: Place) -> &[AtomicU64; RING_WORDS] {
    let words = &memory.words()[place.first..place.first + RING_WORDS];
    words.try_into().expect("the slice has as many words")
}

/// One side's `sleeping` word.
#[derive(Clone, Debug)]
pub(crate) struct Sleeper {
    memory: SharedWords,
    word: usize,
}

impl Sleeper {
    pub(crate) fn server(memory: SharedWords) -> Self {
        Self { memory, word: SERVER_SLEEPING }
    }

    pub(crate) fn client(memory: SharedWords) -> Self {
        Self { memory, word: CLIENT_SLEEPING }
    }

    fn word(&self) -> &AtomicU64 {
        &self.memory.words()[self.word]
    }

    fn announce(&self) {
        // Relaxed: the SeqCst fence in `sleep` orders it.
        self.word().store(1, Ordering::Relaxed);
    }

    fn rise(&self) {
        // Relaxed: at worst the peer sends one wake-up too many.
        self.word().store(0, Ordering::Relaxed);
    }

    /// True if the peer sleeps and must be woken; then it counts as woken.
    fn must_be_woken(&self) -> bool {
        // Relaxed: the SeqCst fence in `wake` came before.
        if self.word().load(Ordering::Relaxed) == 0 {
            return false;
        }
        // A late zero does no harm: the wake-up that follows it ends whatever sleep it may have hidden.
        self.rise();
        true
    }
}

/// Sleeps on `sleepers`, by `block`, unless `has_work`; `None` if it has. What `block` waits for must last
/// until it is waited for, as bytes in a socket do.
pub(crate) fn sleep<'s, R>(
    sleepers: impl Iterator<Item = &'s Sleeper> + Clone,
    has_work: impl FnOnce() -> bool,
    block: impl FnOnce() -> R,
) -> Option<R> {
    sleepers.clone().for_each(Sleeper::announce);
    // SeqCst: between "I sleep" and the last look. Partner: the fence in `wake`.
    fence(Ordering::SeqCst);
    #[cfg(any(loom, shuttle))]
    let has_work = || !injected::NO_LAST_LOOK.is_injected() && has_work();
    let outcome = if has_work() { None } else { Some(block()) };
    sleepers.for_each(Sleeper::rise);
    outcome
}

/// Wakes the peer by `send` if it sleeps. After publishing.
pub(crate) fn wake(peer: &Sleeper, send: impl FnOnce()) {
    // SeqCst: between what was published and the look at the peer's word. Partner: the fence in `sleep`.
    fence(Ordering::SeqCst);
    if peer.must_be_woken() {
        send();
    }
}
