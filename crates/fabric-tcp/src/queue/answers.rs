//! Results as they arrive: lines to the slots that wait for them.
//!
//! Invariant: each line is what a frame under way expects there, or the queue breaks. Completions come in the
//! order of the frames, so they are those of the oldest frame whose verbs are not answered. A reply names its
//! call, and may come at any time behind the completions of its frame. A result whose slot holds another
//! posting by now is passed over.

use std::ops::Range;

use farsight_base::{LINE_BYTES, Line, WORDS_PER_LINE};
use farsight_fabric::FabricError;
use farsight_fabric::refusals::Refusal;

use super::{Content, Held, TcpQueue};
use crate::MESSAGE_BYTES_MAX;
use crate::batch::{Awaited, Sent};
use crate::frames::{Denial, Heading, NOT_PICKED, VerbKind, lines_of_bytes};

/// What arrives next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arriving {
    Heading,
    /// What the filtered READs of a frame found; then as many `lines` in all.
    Picks {
        frame: usize,
        executed: usize,
        denial: Option<Denial>,
        picks: usize,
        lines: u64,
    },
    /// Lines of a frame's READs from verb `next` on, before which `filtered` are filtered; then the words of
    /// its atomics.
    Verbs {
        frame: usize,
        next: usize,
        filtered: usize,
        executed: usize,
        denial: Option<Denial>,
    },
    /// The reply to a call of a frame.
    Reply {
        frame: usize,
        call: usize,
        length_bytes: usize,
    },
}

/// The first `executed` verbs of a frame, but for those on regions that are withdrawn: they yield nothing.
fn yielding(sent: &Sent, executed: usize, withdrawn: u16) -> impl Iterator<Item = &Awaited> {
    sent.verbs[..executed].iter().filter(move |verb| !verb.is_withdrawn(withdrawn))
}

/// Words and filtered READs' findings that the first `executed` verbs of a frame yield.
fn yields(sent: &Sent, executed: usize, withdrawn: u16) -> (u64, u64) {
    yielding(sent, executed, withdrawn).fold((0, 0), |(words, picks), verb| {
        (words + u64::from(verb.kind.is_atomic()), picks + u64::from(verb.kind == VerbKind::ReadFiltered))
    })
}

