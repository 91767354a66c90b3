//! The classes of faults that a store of one-sided memory has to survive, and how often a run met each.
//!
//! Invariant: every class either names what shows that it was met, which is counted at run time, or says
//! where else it is covered or why it cannot occur. A run that counts nothing for a class that it should have
//! met has not tested it: [`Coverage::never_met`].
//!
//! The numbers are stable: 1 to 6 memory, 7 to 10 queue pairs, 11 to 15 calls, 16 to 20 clients, 21 to 25
//! servers, 26 to 29 network, 30 to 32 time, 37 to 40 control.

use farsight_fabric_sim::{Fault, Strikes};

use Evidence::{Seen, Struck};

/// Something that a scenario saw happen, besides the fabric's faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A GET or scan walked to a sibling, or fell back: its model was older than a split.
    StaleModel,
    /// A sub-model was trained again, or the whole model, while clients read.
    Retrained,
    /// A write's outcome stayed unknown.
    UnknownOutcome,
}

impl Mark {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::StaleModel, Self::Retrained, Self::UnknownOutcome];
}

/// What shows that a class was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The fabric's fault struck.
    Struck(Fault),
    /// A scenario saw it.
    Seen(Mark),
}

/// How a class is covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// By scenarios: each of these counts.
    By(&'static [Evidence]),
    /// By other tests: which.
    Elsewhere(&'static str),
    /// Not at all, because what it strikes does not exist: why.
    Nothing(&'static str),
}

/// A class of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its number, and a letter where a number has parts.
    pub id: &'static str,
    /// What it is.
    pub name: &'static str,
    /// How it is covered.
    pub cover: Cover,
}

/// What a run, or many, met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Faults of the fabric.
    pub strikes: Strikes,
    marks: [u64; Mark::ALL.len()],
}

impl Coverage {
    /// How often this was seen.
    #[must_use]
    pub fn seen(&self, mark: Mark) -> u64 {
        self.marks[mark as usize]
    }

    /// Counts what was seen.
    pub fn count(&mut self, mark: Mark, times: u64) {
        self.marks[mark as usize] += times;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.strikes.add(&other.strikes);
        for (own, other) in self.marks.iter_mut().zip(other.marks) {
            *own += other;
        }
    }

    /// How often this class was met; `None` if scenarios do not cover it.
    #[must_use]
    pub fn met(&self, class: &Class) -> Option<u64> {
        let Cover::By(evidence) = class.cover else { return None };
        Some(evidence.iter().map(|evidence| self.times(*evidence)).sum())
    }

    /// The classes that scenarios cover and this run did not meet.
    pub fn never_met(&self) -> impl Iterator<Item = &'static Class> + '_ {
        CLASSES.iter().filter(|class| self.met(class) == Some(0))
    }

    fn times(&self, evidence: Evidence) -> u64 {
        match evidence {
            Struck(fault) => self.strikes.of(fault),
            Seen(mark) => self.seen(mark),
        }
    }
}

const fn by(id: &'static str, name: &'static str, evidence: &'static [Evidence]) -> Class {
    Class { id, name, cover: Cover::By(evidence) }
}

const fn nothing(id: &'static str, name: &'static str, why: &'static str) -> Class {
    Class { id, name, cover: Cover::Nothing(why) }
}

const fn elsewhere(id: &'static str, name: &'static str, tests: &'static str) -> Class {
    Class { id, name, cover: Cover::Elsewhere(tests) }
}

/// The classes.
pub const CLASSES: &[Class] = &[
    by("1", "READ torn between lines, which come in any order", &[Struck(Fault::SpreadRead)]),
    by(
        "7",
        "READs executed and completed in another order",
        &[Struck(Fault::SlowVerb), Struck(Fault::LateCompletion)],
    ),
    by("9", "a queue pair that breaks in the middle of a batch", &[Struck(Fault::BrokenQueue)]),
    by("11", "a call delayed or lost", &[Struck(Fault::SlowCall), Struck(Fault::LostCall)]),
    by("12", "replies out of order", &[Struck(Fault::SlowReply)]),
    elsewhere(
        "12b",
        "a call doubled",
        "calls are reliable by contract; planted.rs doubles them and must be found",
    ),
    by("13", "a reply lost after its call was executed", &[Struck(Fault::LostReply)]),
    by("15", "a server that stops for a while", &[Struck(Fault::PausedServer), Struck(Fault::SlowWriter)]),
    by("16", "a client that dies between any two verbs", &[Struck(Fault::KilledClient)]),
    nothing("17", "death between append to a log and update of an index", "there is no log yet"),
    by("18", "a client that stops for a while and goes on", &[Struck(Fault::PausedClient)]),
    by("19", "a model or cache older than a split, a reuse, a retraining", &[Seen(Mark::StaleModel)]),
    nothing("20", "an owner that dies while it invalidates", "no cache needs an invalidation"),
    nothing("22", "a log's tail lost with the power", "there is no log yet"),
    nothing("24", "two of three replicas down", "there are no replicas yet"),
    nothing("31", "a lease that expires under its holder", "nothing is leased yet"),
    nothing("37", "the control store down", "there is no control store yet"),
    nothing("38", "its leader changes", "there is no control store yet"),
    nothing("39", "gaps in what it tells", "there is no control store yet"),
    by("40", "retraining under any of these", &[Seen(Mark::Retrained)]),
];
