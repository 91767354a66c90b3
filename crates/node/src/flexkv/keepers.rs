//! Compute nodes that keep values of a table, and calls that have them let go of some.
//!
//! Invariant: a compute node is here from before it trusts a lease on this node's keys, until its last
//! connection here has ended. From then on every recall says that somebody may give values out, until all
//! leases are over that it may have had. So a recall of which nobody is left to be waited for is true of all.
//!
//! Protocol:
//! 1. Who keeps values says so, and is answered. It has a call parked here, as far as it can.
//! 2. A recall is told to all others by their parked calls, and is parked itself.
//! 3. Who has let go says so with its next call. All have: the recall is answered.
//! 4. It is answered at once, and told to nobody, if it would wait in vain. So it would for one that never
//!    had a call to be told by, that did not let go of a former recall in time, or that has ended.
//!
//! Bounds: [`RECALLS_MAX`] recalls wait, each for [`RECALL_MAX`]. Later calls, and the background, answer
//! those that have waited longer. Who recalls waits by its own clock, and needs no answer.

use std::collections::BTreeMap;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{
    ComputeNode, ErrorCode, HashIndexStats, RECALLS_MAX, Recalled, Recalls, ServerError,
};

#[cfg(injected)]
use crate::injected;

/// How long a recall waits for those who keep values. Then their leases are over.
const RECALL_MAX: Duration = Duration::from_millis(10);
/// Time after which every lease is over that began before. Compute nodes have a quarter less.
const LEASES_OVER: Duration = Duration::from_millis(10);

/// Who keeps values, and what is recalled. `R` is a call that is answered later.
pub(super) struct Keepers<R> {
    all: BTreeMap<ComputeNode, Keeper<R>>,
    leases: LeasesLeft,
    under_way: Vec<Recall<R>>,
    /// The number of the last one.
    last: u64,
    counted: Counted,
}

/// One who keeps values.
struct Keeper<R> {
    parked: Option<R>,
    /// The number up to which it was told.
    told: u64,
    /// It has called since the last recall that it did not let go of in time.
    is_heard: bool,
}

/// A recall that was not answered yet.
struct Recall<R> {
    number: u64,
    recalled: Recalled,
    waits_for: Vec<ComputeNode>,
    reply: R,
    began: MonotonicNs,
}

/// Whether one may have leases yet that has ended here. The background alone looks at its clock: of two of
/// its steps the later one has looked behind all that the earlier one saw.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeasesLeft {
    Over,
    /// Perhaps behind the last look at the clock.
    Unseen,
    /// Before the next look at it.
    Seen,
    /// Before then.
    Before(MonotonicNs),
}

/// What became of recalls.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counted {
    recalls: u64,
    /// Those of which not all have let go.
    unheard: u64,
    /// How long those waited of which all have.
    waited_us: u64,
}

/// What calls that were parked are answered.
pub(super) enum Resolved<R> {
    Told(R, Recalls),
    Recalled(R, bool),
}

impl<R> Default for Keepers<R> {
    fn default() -> Self {
        let (all, under_way, counted) = (BTreeMap::new(), Vec::new(), Counted::default());
        Self { all, leases: LeasesLeft::Over, under_way, last: 0, counted }
    }
}

impl<R> Keepers<R> {
    /// Notes that this one keeps values.
    pub(super) fn keep(&mut self, who: ComputeNode) {
        let keeper = || Keeper { parked: None, told: 0, is_heard: false };
        self.all.entry(who).or_insert_with(keeper);
    }

