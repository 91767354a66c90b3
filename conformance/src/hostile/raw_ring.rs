//! A queue's two rings, written and read by hand from the documented bytes.

use farsight_base::sync::Ordering;
use farsight_fabric_shm::raw_client::RawQueue;

/// Words of a ring.
const RING_WORDS: u64 = 32 << 10;
const REQUESTS: u64 = 512;
pub(super) const REQUEST_TAIL: usize = 0;
pub(super) const REQUEST_HEAD: usize = 16;
pub(super) const REPLY_TAIL: usize = 32;
pub(super) const REPLY_HEAD: usize = 48;
pub(super) const SERVER_SLEEPING: usize = 64;
pub(super) const CLIENT_SLEEPING: usize = 80;

/// The client's side of a queue.
pub(super) struct RawRing {
    pub(super) queue: RawQueue,
    tail: u64,
}

impl RawRing {
    pub(super) fn new(queue: RawQueue) -> Self {
        Self { queue, tail: 0 }
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.queue.words[word % self.queue.words.len()].store(value, Ordering::Relaxed);
    }

    fn word(&self, word: usize) -> u64 {
        self.queue.words[word].load(Ordering::Acquire)
    }

    /// Writes a frame that announces `announced_bytes` and publishes all of `payload`. False if the ring is
    /// full.
    pub(super) fn push(&mut self, payload: &[u8], announced_bytes: u64) -> bool {
        let words = 2 + payload.len().div_ceil(8) as u64;
        if self.tail.wrapping_sub(self.word(REQUEST_HEAD)) + words > RING_WORDS {
            return false;
        }
        let body = payload.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for (offset, word) in [announced_bytes, 1].into_iter().chain(body).enumerate() {
            self.set((REQUESTS + (self.tail + offset as u64) % RING_WORDS) as usize, word);
        }
        self.tail += words;
        self.queue.words[REQUEST_TAIL].store(self.tail, Ordering::Release);
        true
    }

    /// Gives all replies back unread.
    pub(super) fn discard_replies(&self) {
        self.queue.words[REPLY_HEAD].store(self.word(REPLY_TAIL), Ordering::Release);
    }
}
