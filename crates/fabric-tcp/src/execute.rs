//! How a server executes a batch: what a network card does, by the processor.
//!
//! Invariant: no verb touches memory before its region, bounds and rights were checked under the grants that
//! are held at that moment. Verbs execute in posting order, each once, however often the client's slowness
//! interrupts them; calls follow.
//!
//! Protocol: the server checks all verbs and prefetches their lines. Then it executes the verbs, while the
//! lines are on their way. The first that is forbidden ends it: those before it are executed and answered,
//! and the queue ends. The server passes over verbs on a region that is withdrawn, and answers so.

use std::io;

use farsight_base::sync::{AtomicU64, Ordering, fence};
use farsight_base::words::{CopyMode, copy_lines, prefetch};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_fabric::RegionRights;
use farsight_fabric::filter::Filter;

use crate::BATCH_VERBS_MAX;
use crate::frames::{Batch, Denial, FRAME_REGIONS_MAX, Heading, NOT_PICKED, Verb, VerbKind, lines_of_bytes};
use crate::grants::{Granted, Grants, HeldGrants};
use crate::output::Output;
use farsight_fabric_net::Stream;

/// Lines prefetched ahead of the one that is copied: more would push each other out of the nearest caches.
const PREFETCH_LINES_MAX: usize = 4096;

/// Lines of the longest heading, with what filtered READs found.
const HEADING_LINES_MAX: usize = 1 + BATCH_VERBS_MAX / LINE_BYTES;

/// How far a batch has come.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// What the check found; `None` before it.
    surveyed: Option<Survey>,
    /// The verb that executes now, or the call.
    verb: usize,
    /// Verbs whose lines have been prefetched.
    asked: usize,
    /// Where its payload begins.
    payload_at: usize,
    /// Lines of a READ that are copied.
    lines_done: usize,
    /// What filtered READs found, and how many of them are executed.
    picks: Vec<u8>,
    filtered: usize,
    /// What atomics found.
    found: Vec<u64>,
    found_sent: bool,
}

/// What all verbs of a batch come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Survey {
    executed: usize,
    denial: Option<Denial>,
    lines: u32,
    words: u32,
    /// Filtered READs; their lines are not counted.
    filtered: u32,
    /// The batch's regions that are withdrawn, a bit each: verbs on them are passed over.
    withdrawn: u16,
}

/// What became of an attempt to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// All verbs are executed and answered.
    Done,
    /// The client has to read first.
    Blocked,
    /// A verb is forbidden; those before it are answered. The queue must end.
    Denied,
}

/// What the tokens of a batch grant, by their place in it.
type Regions<'g> = [Granted<'g>; FRAME_REGIONS_MAX];

impl Cursor {
    /// Executes the batch's verbs as far as `output` and the client take their results.
    pub(crate) fn run_verbs(
        &mut self,
        batch: &Batch<'_>,
        grants: &Grants,
        output: &mut Output,
        stream: &mut Stream,
    ) -> io::Result<Progress> {
        if batch.one_sided == 0 || self.found_sent {
            return Ok(Progress::Done);
        }
        let held = grants.hold();
        let regions = regions(batch, &held);
        let survey = if let Some(survey) = self.surveyed {
            survey
        } else {
            if output.room() < HEADING_LINES_MAX && !output.flush(stream)? {
                return Ok(Progress::Blocked);
            }
            let mut survey = survey(batch, &regions, &mut self.asked);
            if survey.filtered > 0 {
                survey.lines += pick(batch, &regions, survey.executed, &mut self.picks);
            }
            let Survey { executed, denial, lines, words, filtered, withdrawn } = survey;
            let (executed, sequence, picks) = (executed as u32, batch.header.sequence, filtered);
            let notice = output.notice;
            output.push(&Heading::Completions {
                sequence,
                executed,
                denial,
                lines,
                words,
                picks,
                withdrawn,
                notice,
            });
            output.push_bytes(&self.picks);
            *self.surveyed.insert(survey)
        };
        while self.verb < survey.executed {
            let verb = batch.verb(self.verb);
            if survey.withdrawn >> verb.region & 1 == 1 {
                self.payload_at += verb.payload_bytes();
                self.verb += 1;
                continue;
            }
            let Ok(words) = place(&verb, &regions) else {
                // The grant was taken away while the client was slow to read.
                return Ok(Progress::Denied);
            };
            if self.asked < survey.executed {
                // As far ahead as the check has gone, which prefetched the first lines.
                if let Ok(words) = place(&batch.verb(self.asked), &regions) {
                    prefetch_lines(words, usize::MAX);
                }
                self.asked += 1;
            }
            let is_done = match verb.kind {
                VerbKind::ReadPlain | VerbKind::ReadStamped => self.read(&verb, words, output, stream)?,
                VerbKind::ReadFiltered => {
                    let (_, filter) = batch.filter(self.payload_at, &verb);
                    self.read_filtered(filter, words, output, stream)?
                }
                _ => {
                    self.change(&verb, words, batch.payload(self.payload_at, &verb));
                    true
                }
            };
            if !is_done {
                return Ok(Progress::Blocked);
            }
            self.payload_at += verb.payload_bytes();
            self.verb += 1;
        }
        if output.room() < lines_of_bytes(self.found.len() * 8) && !output.flush(stream)? {
            return Ok(Progress::Blocked);
        }
        output.push_words(&self.found);
        self.found_sent = true;
        Ok(if survey.denial.is_some() { Progress::Denied } else { Progress::Done })
    }