    /// Notes what one has let go of, and tells it what is recalled, or parks its call. Adds to `due` what
    /// calls are answered now.
    pub(super) fn listen(
        &mut self,
        (who, let_go): (ComputeNode, u64),
        now: MonotonicNs,
        park: impl FnOnce() -> R,
        due: &mut Vec<Resolved<R>>,
    ) -> Result<Option<Recalls>, ServerError> {
        self.keep(who);
        let Some(keeper) = self.all.get_mut(&who) else { unreachable!("it was just noted") };
        if let_go > keeper.told {
            let text = format!("{who} was told recalls up to {}, and has let go of {let_go}", keeper.told);
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        keeper.is_heard = true;
        for recall in self.under_way.iter_mut().filter(|recall| recall.number <= let_go) {
            recall.waits_for.retain(|other| *other != who);
            #[cfg(injected)]
            if injected::RECALL_ANSWERED_EARLY.is_injected() {
                recall.waits_for.clear();
            }
        }
        for done in self.under_way.extract_if(.., |recall| recall.waits_for.is_empty()) {
            self.counted.waited_us += now.since(done.began).as_micros() as u64;
            due.push(Resolved::Recalled(done.reply, true));
        }
        self.expire(now, due);
        let recalls = recalls_of(&self.under_way, who);
        let Some(keeper) = self.all.get_mut(&who) else { unreachable!("nothing forgets it here") };
        if recalls.recalled.is_empty() {
            if let Some(former) = keeper.parked.replace(park()) {
                // It has lost its way to that call.
                due.push(Resolved::Told(former, Recalls { number: let_go, ..Recalls::default() }));
            }
            return Ok(None);
        }
        keeper.told = keeper.told.max(recalls.number);
        Ok(Some(recalls))
    }

    /// Has all but `writer` let go. `None`: the call is parked.
    pub(super) fn recall(
        &mut self,
        (writer, recalled): (ComputeNode, Recalled),
        now: MonotonicNs,
        park: impl FnOnce() -> R,
        due: &mut Vec<Resolved<R>>,
    ) -> Option<bool> {
        self.counted.recalls += 1;
        self.expire(now, due);
        let others = || self.all.iter().filter(|(who, _)| **who != writer);
        let waits_in_vain = self.leases != LeasesLeft::Over
            || others().any(|(_, keeper)| !keeper.is_heard)
            || self.under_way.len() == RECALLS_MAX;
        if waits_in_vain {
            self.counted.unheard += 1;
            return Some(false);
        }
        let waits_for: Vec<ComputeNode> = others().map(|(who, _)| *who).collect();
        if waits_for.is_empty() {
            return Some(true);
        }
        self.last += 1;
        let (number, reply, began) = (self.last, park(), now);
        self.under_way.push(Recall { number, recalled, waits_for: waits_for.clone(), reply, began });
        for who in waits_for {
            let Some(keeper) = self.all.get_mut(&who) else { continue };
            // One without a call is told with its next one.
            if let Some(parked) = keeper.parked.take() {
                let recalls = recalls_of(&self.under_way, who);
                keeper.told = keeper.told.max(recalls.number);
                due.push(Resolved::Told(parked, recalls));
            }
        }
        None
    }

    /// Notes that nothing of this one executes here any more.
    pub(super) fn end(&mut self, who: ComputeNode, due: &mut Vec<Resolved<R>>) {
        if self.all.remove(&who).is_none() {
            return;
        }
        self.leases = LeasesLeft::Unseen;
        #[cfg(injected)]
        if injected::KEEPER_FORGOTTEN.is_injected() {
            self.leases = LeasesLeft::Over;
            self.under_way.iter_mut().for_each(|recall| recall.waits_for.retain(|other| *other != who));
            let done = self.under_way.extract_if(.., |recall| recall.waits_for.is_empty());
            due.extend(done.map(|done| Resolved::Recalled(done.reply, true)));
            return;
        }
        let is_vain = |recall: &mut Recall<R>| recall.waits_for.contains(&who);
        for vain in self.under_way.extract_if(.., is_vain) {
            self.counted.unheard += 1;
            due.push(Resolved::Recalled(vain.reply, false));
        }
    }

    /// The background's look at its clock. Returns when to look again.
    pub(super) fn look(&mut self, now: MonotonicNs, due: &mut Vec<Resolved<R>>) -> Option<MonotonicNs> {
        self.expire(now, due);
        self.leases = match self.leases {
            LeasesLeft::Unseen => LeasesLeft::Seen,
            LeasesLeft::Seen => LeasesLeft::Before(now),
            LeasesLeft::Before(then) if now.since(then) >= LEASES_OVER => LeasesLeft::Over,
            other => other,
        };
        match self.leases {
            LeasesLeft::Over => None,
            LeasesLeft::Unseen | LeasesLeft::Seen => Some(now),
            LeasesLeft::Before(then) => Some(then.plus(LEASES_OVER)),
        }
    }

    /// Says so in a table's statistics.
    pub(super) fn count_in(&self, stats: &mut HashIndexStats) {
        let Counted { recalls, unheard, waited_us } = self.counted;
        stats.keepers = self.all.len() as u32;
        (stats.recalls, stats.unheard_recalls, stats.recalls_waited_us) = (recalls, unheard, waited_us);
    }

    /// Answers recalls that have waited too long, and expects nothing of those who did not let go.
    fn expire(&mut self, now: MonotonicNs, due: &mut Vec<Resolved<R>>) {
        for late in self.under_way.extract_if(.., |recall| now.since(recall.began) >= RECALL_MAX) {
            for who in late.waits_for {
                self.all.entry(who).and_modify(|keeper| keeper.is_heard = false);
            }
            self.counted.unheard += 1;
            due.push(Resolved::Recalled(late.reply, false));
        }
    }
}

/// What is recalled of which one has not let go.
fn recalls_of<R>(under_way: &[Recall<R>], who: ComputeNode) -> Recalls {
    let own = || under_way.iter().filter(|recall| recall.waits_for.contains(&who));
    let recalled = own().map(|recall| recall.recalled).collect();
    Recalls { number: own().map(|recall| recall.number).max().unwrap_or(0), recalled }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);
    const W: ComputeNode = ComputeNode(3);
    type Calls = Keepers<&'static str>;

