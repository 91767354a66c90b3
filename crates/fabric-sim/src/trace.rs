//! What happened, in order: as a number always, in words if wanted.
//!
//! Two runs of one seed have the same number: every event's time, its numbers and the bytes that it moved go
//! into it. Nothing that differs between processes does (addresses, process numbers, the machine's time).

use std::collections::VecDeque;

use farsight_base::prng::mix;
use farsight_base::{Line, RegionId, WORDS_PER_LINE};

use crate::pair::{Atomic, Content, Operation, Verb};
use crate::state::State;
use crate::watch::RegionPlace;

/// Events kept; the first ones go first, because a failure is at the end.
const KEPT_MAX: usize = 200_000;

/// Lines of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The region.
    pub region: RegionId,
    /// The first line.
    pub first_line: usize,
    /// How many.
    pub lines: usize,
}

/// One event in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its number: that of [`crate::Simulation::events`] when it happened.
    pub number: u64,
    /// When, in virtual time.
    pub at_ns: u64,
    /// Whose event it is: a process, a server by its address, or `-`.
    pub who: String,
    /// What happened.
    pub what: String,
    /// To which lines.
    pub place: Option<Place>,
}

/// Whose event it is; a name is looked up when somebody wants to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Pair(usize),
    Client(usize),
    Host(usize),
    Process(usize),
    /// The one that runs: a process, or nobody.
    Running(Option<usize>),
}

/// An event as it is kept.
#[derive(Debug)]
struct Kept {
    number: u64,
    at_ns: u64,
    words: Words,
}

/// An event's words.
#[derive(Debug)]
pub(crate) struct Words {
    who: Who,
    what: String,
    place: Option<Place>,
}

impl Words {
    pub(crate) fn new(who: Who, what: impl Into<String>) -> Self {
        Self { who, what: what.into(), place: None }
    }

    /// With the lines that it happened to, by their region's index.
    pub(crate) fn at(self, region: usize, first_line: usize, lines: usize) -> Self {
        let place = Place { region: RegionId(region as u32 + 1), first_line, lines };
        Self { place: Some(place), ..self }
    }
}

impl From<String> for Words {
    fn from(what: String) -> Self {
        Self::new(Who::Running(None), what)
    }
}

/// A verb that is sent.
pub(crate) fn sent(pair: usize, slot: usize, verb: &Verb, content: Content) -> Words {
    let words = |what: String| Words::new(Who::Pair(pair), format!("sends {what}, slot {slot}"));
    match (verb, content) {
        (Verb::Read, Content::Read(read)) => {
            words("READ".to_owned()).at(read.region, read.first_line, read.count)
        }
        (Verb::Read, _) => words("an abandoned READ".to_owned()),
        (Verb::Write { region, first, words: new }, _) => {
            let lines = (first % WORDS_PER_LINE + new.len()).div_ceil(WORDS_PER_LINE);
            words(format!("WRITE of {} words", new.len())).at(*region, first / WORDS_PER_LINE, lines)
        }
        (Verb::Atomic(atomic), _) => words(atomic.text()).at(atomic.region, atomic.word / WORDS_PER_LINE, 1),
        (Verb::Call(request), _) => words(format!("call of {} B", request.len())),
    }
}

impl Atomic {
    pub(crate) fn text(&self) -> String {
        match self.operation {
            Operation::CompareSwap { expected, new } => format!("compare_swap {expected:#x} to {new:#x}"),
            Operation::FetchAdd { delta } => format!("fetch_add {delta}"),
        }
    }
}

/// What a READ brought: the lines' versions, each with a star if that line says that it is changing.
pub(crate) fn brought(slot: usize, lines: &[Line]) -> String {
    let versions = lines.iter().map(|line| {
        let stamp = line.stamp();
        format!(" {}{}", stamp.version(), if stamp.is_changing() { "*" } else { "" })
    });
    format!("has READ, slot {slot}, versions{}", versions.collect::<String>())
}

/// A line that a processor stored to, and when the first and the last of its stores became visible.
#[derive(Debug)]
pub(crate) struct StoredLine {
    pub(crate) place: RegionPlace,
    pub(crate) line: usize,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// The trace of one simulation.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    kept: Option<VecDeque<Kept>>,
}

