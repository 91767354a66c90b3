//! How many of a table's partitions compute nodes write for others: as many as make writes cheapest.
//!
//! Invariant: what is set is a part of the partitions, from none to all, in tenths. Nothing but time depends
//! on it: who writes where is a hint.
//!
//! Protocol:
//! 1. All partitions are offloaded at first. A sample begins when all clients have heard what is set.
//! 2. While it rests, a sample is compared with what writes cost when the knob came to rest. They cost
//!    something else twice in turn, or partitions went to another compute node: it begins to search.
//! 3. It measures both ends, none and all, and goes a step from the best so far.
//! 4. That step made writes cheaper: go on in its direction. It did not: go the other way from there.
//! 5. Two steps in turn made nothing cheaper, or there is no further step: rest at the best.
//!
//! Steps 2, 4 and 5 are the published system's (FlexKV, section 4), which climbs a hill with one peak. But a
//! batch waits for its calls, be they one or many. So up to the last partition nothing becomes cheaper where
//! offloading does not pay, and a climb from all would end at once. Hence step 3.
//!
//! The published knob counts operations a second. A program that writes less would turn that one. Here
//! clients say how long they were writing, so a write's *cost* is measured, however many there are. The
//! published knob empties caches at each step, and pauses those who write. Here nobody notices one, but by
//! where he sends writes.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{ProxyPace, WriteLoad};

/// Tenths that are all.
pub(super) const ALL: u8 = 10;
/// What clients say in that time may be of before the step: each asks twice a second, and hears of it then.
const SETTLES: Duration = Duration::from_secs(1);
/// How long a sample takes behind that, and longer until it has so many writes.
const SAMPLED: Duration = Duration::from_secs(1);
const WRITES_MIN: u64 = 1_000;
/// A cost is less than another if it is below this part of it.
const LESS: f64 = 0.97;
/// While it rests, a cost is another one above this ratio of the greater to the less.
const OTHER: f64 = 1.2;
/// So many samples in turn say so then, or that nothing becomes cheaper.
const IN_TURN: u8 = 2;

/// What a write costs with a setting.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Measured {
    tenths: u8,
    cost_ns: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// Nothing was measured yet.
    New,
    /// At rest, since writes cost so much; for so many samples in turn they did not.
    Rest(Measured, u8),
    /// The best so far; what is set is an end, and this is the other one if it is to be measured, too.
    Ends(Measured, Option<u8>),
    /// The first step from there.
    First(Measured),
    /// Further ones: the best so far, and how many in turn were not better.
    Climb(Measured, u8),
}

/// A table's knob.
pub(super) struct Knob {
    pace: ProxyPace,
    state: State,
    /// What is set, and whether the next step is one up.
    tenths: u8,
    is_up: bool,
    /// Partitions have moved since the last sample.
    is_moved: bool,
    /// When what is set was set, or the last sample ended.
    since: Option<MonotonicNs>,
    writes: u64,
    spent_ns: u64,
}

impl Knob {
    /// All is offloaded.
    pub(super) fn new(pace: ProxyPace) -> Self {
        Self {
            pace,
            state: State::New,
            tenths: ALL,
            is_up: false,
            is_moved: false,
            since: None,
            writes: 0,
            spent_ns: 0,
        }
    }

    /// The tenths of all partitions that are to be offloaded.
    pub(super) fn tenths(&self) -> u8 {
        self.tenths
    }

    /// Takes note that partitions went to other compute nodes.
    pub(super) fn note_moved(&mut self) {
        self.is_moved = true;
    }