    fn at(ms: u64) -> MonotonicNs {
        MonotonicNs(ms * 1_000_000)
    }

    fn recalled(closings: u64) -> Recalled {
        Recalled { shard: 0, counter: 7, closings }
    }

    /// What calls are answered, in words.
    fn said(due: &mut Vec<Resolved<&'static str>>) -> Vec<String> {
        let say = |due| match due {
            Resolved::Told(call, recalls) => {
                let of: Vec<u64> = recalls.recalled.iter().map(|recalled| recalled.closings).collect();
                format!("{call}: {} {of:?}", recalls.number)
            }
            Resolved::Recalled(call, is_done) => format!("{call}: {is_done}"),
        };
        due.drain(..).map(say).collect()
    }

    /// Two who keep values and have calls parked.
    fn two() -> (Calls, Vec<Resolved<&'static str>>) {
        let (mut keepers, mut due) = (Calls::default(), Vec::new());
        for (who, call) in [(A, "a"), (B, "b")] {
            keepers.keep(who);
            assert_eq!(keepers.listen((who, 0), at(0), || call, &mut due), Ok(None));
        }
        assert!(said(&mut due).is_empty());
        (keepers, due)
    }

    #[test]
    fn a_recall_is_answered_when_the_last_one_has_let_go() {
        let (mut keepers, mut due) = two();
        assert_eq!(keepers.recall((W, recalled(5)), at(1), || "w", &mut due), None);
        assert_eq!(said(&mut due), ["a: 1 [5]", "b: 1 [5]"]);
        assert_eq!(keepers.listen((A, 1), at(2), || "a", &mut due), Ok(None));
        assert!(said(&mut due).is_empty(), "one of two");
        // The second recall comes while one has no call: it is told with the next.
        assert_eq!(keepers.recall((W, recalled(6)), at(2), || "v", &mut due), None);
        assert_eq!(said(&mut due), ["a: 2 [6]"]);
        let next = keepers.listen((B, 1), at(3), || "b", &mut due);
        assert_eq!(next, Ok(Some(Recalls { number: 2, recalled: vec![recalled(6)] })));
        assert_eq!(said(&mut due), ["w: true"]);
        for who in [A, B] {
            assert_eq!(keepers.listen((who, 2), at(4), || "-", &mut due), Ok(None));
        }
        assert_eq!(said(&mut due), ["v: true"]);
        assert_eq!(keepers.counted, Counted { recalls: 2, unheard: 0, waited_us: 4_000 });
        let early = keepers.listen((A, 3), at(4), || "-", &mut due).unwrap_err();
        assert_eq!(early.code, ErrorCode::BadRequest, "nobody told it");
    }