    /// Copies the lines of a READ, as far as there is room.
    #[inline]
    fn read(
        &mut self,
        verb: &Verb,
        words: &[AtomicU64],
        output: &mut Output,
        stream: &mut Stream,
    ) -> io::Result<bool> {
        let mode = if verb.kind == VerbKind::ReadStamped { CopyMode::Stamped } else { CopyMode::Plain };
        let line_count = verb.count as usize;
        while self.lines_done < line_count {
            if output.room() == 0 && !output.flush(stream)? {
                return Ok(false);
            }
            let count = (line_count - self.lines_done).min(output.room());
            let range = self.lines_done * WORDS_PER_LINE..(self.lines_done + count) * WORDS_PER_LINE;
            copy_lines(&words[range], output.next(count), mode);
            self.lines_done += count;
        }
        self.lines_done = 0;
        Ok(true)
    }

    /// Copies what a filtered READ picked, if there is room for all of it.
    #[inline]
    fn read_filtered(
        &mut self,
        filter: Filter,
        words: &[AtomicU64],
        output: &mut Output,
        stream: &mut Stream,
    ) -> io::Result<bool> {
        let word = usize::from(self.picks[self.filtered]);
        let is_picked = filter.names(word);
        if output.room() < filter.lines_back(is_picked) && !output.flush(stream)? {
            return Ok(false);
        }
        let mut copy = |line: usize, count: usize| {
            let range = line * WORDS_PER_LINE..(line + count) * WORDS_PER_LINE;
            copy_lines(&words[range], output.next(count), CopyMode::Stamped);
        };
        if is_picked {
            copy(Filter::line_of(word), 1);
            copy(filter.part_of(word), usize::from(filter.part_lines));
        } else {
            copy(0, filter.filtered_lines());
        }
        self.filtered += 1;
        Ok(true)
    }

    /// Executes a WRITE or an atomic.
    fn change(&mut self, verb: &Verb, shared: &[AtomicU64], payload: &[u8]) {
        let operand = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        // AcqRel and Acquire of atomics: such a word hands over what was written before it. Partner: the
        // atomics and Acquire loads on the same word, of this server's threads and of other queues.
        let found = match verb.kind {
            VerbKind::CompareSwap => {
                let (expected, new) = (operand(0), operand(8));
                let outcome = shared[0].compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
                outcome.unwrap_or_else(|found| found)
            }
            VerbKind::FetchAdd => shared[0].fetch_add(operand(0), Ordering::AcqRel),
            _ => {
                // Release: what was written before is visible before. Partner: the Acquire fences of
                // `copy_lines`, or whatever orders a reader's two looks.
                fence(Ordering::Release);
                for (shared, word) in shared.iter().zip(payload.chunks_exact(8)) {
                    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    shared.store(word, Ordering::Relaxed);
                }
                return;
            }
        };
        self.found.push(found);
    }

    /// The next call of the batch: its number, and its request.
    pub(crate) fn next_call<'f>(&mut self, batch: &Batch<'f>) -> Option<(u32, &'f [u8])> {
        // Verbs are done, so that is where calls begin.
        let index = self.verb.max(batch.one_sided);
        if index >= batch.len() {
            return None;
        }
        let verb = batch.verb(index);
        let request = batch.payload(self.payload_at, &verb);
        self.payload_at += verb.payload_bytes();
        self.verb = index + 1;
        Some((index as u32, request))
    }

    /// True once the last call has been taken.
    pub(crate) fn is_at_end(&self, batch: &Batch<'_>) -> bool {
        self.verb.max(batch.one_sided) >= batch.len()
    }
}

