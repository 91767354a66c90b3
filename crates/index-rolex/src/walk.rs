//! Where an operation goes on after a leaf that was not the key's, or not consistent.
//!
//! Invariant: the walk ends. It looks at leaves [`STEPS_MAX`] times at most, and waits for busy ones for
//! [`WAIT_MAX`] in all, and for a lease that runs. If a lock's word stands for [`ASK_AFTER`], the walk asks
//! the leaf's memory node to fence the holder. The node does that when the lease is over, or at once if the
//! holder has gone. Then the walk that waits repairs the leaf.
//!
//! Right of a leaf is its sibling. Left of it, or where a block is no leaf of the chain any more, the walk
//! goes on at leaves further and further left in the group's image. It goes one position, three, seven, at
//! last to the group's first leaf, from which the chain leads to every key of the group. A sibling that is
//! closed was just made, or is being merged, by the holder of the leaf before it. So the walk waits for that
//! leaf's lock. A block that the cache names may be another leaf by now, far from the key. It is the leaf
//! meant if the cache names it for its own low fence, too; otherwise the walk goes left.
//!
//! A walk that has gone far to the right has an old image, or nobody trains. So it looks for a newer one
//! after [`RIGHTS_A_LOOK`] steps, and again after twice as many each time. If that one predicts another leaf,
//! it goes on there. A walk of n steps looks fewer than log n times.
//!
//! The first leaf of a group of the newest directory is always in the chain. That of an older one may have
//! been merged, and its block be any leaf. Then the walk fetches the newest directory and image and begins
//! anew, after a pause. A trainer that merges such a leaf has seen a newer directory published, so what the
//! walk fetches then is newer than what led it astray. It goes on in circles only as long as directories are
//! published, or until it has paused for [`WAIT_MAX`].

use std::time::Duration;

use farsight_base::LeafNumber;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::Fences;
use farsight_layout::learned::GROUP_LEAVES_MAX;
use farsight_layout::pool::LockWord;
use farsight_protocol::LEASE_MAX;

use crate::repair::Repair;
use crate::{LeafPlace, LearnedError, RolexError, RolexSession};

/// How long a lock's word stands unchanged before its memory node is first asked to fence its holder. That
/// begins the lease.
const ASK_AFTER: Duration = Duration::from_millis(50);

/// Leaves that one operation looks at, at most.
const STEPS_MAX: u32 = 1 << 20;
/// Steps to the right before a walk first looks for a newer image.
const RIGHTS_A_LOOK: u32 = 32;
/// Times that an operation goes left before it begins at the first leaf of the group.
const LEFTS_MAX: u32 = GROUP_LEAVES_MAX.ilog2() + 1;
/// Leaves on the way that a walk remembers, the last ones.
const PASSED_MAX: usize = 16;
/// How long one operation waits for busy leaves, besides the longest lease that it is told of.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// The first pause before a busy leaf is looked at again; each one after it is twice as long.
const PAUSE_MIN: Duration = Duration::from_micros(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The pause before a lock is looked at again whose holder is the first that was seen there. It grows with
/// the square of the holders seen: about as many sessions wait, and each of them looks.
const LOOK_MIN: Duration = Duration::from_nanos(250);
/// Holders that make it longer.
const LOOK_HOLDERS_MAX: u32 = 1 << 10;
/// A lock that one holder keeps is looked at again when it has stood longer by this part.
const LOOKS_PER_STAND: u32 = 2;

/// What a leaf turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// The key belongs to the right.
    Right {
        /// The sibling.
        next: LeafNumber,
        /// The leaf's low fence.
        low: u64,
    },
    /// The key belongs to the left.
    Left,
    /// It is locked, or its lines were changing.
    Busy,
    /// It is no leaf of the chain now.
    Closed,
}

impl Seen {
    /// A leaf of these fences, left of the key, and its sibling.
    pub(crate) fn right_of(fences: Option<Fences>, next: LeafNumber) -> Self {
        fences.map_or(Self::Closed, |fences| Self::Right { next, low: fences.low })
    }
}

/// A leaf that a walk came to.
#[derive(Clone, Copy, Debug)]
pub struct FoundLeaf {
    /// So many steps to the right of one that the cache knew.
    pub steps: u32,
    /// Its low fence.
    pub low: u64,
    /// Where it is.
    pub place: LeafPlace,
}

