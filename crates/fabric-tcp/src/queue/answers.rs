//! Results as they arrive: lines to the slots that wait for them.
//!
//! Invariant: each line is what the oldest unanswered frame expects there, or the queue breaks. A result
//! whose slot holds another posting by now is passed over.

use std::ops::Range;

use farsight_base::{LINE_BYTES, Line, WORDS_PER_LINE};
use farsight_fabric::FabricError;

use super::{Content, Held, TcpQueue};
use crate::MESSAGE_BYTES_MAX;
use crate::batch::{Awaited, Sent};
use crate::frames::{Denial, Heading, NOT_PICKED, VerbKind, lines_of_bytes};

/// What arrives next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arriving {
    Heading,
    /// What the oldest frame's filtered READs found; then as many `lines` in all.
    Picks {
        executed: usize,
        denial: Option<Denial>,
        picks: usize,
        lines: u64,
    },
    /// Lines of the oldest frame's READs from verb `next` on, before which `filtered` are filtered, then the
    /// words of its atomics.
    Verbs {
        next: usize,
        filtered: usize,
        executed: usize,
        denial: Option<Denial>,
    },
    /// The reply to the oldest frame's next call.
    Reply {
        length_bytes: usize,
    },
}

/// Words and filtered READs' findings that the first `executed` verbs of a frame yield.
fn yields(sent: &Sent, executed: usize) -> (u64, u64) {
    sent.verbs[..executed].iter().fold((0, 0), |(words, picks), verb| {
        (words + u64::from(verb.kind.is_atomic()), picks + u64::from(verb.kind == VerbKind::ReadFiltered))
    })
}

/// Lines that the first `executed` verbs of a frame yield, findings among them; `None` if one is impossible.
fn yields_lines(sent: &Sent, executed: usize, picks: &[u8]) -> Option<u64> {
    let mut found = picks.iter();
    let mut lines = lines_of_bytes(picks.len());
    for verb in &sent.verbs[..executed] {
        if verb.kind == VerbKind::ReadFiltered {
            let word = *found.next()?;
            let is_picked = verb.filter.names(usize::from(word));
            if !is_picked && word != NOT_PICKED {
                return None;
            }
            lines += verb.filter.lines_back(is_picked);
        } else if verb.kind.is_read() {
            lines += verb.count as usize;
        }
    }
    Some(lines as u64)
}