    #[test]
    fn who_recalls_is_not_waited_for_and_nobody_is_if_nobody_keeps_values() {
        let (mut keepers, mut due) = (Calls::default(), Vec::new());
        assert_eq!(keepers.recall((W, recalled(1)), at(0), || "w", &mut due), Some(true));
        keepers.keep(W);
        assert_eq!(keepers.recall((W, recalled(2)), at(0), || "w", &mut due), Some(true));
        // One that cannot be told.
        keepers.keep(A);
        assert_eq!(keepers.recall((W, recalled(3)), at(0), || "w", &mut due), Some(false));
        assert!(said(&mut due).is_empty());
    }

    #[test]
    fn who_is_stopped_is_waited_for_once() {
        let (mut keepers, mut due) = two();
        assert_eq!(keepers.recall((W, recalled(5)), at(1), || "w", &mut due), None);
        assert_eq!(keepers.listen((A, 1), at(1), || "a", &mut due), Ok(None));
        assert_eq!(said(&mut due).len(), 2);
        assert_eq!(keepers.recall((W, recalled(6)), at(11), || "v", &mut due), Some(false));
        assert_eq!(said(&mut due), ["w: false"]);
        assert_eq!(keepers.recall((W, recalled(7)), at(50), || "v", &mut due), Some(false));
        assert_eq!(keepers.listen((B, 1), at(51), || "b", &mut due), Ok(None));
        assert_eq!(keepers.recall((W, recalled(8)), at(52), || "v", &mut due), None);
        assert_eq!(said(&mut due), ["a: 2 [8]", "b: 2 [8]"]);
    }

    #[test]
    fn who_lost_its_answer_is_told_again() {
        let (mut keepers, mut due) = two();
        assert_eq!(keepers.recall((W, recalled(5)), at(1), || "w", &mut due), None);
        due.clear();
        let again = keepers.listen((A, 0), at(2), || "a", &mut due);
        assert_eq!(again, Ok(Some(Recalls { number: 1, recalled: vec![recalled(5)] })));
        assert_eq!(keepers.listen((A, 1), at(2), || "first", &mut due), Ok(None));
        assert_eq!(keepers.listen((A, 1), at(2), || "second", &mut due), Ok(None));
        assert_eq!(said(&mut due), ["first: 1 []"], "one call is parked");
    }

    #[test]
    fn leases_of_one_that_has_ended_are_awaited() {
        let (mut keepers, mut due) = two();
        assert_eq!(keepers.recall((W, recalled(5)), at(1), || "w", &mut due), None);
        due.clear();
        keepers.end(W, &mut due);
        assert!(said(&mut due).is_empty(), "it keeps nothing");
        keepers.end(A, &mut due);
        assert_eq!(said(&mut due), ["w: false"]);
        let recall =
            |keepers: &mut Calls, ms| keepers.recall((B, recalled(6)), at(ms), || "v", &mut Vec::new());
        assert_eq!(recall(&mut keepers, 900), Some(false), "whatever a worker's clock says");
        assert_eq!(keepers.look(at(100), &mut due), Some(at(100)), "it may have ended behind that look");
        assert_eq!(keepers.look(at(103), &mut due), Some(at(113)));
        assert_eq!(recall(&mut keepers, 112), Some(false));
        assert_eq!(keepers.look(at(112), &mut due), Some(at(113)));
        assert_eq!(keepers.look(at(113), &mut due), None);
        assert_eq!(recall(&mut keepers, 113), Some(true));
    }

    #[test]
    fn no_more_recalls_wait_than_are_told_at_once() {
        let (mut keepers, mut due) = two();
        for number in 1..=RECALLS_MAX as u64 {
            assert_eq!(keepers.recall((W, recalled(number)), at(1), || "w", &mut due), None);
        }
        assert_eq!(keepers.recall((W, recalled(99)), at(1), || "v", &mut due), Some(false));
        due.clear();
        let told = keepers.listen((A, 1), at(2), || "a", &mut due).expect("a call").expect("recalls");
        assert_eq!((told.number, told.recalled.len()), (RECALLS_MAX as u64, RECALLS_MAX - 1));
    }
}