/// One operation's way.
pub(crate) struct Walk<'s> {
    session: &'s RolexSession,
    key: u64,
    begun: Option<MonotonicNs>,
    /// The leaf that was predicted.
    origin: Option<LeafPlace>,
    steps: u32,
    pauses: u32,
    /// The leaf whose sibling is looked at now, and its lock when that was read.
    before: Option<(LeafPlace, LockWord)>,
    /// The lock that is waited for, and when its memory node is asked to fence its holder.
    watched: Option<(LeafPlace, LockWord, MonotonicNs)>,
    /// When that lock was first seen.
    watched_since: MonotonicNs,
    /// Locks that were waited for, but for the first.
    holders_seen: u32,
    /// The holder of a lock that was waited for, and why it was not taken over.
    holder: Option<(u32, String)>,
    /// How long the operation waits.
    patience: Duration,
    /// How often the walk went left.
    lefts: u32,
    /// How often it went right.
    rights: u32,
    /// After so many times it looks for a newer image.
    look_at: u32,
    has_walked: bool,
    /// Leaves behind the predicted one that the walk went on from, to the right, and their low fences.
    passed: [Option<FoundLeaf>; PASSED_MAX],
}

impl<'s> Walk<'s> {
    pub(crate) fn new(session: &'s RolexSession, key: u64) -> Self {
        Self {
            session,
            key,
            begun: None,
            origin: None,
            steps: 0,
            pauses: 0,
            before: None,
            watched: None,
            watched_since: MonotonicNs(0),
            holders_seen: 0,
            holder: None,
            patience: WAIT_MAX,
            lefts: 0,
            rights: 0,
            look_at: RIGHTS_A_LOOK,
            has_walked: false,
            passed: [None; PASSED_MAX],
        }
    }

    /// Begins at a leaf of the chain that was consistent when it was READ, with this lock.
    pub(crate) fn come_from(&mut self, leaf: LeafPlace, lock: LockWord) {
        self.before = Some((leaf, lock));
    }

    /// True if the walk went to a leaf beside that of the cache, which knows another one at this place.
    pub(crate) fn has_walked(&self) -> bool {
        self.has_walked
    }

    /// How often it went to the right.
    pub(crate) fn steps_right(&self) -> u32 {
        self.rights
    }

    /// Leaves on its way that the cache may not know, then the one that it came to, which begins at `low`.
    pub(crate) fn found(&self, low: u64, place: LeafPlace) -> impl Iterator<Item = FoundLeaf> {
        let last = FoundLeaf { steps: self.rights, low, place };
        self.passed.iter().flatten().copied().chain([last])
    }

    /// Lets the operation have begun at `begun`: what it waited for before counts, too.
    pub(crate) fn began_at(&mut self, begun: MonotonicNs) {
        self.begun = Some(begun);
    }

    /// True if [`Walk::next`] names the leaf to look at after `at` at once, and waits for nothing.
    pub(crate) fn goes_on_at_once(&self, at: LeafPlace, seen: Seen) -> bool {
        self.rights + 1 < self.look_at
            && matches!(seen, Seen::Right { low, .. } if self.before.is_some() || self.is_meant(at, low))
    }