impl Trace {
    pub(crate) fn keep_words(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// Notes an event by its numbers, the first of which tells its kind.
    pub(crate) fn note<W: Into<Words>, const COUNT: usize>(
        &mut self,
        now_ns: u64,
        numbers: [u64; COUNT],
        words: impl FnOnce() -> W,
    ) {
        self.events += 1;
        self.hash = mix(numbers.into_iter().fold(self.hash ^ now_ns, stir));
        self.remark(now_ns, words);
    }

    /// Says something that follows from other events: in words alone.
    pub(crate) fn remark<W: Into<Words>>(&mut self, at_ns: u64, words: impl FnOnce() -> W) {
        if let Some(kept) = &mut self.kept {
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back(Kept { number: self.events, at_ns, words: words().into() });
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// True if words are kept: what only they need may be found out.
    pub(crate) fn keeps_words(&self) -> bool {
        self.kept.is_some()
    }
}

impl State {
    /// Tells of a store that becomes visible at `at_ns`; stores of one line are told as one.
    pub(crate) fn tell_store(
        &self,
        stored: &mut Vec<StoredLine>,
        place: RegionPlace,
        word: usize,
        at_ns: u64,
    ) {
        if !self.trace.keeps_words() {
            return;
        }
        let line = word / WORDS_PER_LINE;
        match stored.iter_mut().find(|known| (known.place, known.line) == (place, line)) {
            Some(known) => known.last_ns = known.last_ns.max(at_ns),
            None => stored.push(StoredLine { place, line, first_ns: at_ns, last_ns: at_ns }),
        }
    }

    /// Tells of lines that a processor stored to, of neighbours in one row.
    pub(crate) fn tell_stores(&mut self, mut stored: Vec<StoredLine>) {
        stored.sort_unstable_by_key(|stored| (stored.place.host, stored.place.region, stored.line));
        for lines in stored.chunk_by(|one, next| one.place == next.place && one.line + 1 == next.line) {
            let first_ns = lines.iter().map(|line| line.first_ns).min().unwrap_or_default();
            let last_ns = lines.iter().map(|line| line.last_ns).max().unwrap_or_default();
            let StoredLine { place, line, .. } = lines[0];
            self.trace.remark(first_ns, || {
                Words::new(Who::Host(place.host), format!("stores, visible within {} ns", last_ns - first_ns))
                    .at(place.region, line, lines.len())
            });
        }
    }

    /// The events kept, by time.
    pub(crate) fn told(&self) -> Vec<Told> {
        let kept = self.trace.kept.iter().flatten();
        let mut told: Vec<Told> = kept
            .map(|Kept { number, at_ns, words }| Told {
                number: *number,
                at_ns: *at_ns,
                who: self.name(words.who),
                what: words.what.clone(),
                place: words.place,
            })
            .collect();
        told.sort_by_key(|told| told.at_ns);
        told
    }

    fn name(&self, who: Who) -> String {
        let process = match who {
            Who::Host(host) => return self.hosts[host].address.clone(),
            Who::Client(client) => return format!("connection {client}"),
            Who::Pair(pair) => self.pairs[pair].opened_by,
            Who::Process(process) => Some(process),
            Who::Running(process) => process,
        };
        process.map_or_else(|| "-".to_owned(), |process| self.processes[process].name.clone())
    }
}

/// One number for some bytes.
pub(crate) fn digest_bytes(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        stir(hash, u64::from_le_bytes(word))
    })
}

/// One number for some lines.
pub(crate) fn digest_lines(lines: &[Line]) -> u64 {
    // Side by side, because each step of a chain waits for the one before.
    let mut chains = [0_u64; 4];
    for line in lines {
        for (index, word) in line.0.into_iter().enumerate() {
            chains[index % 4] = stir(chains[index % 4], word);
        }
    }
    chains.into_iter().fold(lines.len() as u64, stir)
}

/// Cheap, because every byte that moves goes through it; [`Trace::note`] scatters the result.
#[inline]
fn stir(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