fn regions<'g>(batch: &Batch<'_>, held: &'g HeldGrants<'_>) -> Regions<'g> {
    let mut regions = [Granted::Nothing; FRAME_REGIONS_MAX];
    for (region, token) in regions.iter_mut().zip(batch.tokens()) {
        *region = held.find(token);
    }
    regions
}

/// Asks for lines, for so many at most; returns how many those were.
#[inline(always)]
fn prefetch_lines(words: &[AtomicU64], most: usize) -> usize {
    let lines = words.chunks(WORDS_PER_LINE).take(most.min(PREFETCH_LINES_MAX));
    lines.map(|line| prefetch(&line[0])).count()
}

/// Checks every verb, and prefetches the first lines that those before the first forbidden one touch. Counts
/// the verbs for which it did so in `asked`.
fn survey(batch: &Batch<'_>, regions: &Regions<'_>, asked: &mut usize) -> Survey {
    let mut survey = Survey::default();
    let (mut payload_at, mut prefetched) = (0, 0);
    for index in 0..batch.one_sided {
        let verb = batch.verb(index);
        match place(&verb, regions) {
            Ok(words) => {
                let is_filtered = verb.kind == VerbKind::ReadFiltered;
                if prefetched < PREFETCH_LINES_MAX {
                    let filtered_lines = || batch.filter(payload_at, &verb).1.filtered_lines();
                    let most = if is_filtered { filtered_lines() } else { usize::MAX };
                    prefetched += prefetch_lines(words, most.min(PREFETCH_LINES_MAX - prefetched));
                    *asked += 1;
                }
                survey.filtered += u32::from(is_filtered);
                survey.lines += if verb.kind.is_read() && !is_filtered { verb.count } else { 0 };
                survey.words += u32::from(verb.kind.is_atomic());
            }
            Err(_) if matches!(regions[usize::from(verb.region)], Granted::Withdrawn) => {
                survey.withdrawn |= 1 << verb.region;
                *asked += usize::from(prefetched < PREFETCH_LINES_MAX);
            }
            Err(denial) => {
                survey.denial = Some(denial);
                break;
            }
        }
        survey.executed += 1;
        payload_at += verb.payload_bytes();
    }
    survey
}

/// Looks through the lines of the filtered READs among the first `executed` verbs, and prefetches the parts
/// of the words found. Returns the lines that all of it comes to, those of `picks` among them.
fn pick(batch: &Batch<'_>, regions: &Regions<'_>, executed: usize, picks: &mut Vec<u8>) -> u32 {
    let (mut payload_at, mut lines) = (0, 0);
    for index in 0..executed {
        let verb = batch.verb(index);
        if verb.kind == VerbKind::ReadFiltered
            && let Ok(words) = place(&verb, regions)
        {
            let (wanted, filter) = batch.filter(payload_at, &verb);
            let word = filter.pick(words.as_chunks().0, wanted);
            if let Some(word) = word {
                let part = &words[filter.part_of(word) * WORDS_PER_LINE..];
                prefetch_lines(part, usize::from(filter.part_lines));
            }
            lines += filter.lines_back(word.is_some());
            picks.push(word.map_or(NOT_PICKED, |word| word as u8));
        }
        payload_at += verb.payload_bytes();
    }
    (lines + lines_of_bytes(picks.len())) as u32
}

/// The words that a verb names, if it may touch them.
#[inline]
fn place<'g>(verb: &Verb, regions: &Regions<'g>) -> Result<&'g [AtomicU64], Denial> {
    let Granted::Words(words, rights) = regions[usize::from(verb.region)] else {
        return Err(Denial::NoGrant);
    };
    let (unit_bytes, word_count) = if verb.kind.is_read() {
        (LINE_BYTES as u64, verb.count as usize * WORDS_PER_LINE)
    } else {
        (8, verb.count as usize)
    };
    if !verb.kind.is_read() && rights != RegionRights::ReadWrite {
        return Err(Denial::ReadOnly);
    }
    if !verb.offset_bytes.is_multiple_of(unit_bytes) {
        return Err(Denial::Misaligned);
    }
    // The end cannot overflow: `first` is below 2^61, and `count` has 32 bits.
    let first = (verb.offset_bytes / 8) as usize;
    words.get(first..first + word_count).ok_or(Denial::Bounds)
}