    /// The leaf to look at after `at`, whose lock was `lock`.
    pub(crate) async fn next<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        at: LeafPlace,
        lock: LockWord,
        seen: Seen,
    ) -> Result<LeafPlace, RolexError> {
        self.steps += 1;
        self.origin = self.origin.or(Some(at));
        let (key, steps) = (self.key, self.steps);
        let astray = |found| RolexError::Astray { key, place: at, steps, found };
        if steps > STEPS_MAX {
            return Err(astray("no leaf that owns the key"));
        }
        match seen {
            Seen::Right { low, .. } if self.before.is_none() && !self.is_meant(at, low) => {
                self.further_left(slot, at).await
            }
            Seen::Right { next, low } => {
                self.session.count(|counters| counters.sibling_steps += 1);
                self.rights += 1;
                if let Some(nearer) = self.nearer(slot).await? {
                    return Ok(nearer);
                }
                let next = self.session.table().place(next).ok_or_else(|| astray("a sibling outside"))?;
                if self.has_walked {
                    self.pass(at, low);
                }
                self.before = Some((at, lock));
                self.has_walked = true;
                Ok(next)
            }
            Seen::Left => self.further_left(slot, at).await,
            Seen::Busy => {
                self.wait(slot, at, lock).await?;
                Ok(at)
            }
            Seen::Closed => match self.before.take() {
                Some((left, lock)) => {
                    self.wait(slot, left, lock).await?;
                    Ok(left)
                }
                None => self.further_left(slot, at).await,
            },
        }
    }

    /// Remembers the leaf to which the step before this one led.
    fn pass(&mut self, at: LeafPlace, low: u64) {
        let passed = FoundLeaf { steps: self.rights - 1, low, place: at };
        self.passed[self.rights as usize % PASSED_MAX] = Some(passed);
    }

    /// Whether `at`, whose low fence is `low`, is the leaf that the cache believes there. As the first leaf
    /// of the key's group any serves that is in the group.
    fn is_meant(&self, at: LeafPlace, low: u64) -> bool {
        if self.lefts == LEFTS_MAX {
            return low >= self.session.hints.boundary_of(self.key);
        }
        self.session.hints.names(low, at)
    }

    /// After enough steps to the right: the leaf that a newer directory or image predicts, if that is another
    /// than that at which the walk began.
    async fn nearer<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
    ) -> Result<Option<LeafPlace>, RolexError> {
        if self.rights < self.look_at {
            return Ok(None);
        }
        self.look_at = self.look_at.saturating_mul(2);
        match self.session.hints.refresh(slot, self.key).await {
            Err(LearnedError::Fabric(error)) => return Err(error.into()),
            // What is replaced just now the next look finds.
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let Some(predicted) = self.session.hints.predict(self.key) else { return Ok(None) };
        if self.origin.is_some_and(|leaf| predicted.leaves().contains(&leaf)) {
            return Ok(None);
        }
        let nearer = predicted.leaves()[predicted.likeliest()];
        (self.before, self.origin, self.lefts, self.has_walked) = (None, Some(nearer), 0, false);
        Ok(Some(nearer))
    }

    /// A leaf further left of the key than `at` and all before, at last the first one of its group. Behind
    /// that, the one that the newest directory and image predict.
    async fn further_left<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        at: LeafPlace,
    ) -> Result<LeafPlace, RolexError> {
        self.session.hints.forget_synonym(self.key, at);
        (self.before, self.has_walked) = (None, true);
        self.session.count(|counters| counters.sibling_steps += 1);
        if self.lefts == LEFTS_MAX {
            self.pause(slot, at).await?;
            self.session.hints.fetch(slot, self.key).await?;
            self.lefts = 0;
        } else {
            self.lefts += 1;
        }
        let positions = (1 << self.lefts) - 1;
        loop {
            if let Some(left) = self.session.hints.leaf_left_of(self.key, positions) {
                return Ok(left);
            }
            self.session.candidates(slot, self.key).await?;
        }
    }

    /// Waits a moment for the holder of `lock`; repairs the leaf if that has lasted too long.
    pub(crate) async fn wait<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
        lock: LockWord,
    ) -> Result<(), RolexError> {
        let now = slot.now();
        match (self.watched, lock.owner()) {
            (Some((watched, word, ask_at)), Some(owner)) if watched == place && word == lock => {
                if now >= ask_at || self.session.fenced.borrow().contains(&owner) {
                    self.check_patience(slot, place)?;
                    match self.session.repair(slot, place, lock, owner).await? {
                        Repair::Done => {
                            (self.watched, self.holder) = (None, None);
                            return Ok(());
                        }
                        Repair::Later { pause, why } => {
                            self.watched = Some((place, lock, slot.now().plus(pause)));
                            self.holder = Some((owner, why));
                            self.patience = self.patience.max(WAIT_MAX + pause.min(LEASE_MAX));
                        }
                    }
                }
            }
            (Some((watched, word, _)), None) if watched == place && word == lock => {}
            _ => {
                self.holders_seen += u32::from(self.watched.is_some());
                self.watched = Some((place, lock, now.plus(ASK_AFTER)));
                self.watched_since = now;
                self.holder = None;
            }
        }
        self.check_patience(slot, place)?;
        // Each holder that went before says that there are more: so few look often, and many seldom.
        let others = self.holders_seen.min(LOOK_HOLDERS_MAX);
        let least = LOOK_MIN.saturating_mul(1 + others * others / 4).min(PAUSE_MAX);
        let stands = slot.now().since(self.watched_since);
        slot.pause((stands / LOOKS_PER_STAND).clamp(least, PAUSE_MAX)).await;
        Ok(())
    }

    /// Waits a moment, longer each time, before the leaf at `place` is looked at again, or another.
    async fn pause<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
    ) -> Result<(), RolexError> {
        self.check_patience(slot, place)?;
        let pause = PAUSE_MIN.saturating_mul(1 << self.pauses.min(16)).min(PAUSE_MAX);
        self.pauses += 1;
        slot.pause(pause).await;
        Ok(())
    }

    /// Fails if the operation has waited for too long.
    fn check_patience<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
    ) -> Result<(), RolexError> {
        self.session.count(|counters| counters.retries += 1);
        let now = slot.now();
        let waited = now.since(*self.begun.get_or_insert(now));
        if waited > self.patience {
            let holder = self.holder.take();
            return Err(RolexError::Contended { key: self.key, place, waited, holder });
        }
        Ok(())
    }
}