    /// Takes note of what a client says of its writes. True if a sample has ended: what is set may be new.
    pub(super) fn note(&mut self, now: MonotonicNs, load: &WriteLoad) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.since(since) < self.pace.of(SETTLES) {
            return false;
        }
        self.writes = self.writes.saturating_add(load.writes);
        self.spent_ns = self.spent_ns.saturating_add(load.spent_ns);
        if now.since(since) < self.pace.of(SETTLES + SAMPLED) || self.writes < WRITES_MIN {
            return false;
        }
        let cost_ns = self.spent_ns as f64 / self.writes as f64;
        self.judge(Measured { tenths: self.tenths, cost_ns });
        (self.since, self.writes, self.spent_ns) = (Some(now), 0, 0);
        true
    }

    /// Decides by a sample what is set next.
    fn judge(&mut self, sample: Measured) {
        self.state = match self.state {
            State::New => self.begin(sample),
            State::Rest(_, _) if std::mem::take(&mut self.is_moved) => self.begin(sample),
            State::Rest(rest, others) if sample.is_other_than(rest) => {
                if others + 1 < IN_TURN {
                    State::Rest(rest, others + 1)
                } else {
                    self.begin(sample)
                }
            }
            State::Rest(rest, _) => State::Rest(rest, 0),
            State::Ends(best, then) => {
                let best = if sample.is_less_than(best) { sample } else { best };
                if let Some(end) = then {
                    self.tenths = end;
                    State::Ends(best, None)
                } else {
                    self.step_from(best)
                }
            }
            State::First(best) if sample.is_less_than(best) => self.go_on(sample, 0),
            State::First(best) => {
                self.tenths = best.tenths;
                self.is_up = !self.is_up;
                self.go_on(best, 0)
            }
            State::Climb(best, _) if sample.is_less_than(best) => self.go_on(sample, 0),
            State::Climb(best, in_vain) => self.go_on(best, in_vain + 1),
        };
    }

    /// Begins to search, from a setting that costs so much.
    fn begin(&mut self, from: Measured) -> State {
        self.is_moved = false;
        let mut ends = [0, ALL].into_iter().filter(|end| *end != from.tenths);
        self.tenths = ends.next().expect("one of two is another");
        State::Ends(from, ends.next())
    }

    /// The first step from the best that is known.
    fn step_from(&mut self, best: Measured) -> State {
        self.tenths = best.tenths;
        if self.next().is_none() {
            self.is_up = !self.is_up;
        }
        self.tenths = self.next().expect("there is a step up or one down");
        State::First(best)
    }

    /// The next step, or rest at the best.
    fn go_on(&mut self, best: Measured, in_vain: u8) -> State {
        if let Some(tenths) = self.next().filter(|_| in_vain < IN_TURN) {
            self.tenths = tenths;
            State::Climb(best, in_vain)
        } else {
            self.tenths = best.tenths;
            State::Rest(best, 0)
        }
    }

    fn next(&self) -> Option<u8> {
        if self.is_up { (self.tenths < ALL).then(|| self.tenths + 1) } else { self.tenths.checked_sub(1) }
    }
}

impl Measured {
    fn is_less_than(self, other: Self) -> bool {
        self.cost_ns < LESS * other.cost_ns
    }