/// Lines that the first `executed` verbs of a frame yield, findings among them; `None` if one is impossible.
fn yields_lines(sent: &Sent, executed: usize, withdrawn: u16, picks: &[u8]) -> Option<u64> {
    let mut found = picks.iter();
    let mut lines = lines_of_bytes(picks.len());
    for verb in yielding(sent, executed, withdrawn) {
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
                Arriving::Picks { frame, executed, denial, picks, lines } => {
                    self.take_picks(frame, executed, denial, picks, lines)?
                }
                Arriving::Verbs { frame, next, filtered, executed, denial } => {
                    self.take_results(frame, next, filtered, executed, denial)
                }
                Arriving::Reply { frame, call, length_bytes } => self.take_answer(frame, call, length_bytes),
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn take_heading(&mut self) -> Result<bool, FabricError> {
        let Some(line) = self.inbox.next(1) else { return Ok(false) };
        let line = self.inbox.lines(line)[0];
        let heading = Heading::decode(&line);
        match heading.and_then(|heading| self.announced(heading)) {
            Some(arriving) => self.arriving = arriving,
            None => return Err(self.unintelligible("a heading", format!("{heading:?} of {line:x?}"))),
        }
        Ok(true)
    }

    /// What comes behind a heading; `None` if no frame under way expects it.
    #[inline]
    fn announced(&mut self, heading: Heading) -> Option<Arriving> {
        match heading {
            Heading::Completions { sequence, executed, denial, lines, words, picks, withdrawn, notice } => {
                let frame = self.under_way.iter().position(|sent| sent.awaits_verbs)?;
                let (sent, executed) = (&self.under_way[frame], executed as usize);
                let total = sent.verbs.len();
                let is_possible = if denial.is_none() { executed == total } else { executed < total };
                let is_expected = sequence == sent.sequence
                    && is_possible
                    && yields(sent, executed, withdrawn) == (u64::from(words), u64::from(picks));
                if is_expected {
                    self.withdrawn = withdrawn;
                    self.notice = self.notice.max(notice);
                }
                let (picks, lines) = (picks as usize, u64::from(lines));
                is_expected.then_some(Arriving::Picks { frame, executed, denial, picks, lines })
            }
            Heading::Reply { sequence, verb, length_bytes, notice } => {
                let frame = self.under_way.binary_search_by_key(&sequence, |sent| sent.sequence).ok()?;
                let (call, length_bytes) = (self.under_way[frame].call_of(verb)?, length_bytes as usize);
                let is_expected = length_bytes <= MESSAGE_BYTES_MAX;
                if is_expected {
                    self.notice = self.notice.max(notice);
                }
                is_expected.then_some(Arriving::Reply { frame, call, length_bytes })
            }
        }
    }

    /// Takes what filtered READs found. False if more has to arrive first.
    fn take_picks(
        &mut self,
        frame: usize,
        executed: usize,
        denial: Option<Denial>,
        count: usize,
        lines: u64,
    ) -> Result<bool, FabricError> {
        let Some(range) = self.inbox.next(lines_of_bytes(count)) else { return Ok(false) };
        self.picks.clear();
        self.picks.extend_from_slice(&self.inbox.bytes(range)[..count]);
        if yields_lines(&self.under_way[frame], executed, self.withdrawn, &self.picks) != Some(lines) {
            let got = format!("{lines} lines, and for filtered READs {:?}", self.picks);
            return Err(self.unintelligible("completions", got));
        }
        self.arriving = Arriving::Verbs { frame, next: 0, filtered: 0, executed, denial };
        Ok(true)
    }

    /// Takes READs' lines, and at last what atomics found. False if more has to arrive first.
    #[inline]
    fn take_results(
        &mut self,
        frame: usize,
        mut next: usize,
        mut filtered: usize,
        executed: usize,
        denial: Option<Denial>,
    ) -> bool {
        let sent = &self.under_way[frame];
        while next < executed {
            let verb = sent.verbs[next];
            if verb.kind.is_read() && !verb.is_withdrawn(self.withdrawn) {
                let (mut count, mut pick) = (verb.count as usize, None);
                if verb.kind == VerbKind::ReadFiltered {
                    pick = Some(self.picks[filtered]).filter(|pick| *pick != NOT_PICKED);
                    count = verb.filter.lines_back(pick.is_some());
                }
                let Some(lines) = self.inbox.next(count) else {
                    self.arriving = Arriving::Verbs { frame, next, filtered, executed, denial };
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
        let word_count = yields_words(sent, executed, self.withdrawn);
        let Some(words) = self.inbox.next(word_count.div_ceil(WORDS_PER_LINE)) else {
            self.arriving = Arriving::Verbs { frame, next, filtered, executed, denial };
            return false;
        };
        self.finish_verbs(frame, executed, denial, words);
        self.arriving = Arriving::Heading;
        true
    }

    /// The changes of a frame are done, and its READs have been taken in.
    fn finish_verbs(&mut self, frame: usize, executed: usize, denial: Option<Denial>, words: Range<usize>) {
        let sent = &mut self.under_way[frame];
        sent.awaits_verbs = false;
        self.verbs_under_way -= 1;
        let mut found = self.inbox.lines(words).iter().flat_map(|line: &Line| line.0);
        let withdrawn = self.withdrawn;
        for verb in yielding(sent, executed, withdrawn).filter(|verb| !verb.kind.is_read()) {
            let word = if verb.kind.is_atomic() { found.next().unwrap_or(0) } else { 0 };
            let held = &mut self.slots[verb.slot];
            if held.serial == verb.serial && verb.completes {
                (held.content, held.at) = (Content::Word, word);
                self.completed += 1;
            }
        }
        let rest = denial.map(|denial| (sent.verbs[executed..].to_vec(), denial));
        if withdrawn != 0 {
            let lost = sent.verbs[..executed].iter().filter(|verb| verb.is_withdrawn(withdrawn));
            let lost: Vec<Awaited> = lost.copied().collect();
            self.lose(&lost);
        }
        if let Some((rest, denial)) = rest {
            self.deny_rest(&rest, denial);
        }
        self.retire(frame);
    }

    /// Verbs on regions that are withdrawn, by what the server says.
    #[cold]
    fn lose(&mut self, lost: &[Awaited]) {
        for verb in lost {
            let held = &mut self.slots[verb.slot];
            if held.serial == verb.serial && verb.completes {
                // Complete at once: the batch has been rung.
                (held.content, held.batch) = (Content::Refused(Refusal::Withdrawn), self.batch - 1);
                self.completed += 1;
                let region = held.address.region;
                self.let_go(region);
            }
        }
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
                self.deny(verb.kind, address, length_bytes, denial.text().to_owned());
            }
            if held.serial == verb.serial {
                let content = Content::Refused(if index == 0 { Refusal::Denied } else { Refusal::Flushed });
                // Complete at once: the batch has been rung.
                let batch = self.batch - 1;
                self.slots[verb.slot] = Held { content, batch, ..held };
                self.completed += 1;
            }
        }
    }

    fn take_answer(&mut self, frame: usize, call: usize, length_bytes: usize) -> bool {
        let Some(lines) = self.inbox.next(lines_of_bytes(length_bytes)) else { return false };
        let sent = &mut self.under_way[frame];
        let call = sent.calls[call].take().expect("the heading named a call that waits");
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
        self.retire(frame);
        true
    }

    /// Forgets a frame if all of it is answered.
    fn retire(&mut self, frame: usize) {
        if self.under_way[frame].is_answered()
            && let Some(sent) = self.under_way.remove(frame)
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

fn yields_words(sent: &Sent, executed: usize, withdrawn: u16) -> usize {
    yielding(sent, executed, withdrawn).filter(|verb| verb.kind.is_atomic()).count()
}
