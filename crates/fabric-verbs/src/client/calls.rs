//! A client's calls: which wait, which are under way, which are answered.
//!
//! Invariant: at most [`CALLS_MAX`] requests are under way, one a window, and as many receives wait for their
//! replies. So each side's card has room for every message of an honest peer. A window is free again when its
//! request has been acknowledged *and* answered. A reply may overtake the acknowledgement, and until that
//! comes the card may send the request again. A reply is kept only if its sequence number is the one that its
//! slot waits for. A slot may be posted to again while an earlier call's reply is still on its way.
//!
//! Bounds: requests that find no window wait, at most one a slot; replies wait in their slot, at most one.

use std::collections::VecDeque;

use crate::call_frame::CallHeader;
use crate::{CALLS_MAX, SLOTS};

/// Windows as bits.
pub(crate) type Windows = u16;

const _: () = assert!(CALLS_MAX == Windows::BITS as usize);

#[derive(Debug)]
struct Waiting {
    slot: usize,
    sequence: u64,
    request: Vec<u8>,
    /// Its doorbell has rung.
    is_rung: bool,
}

/// The calls of one queue.
#[derive(Debug)]
pub(crate) struct Calls {
    queue: u64,
    waiting: VecDeque<Waiting>,
    /// Windows whose request is not acknowledged, and whose reply has not come.
    unacknowledged: Windows,
    unanswered: Windows,
    /// The sequence number of each window's request.
    under_way: [u64; CALLS_MAX],
    /// The sequence number that each slot waits for; zero: none.
    awaited: Box<[u64; SLOTS]>,
    answers: Vec<Vec<u8>>,
    last_sequence: u64,
}

impl Calls {
    pub(crate) fn new(queue: u64) -> Self {
        Self {
            queue,
            waiting: VecDeque::new(),
            unacknowledged: 0,
            unanswered: 0,
            under_way: [0; CALLS_MAX],
            awaited: Box::new([0; SLOTS]),
            answers: vec![Vec::new(); SLOTS],
            last_sequence: 0,
        }
    }

    pub(crate) fn queue(&self) -> u64 {
        self.queue
    }

    /// Keeps a request until there is a window for it after its doorbell.
    pub(crate) fn post(&mut self, slot: usize, request: &[u8]) {
        if self.awaited[slot] != 0 {
            self.waiting.retain(|waiting| waiting.slot != slot);
        }
        self.last_sequence += 1;
        self.awaited[slot] = self.last_sequence;
        let sequence = self.last_sequence;
        self.waiting.push_back(Waiting { slot, sequence, request: request.to_vec(), is_rung: false });
    }

    /// Lets go what was posted.
    pub(crate) fn ring(&mut self) {
        for waiting in self.waiting.iter_mut().rev().take_while(|waiting| !waiting.is_rung) {
            waiting.is_rung = true;
        }
    }

    /// The next request that may be sent, and its window, which is taken with it.
    pub(crate) fn next(&mut self) -> Option<(usize, CallHeader, Vec<u8>)> {
        let window = (self.unacknowledged | self.unanswered).trailing_ones() as usize;
        if window == CALLS_MAX || !self.waiting.front()?.is_rung {
            return None;
        }
        let Waiting { slot, sequence, request, .. } = self.waiting.pop_front()?;
        self.unacknowledged |= 1 << window;
        self.unanswered |= 1 << window;
        self.under_way[window] = sequence;
        Some((window, CallHeader { queue: self.queue, slot: slot as u32, sequence }, request))
    }

    /// The requests of these windows have arrived.
    pub(crate) fn acknowledge(&mut self, windows: Windows) {
        self.unacknowledged &= !windows;
    }

    /// Takes a reply. Returns the slot that it completes, `None` if that waits for another by now, or an
    /// error if no request under way has it coming.
    pub(crate) fn answer(
        &mut self,
        header: CallHeader,
        payload: &mut Vec<u8>,
    ) -> Result<Option<usize>, String> {
        let is_it =
            |window: &usize| self.unanswered >> window & 1 == 1 && self.under_way[*window] == header.sequence;
        let window = (0..CALLS_MAX).find(is_it);
        let slot = header.slot as usize;
        let (Some(window), true, true) = (window, header.queue == self.queue, slot < SLOTS) else {
            return Err(format!(
                "a reply to call {} of slot {slot}, which is not under way",
                header.sequence
            ));
        };
        self.unanswered &= !(1 << window);
        if self.awaited[slot] != header.sequence {
            return Ok(None);
        }
        self.awaited[slot] = 0;
        std::mem::swap(payload, &mut self.answers[slot]);
        Ok(Some(slot))
    }

    /// Moves the slot's reply into `into`.
    pub(crate) fn take(&mut self, slot: usize, into: &mut Vec<u8>) {
        std::mem::swap(&mut self.answers[slot], into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(slot: u32, sequence: u64) -> CallHeader {
        CallHeader { queue: 9, slot, sequence }
    }

    #[test]
    fn nothing_goes_before_its_doorbell_nor_beyond_the_windows() {
        let mut calls = Calls::new(9);
        for slot in 0..20 {
            calls.post(slot, &[slot as u8]);
        }
        assert!(calls.next().is_none(), "no doorbell rang");
        calls.ring();
        for slot in 0..CALLS_MAX {
            let (window, sent, request) = calls.next().expect("a window is free");
            assert_eq!(
                (window, sent, request),
                (slot, header(slot as u32, slot as u64 + 1), vec![slot as u8])
            );
        }
        assert!(calls.next().is_none(), "every window is taken");
        assert_eq!(calls.answer(header(3, 4), &mut vec![1]), Ok(Some(3)));
        assert!(calls.next().is_none(), "answered, but the card may send it again");
        calls.acknowledge(1 << 3);
        assert_eq!(calls.next().map(|(window, sent, _)| (window, sent)), Some((3, header(16, 17))));
        let mut reply = Vec::new();
        calls.take(3, &mut reply);
        assert_eq!(reply, [1]);
    }

    #[test]
    fn a_late_reply_frees_its_window_and_nothing_else() {
        let mut calls = Calls::new(9);
        calls.post(5, b"first");
        calls.ring();
        calls.next().expect("sent");
        calls.post(5, b"second");
        calls.ring();
        calls.next().expect("sent beside the first");
        assert_eq!(calls.answer(header(5, 1), &mut vec![1]), Ok(None), "the slot waits for the second");
        assert_eq!(calls.answer(header(5, 2), &mut vec![2]), Ok(Some(5)));
        for wrong in
            [header(5, 2), header(5, 0), header(999, 1), CallHeader { queue: 8, slot: 5, sequence: 2 }]
        {
            assert!(calls.answer(wrong, &mut Vec::new()).is_err(), "{wrong:?} is not under way");
        }
    }
}