impl TcpQueue {
    /// Takes in what has arrived whole.
    pub(super) fn parse(&mut self) -> Result<(), FabricError> {
        loop {
            let goes_on = match self.arriving {
                Arriving::Heading => self.take_heading()?,
                Arriving::Picks { executed, denial, picks, lines } => {
                    self.take_picks(executed, denial, picks, lines)?
                }
                Arriving::Verbs { next, filtered, executed, denial } => {
                    self.take_results(next, filtered, executed, denial)
                }
                Arriving::Reply { length_bytes } => self.take_answer(length_bytes),
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn take_heading(&mut self) -> Result<bool, FabricError> {
        let Some(line) = self.inbox.next(1) else { return Ok(false) };
        let line = self.inbox.lines(line)[0];
        let Some(oldest) = self.under_way.front() else {
            return Err(self.unintelligible("a heading", "one that answers nothing".to_owned()));
        };
        let heading = Heading::decode(&line);
        self.arriving = match heading {
            Some(Heading::Completions { sequence, executed, denial, lines, words, picks })
                if oldest.awaits_verbs && sequence == oldest.sequence =>
            {
                let (executed, total) = (executed as usize, oldest.verbs.len());
                let is_possible = if denial.is_none() { executed == total } else { executed < total };
                if !is_possible || yields(oldest, executed) != (u64::from(words), u64::from(picks)) {
                    return Err(self.unintelligible("completions", format!("{heading:?}")));
                }
                Arriving::Picks { executed, denial, picks: picks as usize, lines: u64::from(lines) }
            }
            Some(Heading::Reply { sequence, verb, length_bytes })
                if !oldest.awaits_verbs
                    && sequence == oldest.sequence
                    && verb as usize == oldest.verbs.len() + oldest.calls_done
                    && length_bytes as usize <= MESSAGE_BYTES_MAX =>
            {
                Arriving::Reply { length_bytes: length_bytes as usize }
            }
            _ => return Err(self.unintelligible("a heading", format!("{heading:?} of {line:x?}"))),
        };
        Ok(true)
    }

    /// Takes what filtered READs found. False if more has to arrive first.
    fn take_picks(
        &mut self,
        executed: usize,
        denial: Option<Denial>,
        count: usize,
        lines: u64,
    ) -> Result<bool, FabricError> {
        let Some(range) = self.inbox.next(lines_of_bytes(count)) else { return Ok(false) };
        self.picks.clear();
        self.picks.extend_from_slice(&self.inbox.bytes(range)[..count]);
        let oldest = self.under_way.front().expect("a frame is being answered");
        if yields_lines(oldest, executed, &self.picks) != Some(lines) {
            let got = format!("{lines} lines, and for filtered READs {:?}", self.picks);
            return Err(self.unintelligible("completions", got));
        }
        self.arriving = Arriving::Verbs { next: 0, filtered: 0, executed, denial };
        Ok(true)
    }

    /// Takes READs' lines, and at last what atomics found. False if more has to arrive first.
    #[inline]
    fn take_results(
        &mut self,
        mut next: usize,
        mut filtered: usize,
        executed: usize,
        denial: Option<Denial>,
    ) -> bool {
        let sent = self.under_way.front().expect("a frame is being answered");
        while next < executed {
            let verb = sent.verbs[next];
            if verb.kind.is_read() {
                let (mut count, mut pick) = (verb.count as usize, None);
                if verb.kind == VerbKind::ReadFiltered {
                    pick = Some(self.picks[filtered]).filter(|pick| *pick != NOT_PICKED);
                    count = verb.filter.lines_back(pick.is_some());
                }
                let Some(lines) = self.inbox.next(count) else {
                    self.arriving = Arriving::Verbs { next, filtered, executed, denial };
                    return false;
                };
                filtered += usize::from(verb.kind == VerbKind::ReadFiltered);
                let held = &mut self.slots[verb.slot];
                if held.serial == verb.serial {
                    (held.content, held.at) = (Content::Staged, lines.start as u64);
                    (held.line_count, held.pick) = (count as u32, pick);
                    self.staged += 1;
                    self.completed += 1;
                }
            }
            next += 1;
        }
        let word_count = yields_words(sent, executed);
        let Some(words) = self.inbox.next(word_count.div_ceil(WORDS_PER_LINE)) else {
            self.arriving = Arriving::Verbs { next, filtered, executed, denial };
            return false;
        };
        self.finish_verbs(executed, denial, words);
        self.arriving = Arriving::Heading;
        true
    }

    /// The changes of the oldest frame are done, and its READs have been taken in.
    fn finish_verbs(&mut self, executed: usize, denial: Option<Denial>, words: Range<usize>) {
        let sent = self.under_way.front_mut().expect("a frame is being answered");
        sent.awaits_verbs = false;
        self.verbs_under_way -= 1;
        let mut found = self.inbox.lines(words).iter().flat_map(|line: &Line| line.0);
        for verb in sent.verbs[..executed].iter().filter(|verb| !verb.kind.is_read()) {
            let word = if verb.kind.is_atomic() { found.next().unwrap_or(0) } else { 0 };
            let held = &mut self.slots[verb.slot];
            if held.serial == verb.serial && verb.completes {
                (held.content, held.at) = (Content::Word, word);
                self.completed += 1;
            }
        }
        if let Some(denial) = denial {
            let rest: Vec<Awaited> = sent.verbs[executed..].to_vec();
            self.deny_rest(&rest, denial);
        }
        self.retire();
    }

    /// What the server did not execute: the verb that it denied, and those behind it.
    #[cold]
    fn deny_rest(&mut self, rest: &[Awaited], denial: Denial) {
        for (index, verb) in rest.iter().enumerate() {
            let held = self.slots[verb.slot];
            if index == 0 {
                let Held { address, line_count, .. } = held;
                let length_bytes =
                    if verb.kind.is_read() { u64::from(line_count) * LINE_BYTES as u64 } else { 8 };
                // The batches rung so far may be looked at; no other begins.
                let reason = denial.text().to_owned();
                self.deny(self.batch - 1, verb.kind, address, length_bytes, reason);
            }
            if held.serial == verb.serial {
                let content = if index == 0 { Content::Denied } else { Content::Flushed };
                // Complete at once: the batch has been rung.
                let batch = self.batch - 1;
                self.slots[verb.slot] = Held { content, batch, ..held };
                self.completed += 1;
            }
        }
    }

    fn take_answer(&mut self, length_bytes: usize) -> bool {
        let Some(lines) = self.inbox.next(lines_of_bytes(length_bytes)) else { return false };
        let sent = self.under_way.front_mut().expect("a frame is being answered");
        let call = sent.calls[sent.calls_done];
        sent.calls_done += 1;
        let held = &mut self.slots[call.slot];
        if held.serial == call.serial {
            held.content = Content::Reply;
            self.completed += 1;
            let reply = &mut self.replies[call.slot];
            reply.clear();
            reply.extend_from_slice(&self.inbox.bytes(lines)[..length_bytes]);
        }
        self.arriving = Arriving::Heading;
        self.retire();
        true
    }

    /// Forgets the oldest frame if all of it is answered.
    fn retire(&mut self) {
        let is_answered = |sent: &Sent| !sent.awaits_verbs && sent.calls_done == sent.calls.len();
        if self.under_way.front().is_some_and(is_answered)
            && let Some(sent) = self.under_way.pop_front()
        {
            self.open.recycle(sent);
        }
    }

    /// Copies out of the inbox what slots still refer to.
    #[cold]
    pub(super) fn copy_out(&mut self) {
        for (slot, held) in self.slots.iter_mut().enumerate() {
            if held.content == Content::Staged {
                let (first, copy) = (held.at as usize, &mut self.copied[slot]);
                copy.clear();
                copy.extend_from_slice(self.inbox.lines(first..first + held.line_count as usize));
                held.content = Content::Copied;
            }
        }
        self.staged = 0;
    }
}

fn yields_words(sent: &Sent, executed: usize) -> usize {
    sent.verbs[..executed].iter().filter(|verb| verb.kind.is_atomic()).count()
}
