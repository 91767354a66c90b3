//! The classes of faults that a store of one-sided memory has to survive, and how often a run met each.
//!
//! Invariant: every class either names what shows that it was met, which is counted at run time, or says
//! where else it is covered or why it cannot occur. A run that counts nothing for a class that it should have
//! met has not tested it: [`Coverage::never_met`]. What is met once in many thousand runs is counted alone.
//!
//! The numbers are stable: 1 to 6 memory, 7 to 10 queue pairs, 11 to 15 calls, 16 to 20 clients. Then 21 to
//! 25 servers, 26 to 29 network, 30 to 32 time, 33 to 36 disks, 37 to 40 control.

use farsight_fabric_sim::{Fault, Strikes};

use Evidence::{Seen, Struck};

macro_rules! marks {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Something that a scenario saw happen, besides the fabric's faults.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mark {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mark {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];
        }
    };
}

marks! {
    /// A GET or scan walked to a sibling, or fell back: its model was older than a split.
    StaleModel,
    /// A sub-model was trained again, or the whole model, while clients read.
    Retrained,
    /// A write's outcome stayed unknown.
    UnknownOutcome,
    /// A write found no room.
    Full,
    /// A client met another life of its server.
    OtherEpoch,
    /// A line's version or incarnation began again from zero.
    Wrapped,
    /// A client of another format was refused.
    OtherFormat,
    /// A write was refused because the table's versions had ended.
    VersionsEnded,
    /// A server put right a leaf that memory had lost a bit of.
    Scrubbed,
    /// A compute node of a pool found itself fenced: others had taken it for dead.
    Fenced,
    /// Of two trainers that published one group, one lost.
    LostPublication,
    /// Blocks of a compute node that had ended were given back.
    Reclaimed,
    /// An empty leaf was merged into its left neighbour.
    Merged,
    /// An answer was of two writes, which a flipped bit hid from the reader.
    HiddenTear,
    /// A table was dropped, renamed or swapped.
    NamesChanged,
    /// A client found its table gone.
    TableGone,
    /// A compute node wrote for others.
    Proxied,
    /// Of those writes, one for which a later one of the same key stood.
    Combined,
    /// A compute node said where a key stands, or what it holds.
    FoundForOthers,
    /// A GET was answered by a value that its compute node kept.
    ValueHit,
    /// A write, or a split, waited until nobody gave out a value that was kept.
    Closing,
    /// A writer, or a split, that waited for those who keep values instead of their leases.
    Recall,
    /// A server found its tables on its disk.
    Recovered,
    /// A server died between a write to its log and what follows from that.
    EndedInFlight,
    /// The power of a server was cut while its log was not durable.
    TailLost,
    /// An operation of a disk failed.
    DiskFailed,
    /// A disk was full.
    DiskFull,
    /// A sync took longer than any usual one.
    SlowSync,
    /// A start failed, and was done again.
    StartFailed,
    /// A round of snapshots was made.
    Snapshot,
    /// A segment of the log was removed.
    SegmentRemoved,
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
    /// By scenarios, but too rarely for many seeds to be held to it: each of these counts.
    Counted(&'static [Evidence]),
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
        let (Cover::By(evidence) | Cover::Counted(evidence)) = class.cover else { return None };
        Some(evidence.iter().map(|evidence| self.times(*evidence)).sum())
    }

    /// The classes that many seeds are held to and this run did not meet.
    pub fn never_met(&self) -> impl Iterator<Item = &'static Class> + '_ {
        let held = CLASSES.iter().filter(|class| matches!(class.cover, Cover::By(_)));
        held.filter(|class| self.met(class) == Some(0))
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

const fn counted(id: &'static str, name: &'static str, evidence: &'static [Evidence]) -> Class {
    Class { id, name, cover: Cover::Counted(evidence) }
}

const fn nothing(id: &'static str, name: &'static str, why: &'static str) -> Class {
    Class { id, name, cover: Cover::Nothing(why) }
}

const fn elsewhere(id: &'static str, name: &'static str, tests: &'static str) -> Class {
    Class { id, name, cover: Cover::Elsewhere(tests) }
}

/// The classes.
pub const CLASSES: &[Class] = &[
    by(
        "1",
        "a READ torn: lines of different moments, in any order; words of one line",
        &[Struck(Fault::SpreadRead), Struck(Fault::TornLine)],
    ),
    by("2", "a WRITE torn", &[Struck(Fault::TornWrite)]),
    elsewhere(
        "3",
        "eight bytes whole only where they are aligned",
        "fabric_sim.rs: other addresses are refused",
    ),
    by("4", "a READ that overtakes a WRITE", &[Struck(Fault::OvertakenWrite)]),
    elsewhere(
        "5",
        "a card's atomic beside the processor's",
        "litmus programs: words that engines swap, no processor stores",
    ),
    elsewhere(
        "6",
        "a WRITE that completes before it is visible",
        "litmus programs: excluded by contract, and they find such a card",
    ),
    by("7", "READs executed and completed in another order than posted", &[Struck(Fault::OvertakenRead)]),
    by("8", "WRITEs behind READs, without a fence", &[Struck(Fault::EarlyWrite)]),
    by("9a", "a queue pair that breaks in the middle of a batch", &[Struck(Fault::BrokenQueue)]),
    by("9b", "a READ executed twice, in part each time", &[Struck(Fault::SpreadRead)]),
    elsewhere(
        "9c",
        "an atomic executed twice",
        "excluded by contract: a card answers what comes twice from what it remembers",
    ),
    nothing(
        "10",
        "a completion queue that overflows",
        "a queue pair has as many places as slots, and one a slot",
    ),
    by("11a", "a call that comes late", &[Struck(Fault::SlowCall)]),
    by("11b", "a call that is lost", &[Struck(Fault::LostCall)]),
    elsewhere(
        "12a",
        "a call that comes twice",
        "excluded by contract; injected.rs lets it happen, and finds it",
    ),
    by("12b", "replies in another order", &[Struck(Fault::SlowReply)]),
    by("12c", "a frame without its end", &[Struck(Fault::TruncatedRequest), Struck(Fault::TruncatedReply)]),
    by("13", "a reply lost after its call was executed", &[Struck(Fault::LostReply)]),
    by("14", "an answer for a slot that is used again", &[Struck(Fault::StaleReply)]),
    by(
        "15",
        "a server that is slow, or stops for a while",
        &[Struck(Fault::PausedServer), Struck(Fault::SlowWriter)],
    ),
    by("16a", "a client that dies between any two verbs", &[Struck(Fault::KilledClient)]),
    by("16b", "blocks that a compute node leaves behind, which are given back", &[Seen(Mark::Reclaimed)]),
    by("17", "death between a log's append and an index's update", &[Seen(Mark::EndedInFlight)]),
    by(
        "18",
        "a client that stops for longer than anybody waits, and goes on",
        &[Struck(Fault::PausedClient)],
    ),
    by("19", "a model or cache older than a split, a reuse, a retraining", &[Seen(Mark::StaleModel)]),
    nothing(
        "20",
        "an owner that dies while it invalidates",
        "nobody owns what others keep: a writer that ends leaves leases, which end by themselves",
    ),
    by("21", "a server that dies with its memory", &[Struck(Fault::CrashedServer)]),
    by("22", "a log's tail lost with the power", &[Seen(Mark::TailLost)]),
    by(
        "23a",
        "a server's next epoch, met with what was learned in the one before",
        &[Seen(Mark::OtherEpoch)],
    ),
    by("23b", "a dead server whose card goes on answering", &[Struck(Fault::FrozenServer)]),
    nothing("24", "two of three replicas down", "a pool needs more than half of its nodes"),
    by("25a", "full memory", &[Seen(Mark::Full)]),
    by("25b", "a flipped bit, on its way", &[Struck(Fault::FlippedBit)]),
    by("25c", "a flipped bit, in memory", &[Struck(Fault::DecayedBit), Seen(Mark::Scrubbed)]),
    counted("25d", "a flipped bit that hides a torn value", &[Seen(Mark::HiddenTear)]),
    by("26", "a server that nobody reaches", &[Struck(Fault::CutServer)]),
    by("27a", "a network cut one way", &[Struck(Fault::CutToServer), Struck(Fault::CutToProgram)]),
    by("27b", "a network cut for some", &[Struck(Fault::CutProgram)]),
    by("28", "a link that comes and goes", &[Struck(Fault::FlappingLink)]),
    by("29", "a server a hundred times as slow", &[Struck(Fault::GrayServer)]),
    by("30a", "clocks that drift by a tenth", &[Struck(Fault::DriftingClock)]),
    by("30b", "clocks that leap", &[Struck(Fault::LeapingClock)]),
    by("31", "a lease that ends under its holder", &[Seen(Mark::Fenced)]),
    by("32a", "counters that begin again", &[Seen(Mark::Wrapped)]),
    by("32b", "versions that end", &[Seen(Mark::VersionsEnded)]),
    by(
        "33",
        "an operation of a disk that fails, also a sync, also of a start",
        &[Seen(Mark::DiskFailed), Seen(Mark::StartFailed)],
    ),
    by("34", "a full disk", &[Seen(Mark::DiskFull)]),
    by("35", "a disk that takes seconds", &[Seen(Mark::SlowSync)]),
    elsewhere(
        "36",
        "a flipped bit on a disk",
        "damage in crates/durability/tests, and repairs.rs of the node",
    ),
    elsewhere("37", "the control store down", "a real etcd in crates/cluster/tests"),
    elsewhere("38", "a new leader of the control store", "a real etcd in crates/cluster/tests"),
    elsewhere("39", "gaps in what the control store tells", "a real etcd in crates/cluster/tests"),
    by(
        "40a",
        "training under any of these",
        &[Seen(Mark::Retrained), Seen(Mark::LostPublication), Seen(Mark::Merged)],
    ),
    by("40b", "a client of another version", &[Seen(Mark::OtherFormat)]),
    by(
        "40c",
        "tables dropped, renamed and swapped under their clients",
        &[Seen(Mark::NamesChanged), Seen(Mark::TableGone)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn met(coverage: &Coverage, id: &str) -> Option<u64> {
        coverage.met(CLASSES.iter().find(|class| class.id == id).expect("a class"))
    }

    #[test]
    fn what_is_given_back_is_no_death() {
        let mut coverage = Coverage::default();
        coverage.count(Mark::Reclaimed, 64);
        assert_eq!((met(&coverage, "16a"), met(&coverage, "16b")), (Some(0), Some(64)));
    }
}
