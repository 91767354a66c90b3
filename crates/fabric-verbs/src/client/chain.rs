//! Work as the card takes it: a chain, posted with one call.
//!
//! Invariant: works stand in posting order. READs that are done again stand in a [`Round`] of their own,
//! which is posted when the round before is complete. So a READ's second begins after its first has ended,
//! and its third after its second. Fenced works in one chain would say the same to the card. But Soft-RoCE
//! forgets to go on after a fence when its last READ completes at the wrong moment (seen on Linux 6.1).

use std::io;

use farsight_fabric::Meters;

use crate::ibv::ffi::{self, Piece, SendWork};
use crate::ibv::pair::RcPair;

/// A READ that is done three times.
#[derive(Clone, Copy, Debug)]
struct Again {
    work: SendWork,
    /// Where the lines of the first READ land.
    piece: Piece,
    /// Bytes from there to where the next READ's land.
    stride_bytes: u64,
}

impl Again {
    /// Bytes of the READs before and after: of a single line the stamp alone counts.
    fn stamp_bytes(&self) -> u32 {
        let one_line = farsight_base::LINE_BYTES as u32;
        if self.piece.length_bytes == one_line { 8 } else { self.piece.length_bytes }
    }
}

/// READs that are done again.
#[derive(Debug)]
pub(super) struct Round {
    /// Which copy this round fetches: the second (1) or the third (2).
    copy: u64,
    reads: Vec<Again>,
}

// SAFETY: as for `Chain`: what its works point to is written right before a post.
unsafe impl Send for Round {}

impl Round {
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    /// What it costs beside the READs that were posted. Those count once, at their doorbell, with all of
    /// their bytes; so what comes on top is stamps, in this round as in the other.
    pub(super) fn meters(&self) -> Meters {
        let reads = self.reads.len() as u64;
        let read_bytes = self.reads.iter().map(|read| u64::from(read.stamp_bytes())).sum();
        Meters {
            reads,
            read_bytes,
            doorbells: 1,
            check_reads: reads,
            check_read_bytes: read_bytes,
            check_doorbells: 1,
            ..Meters::default()
        }
    }
}

/// Work that was not posted yet.
#[derive(Debug, Default)]
pub(super) struct Chain {
    works: Vec<SendWork>,
    pieces: Vec<Piece>,
    again: Vec<Again>,
    posted: usize,
}

// SAFETY: the pointers in works are written right before a post and read by that post alone.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) fn push(&mut self, work: SendWork, piece: Piece) {
        self.works.push(work);
        self.pieces.push(piece);
    }

    /// A READ into `piece`, and again into the two places of its size that follow at `stride_bytes`.
    pub(super) fn push_stamped(&mut self, work: SendWork, piece: Piece, stride_bytes: u64) {
        let again = Again { work, piece, stride_bytes };
        self.push(work, Piece { length_bytes: again.stamp_bytes(), ..piece });
        self.again.push(again);
    }

    /// The READs to do again once what was pushed is complete, if there are any.
    pub(super) fn take_round(&mut self) -> Option<Round> {
        let reads = std::mem::take(&mut self.again);
        (!reads.is_empty()).then_some(Round { copy: 1, reads })
    }

    /// Pushes the works of a round. Returns what follows it.
    pub(super) fn push_round(&mut self, round: Round) -> Option<Round> {
        let Round { copy, reads } = round;
        for read in &reads {
            let address = read.piece.address + copy * read.stride_bytes;
            let length_bytes = if copy == 1 { read.piece.length_bytes } else { read.stamp_bytes() };
            self.push(read.work, Piece { address, length_bytes, ..read.piece });
        }
        (copy == 1).then_some(Round { copy: 2, reads })
    }

    /// Works that were not posted yet.
    pub(super) fn left(&self) -> usize {
        self.works.len() - self.posted
    }

    /// Posts the next `count` works with one call, the last of them signalled.
    ///
    /// # Safety
    /// The memory of their pieces stays registered until a completion of the last of them was polled, or
    /// `pair` is dropped.
    pub(super) unsafe fn post(&mut self, pair: &RcPair, count: usize) -> io::Result<()> {
        let range = self.posted..self.posted + count;
        self.posted = range.end;
        let works = &mut self.works[range.clone()];
        let mut next = std::ptr::null_mut();
        for (work, piece) in works.iter_mut().zip(&mut self.pieces[range]).rev() {
            (work.pieces, work.piece_count, work.next) = (piece, 1, next);
            if next.is_null() {
                work.flags |= ffi::SEND_SIGNALED;
            }
            next = work;
        }
        // SAFETY: the chain runs through works and pieces of this value, which nothing moves before the call
        // returns; their memory is the caller's promise.
        unsafe { pair.post_send(next) }
    }

    /// Forgets what was posted.
    pub(super) fn clear(&mut self) {
        self.works.clear();
        self.pieces.clear();
        self.again.clear();
        self.posted = 0;
    }
}