    fn is_other_than(self, other: Self) -> bool {
        self.cost_ns > OTHER * other.cost_ns || other.cost_ns > OTHER * self.cost_ns
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    fn usual_knob() -> Knob {
        Knob::new(ProxyPace::default())
    }

    /// A knob, and what writes cost by what it sets.
    struct Bench {
        knob: Knob,
        now_ms: u64,
        noise: SplitMix64,
    }

    impl Bench {
        fn new() -> Self {
            Self { knob: usual_knob(), now_ms: 0, noise: SplitMix64::fresh() }
        }

        /// Takes a sample. Costs are off by a hundredth at most.
        fn sample(&mut self, cost_ns: &dyn Fn(u8) -> f64) -> u8 {
            loop {
                let off = 1.0 + (self.noise.below(201) as f64 - 100.0) / 10_000.0;
                let spent_ns = (500.0 * off * cost_ns(self.knob.tenths())) as u64;
                let load = WriteLoad { writes: 500, spent_ns, own: Vec::new() };
                self.now_ms += 500;
                if self.knob.note(MonotonicNs(self.now_ms * 1_000_000), &load) {
                    return self.knob.tenths();
                }
            }
        }

        /// What it sets until it rests.
        fn settle(&mut self, cost_ns: &dyn Fn(u8) -> f64) -> Vec<u8> {
            let mut set = Vec::new();
            while !matches!(self.knob.state, State::Rest(_, 0)) || set.is_empty() {
                set.push(self.sample(cost_ns));
                assert!(set.len() <= 2 * usize::from(ALL), "{set:?}");
            }
            set
        }
    }

    /// A cost that is least at `peak`, and a tenth more with each step from there.
    fn least_at(peak: u8) -> impl Fn(u8) -> f64 {
        move |tenths| 1_000.0 * 1.1_f64.powi(i32::from(tenths.abs_diff(peak)))
    }

    #[test]
    fn it_finds_the_best_part_and_another_one_when_writes_change() {
        let mut bench = Bench::new();
        assert_eq!(bench.settle(&least_at(7)), [0, 9, 8, 7, 6, 5, 7]);
        assert_eq!(bench.settle(&least_at(7)), [7], "it stays there");
        // The first sample that is another one may be chance.
        let other = |tenths| 2.0 * least_at(4)(tenths);
        assert_eq!(bench.settle(&other), [7, 0, 10, 6, 5, 4, 3, 2, 4]);
    }

    #[test]
    fn it_turns_where_the_first_step_is_the_wrong_one() {
        let mut bench = Bench::new();
        assert_eq!(bench.settle(&least_at(3)), [0, 1, 2, 3, 4, 5, 3]);
        let other = |tenths| 2.0 * least_at(2)(tenths);
        assert_eq!(bench.settle(&other), [3, 0, 10, 4, 2, 1, 0, 2]);
    }

    /// A batch waits for its calls, be they one or many.
    #[test]
    fn it_finds_an_end_behind_costs_that_are_all_alike() {
        let mut bench = Bench::new();
        let none_is_best = |tenths| if tenths == 0 { 500.0 } else { 1_000.0 };
        assert_eq!(bench.settle(&none_is_best).last(), Some(&0));
        let all_is_best = |tenths| if tenths == ALL { 2_000.0 } else { 5_000.0 };
        assert_eq!(bench.settle(&all_is_best).last(), Some(&ALL));
    }

    #[test]
    fn it_ends_at_the_best_wherever_that_is() {
        for peak in 0..=ALL {
            let mut bench = Bench::new();
            assert_eq!(bench.settle(&least_at(peak)).last(), Some(&peak));
            let other = ALL - peak;
            let more = |tenths| 3.0 * least_at(other)(tenths);
            assert_eq!(bench.settle(&more).last(), Some(&other), "from {peak}");
        }
    }

    #[test]
    fn writes_that_cost_the_same_everywhere_leave_it_where_it_was() {
        let mut bench = Bench::new();
        assert_eq!(bench.settle(&|_| 1_000.0).last(), Some(&ALL));
    }

    #[test]
    fn it_waits_until_clients_have_heard_and_enough_was_written() {
        let mut knob = usual_knob();
        let at = |ms: u64| MonotonicNs(ms * 1_000_000);
        let load = |writes| WriteLoad { writes, spent_ns: 1_000 * writes, own: Vec::new() };
        assert!(!knob.note(at(0), &load(1_000_000)));
        assert!(!knob.note(at(999), &load(1_000_000)), "that may be of before");
        assert!(!knob.note(at(2_500), &load(WRITES_MIN - 1)), "too few");
        assert_eq!(knob.tenths(), ALL);
        assert!(knob.note(at(60_000), &load(1)));
        assert_eq!(knob.tenths(), 0);
    }

    #[test]
    fn a_resting_one_steps_when_partitions_have_moved() {
        let mut bench = Bench::new();
        bench.settle(&least_at(7));
        bench.knob.note_moved();
        assert_ne!(bench.sample(&least_at(7)), 7);
        assert_eq!(bench.settle(&least_at(7)).last(), Some(&7));
    }

    #[test]
    fn any_numbers_are_taken() {
        let mut knob = usual_knob();
        for turn in 1..100 {
            let spent_ns = if turn % 2 == 0 { u64::MAX } else { 0 };
            let load = WriteLoad { writes: u64::MAX, spent_ns, own: Vec::new() };
            knob.note(MonotonicNs(turn * 3_000_000_000), &load);
            assert!(knob.tenths() <= ALL);
        }
    }
}
