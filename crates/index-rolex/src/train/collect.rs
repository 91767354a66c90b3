//! The leaves of a stretch of the chain, in key order, as they are now.
//!
//! Invariant: what is collected tiles the stretch: each leaf begins where the one before ends. Low fences
//! never change, and a leaf names its right sibling in the same line as its high fence. So leaves READ at
//! different moments tile if each one's high fence is the low fence of the leaf that it names. If a leaf was
//! merged away in between, they do not, and are READ again.
//!
//! Protocol: the trainer READs the leaves that it knows beforehand, in as few doorbells as they fit. Then it
//! READs those that they name and that it does not know, until the chain is closed. So leaves that split once
//! since they were known cost one round trip more, whatever their number. The trainer waits for a leaf that
//! changes again and again, and repairs it if its holder is dead. It waits for a closed block whose lines are
//! being written if a leaf of the stretch names it: that leaf's lock is taken.

use std::collections::HashMap;

use farsight_base::{LeafNumber, Line};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::learned::ImageError;
use farsight_layout::pool::{LockWord, lock_of};
use farsight_layout::{Fences, KEY_LINES, KeyLines};

use crate::cache::LearnedError;
use crate::walk::Walk;
use crate::{LeafPlace, PoolTable, RolexError, RolexSession};

/// Times that leaves are READ which change under the READ, or do not tile.
const TRIES_MAX: u32 = 64;

/// Of these, those after which the trainer waits for the holder of such a leaf.
const TRIES_AT_ONCE: u32 = 8;

/// A leaf of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Collected {
    pub(super) place: LeafPlace,
    pub(super) low: u64,
    /// It holds no pair.
    pub(super) is_empty: bool,
    /// Somebody holds its lock: it may be changing, and the change may have been counted already.
    pub(super) is_locked: bool,
}

impl Collected {
    /// A leaf of which no more is known than where it stands and begins.
    pub(super) fn at(place: LeafPlace, low: u64) -> Self {
        Self { place, low, is_empty: false, is_locked: false }
    }
}

/// What became of a READ of a block's key lines.
enum Read {
    Leaf(SeenLeaf),
    Foreign,
    Changing,
}

/// What a READ of a leaf's key lines said.
#[derive(Clone, Copy, Debug)]
struct SeenLeaf {
    fences: Fences,
    next: LeafNumber,
    is_empty: bool,
    is_locked: bool,
}

/// Which leaves to collect.
pub(super) struct Stretch<'a> {
    /// The leaf that holds its least key.
    pub(super) first: LeafPlace,
    /// The low fence of that leaf.
    pub(super) low: u64,
    /// Where it ends: the low fence of the first leaf behind it; `None`: with the chain.
    pub(super) end: Option<u64>,
    /// Leaves that are probably of it.
    pub(super) known: &'a [LeafPlace],
    /// Leaves to collect at most: then the stretch ends early.
    pub(super) leaves_max: usize,
}

/// Collects the leaves of a stretch; and the leaf behind the last of them, if the stretch ended early.
pub(super) async fn collect<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    session: &RolexSession,
    stretch: &Stretch<'_>,
) -> Result<Tiled, RolexError> {
    let table = session.table();
    let mut seen: HashMap<LeafPlace, Option<SeenLeaf>> = HashMap::new();
    let mut unread: Vec<LeafPlace> = stretch.known.to_vec();
    unread.push(stretch.first);
    let mut last = stale("leaf", stretch.low, 0);
    for tries in 0..TRIES_MAX {
        // Each round at least one leaf further, so bounded by the leaves.
        while !unread.is_empty() && seen.len() <= 2 * stretch.leaves_max + stretch.known.len() {
            read_leaves(slot, session, &unread, &mut seen).await?;
            unread = unknown(table, stretch, &seen);
        }
        match tile(table, stretch, &seen) {
            Ok(tiled) => return Ok(tiled),
            Err((error, doubtful)) => {
                last = error;
                if tries >= TRIES_AT_ONCE {
                    session.await_rest(slot, doubtful[0]).await?;
                }
                for place in &doubtful {
                    seen.remove(place);
                }
                unread = doubtful;
            }
        }
    }
    Err(LearnedError::Unsettled { tries: TRIES_MAX, last }.into())
}

fn stale(what: &'static str, expected: u64, got: u64) -> ImageError {
    ImageError { piece: "chain of leaves", what, expected, got }
}

/// The leaves that seen ones name within the stretch and that were not READ.
fn unknown(
    table: &PoolTable,
    stretch: &Stretch<'_>,
    seen: &HashMap<LeafPlace, Option<SeenLeaf>>,
) -> Vec<LeafPlace> {
    let inside = |high: u64| stretch.end.is_none_or(|end| high < end) && high >= stretch.low;
    let named = seen.values().flatten().filter(|leaf| leaf.fences.high.is_some_and(inside));
    let mut unknown: Vec<LeafPlace> = named.filter_map(|leaf| table.place(leaf.next)).collect();
    unknown.retain(|place| !seen.contains_key(place));
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

/// Leaves of a stretch, and the one behind the last of them if it ended early.
pub(super) type Tiled = (Vec<Collected>, Option<Collected>);

/// The leaves from the first on, each where the one before ends; or the leaves to READ again.
fn tile(
    table: &PoolTable,
    stretch: &Stretch<'_>,
    seen: &HashMap<LeafPlace, Option<SeenLeaf>>,
) -> Result<Tiled, (ImageError, Vec<LeafPlace>)> {
    let mut tiles = Vec::new();
    let mut next = Collected::at(stretch.first, stretch.low);
    loop {
        let before = tiles.last().map(|leaf: &Collected| leaf.place);
        let again = |error| Err((error, before.into_iter().chain([next.place]).collect()));
        let Some(Some(leaf)) = seen.get(&next.place) else { return again(stale("low fence", next.low, 0)) };
        if leaf.fences.low != next.low {
            return again(stale("low fence", next.low, leaf.fences.low));
        }
        tiles.push(Collected { is_empty: leaf.is_empty, is_locked: leaf.is_locked, ..next });
        let Some(high) = leaf.fences.high.filter(|high| stretch.end.is_none_or(|end| *high < end)) else {
            let end = leaf.fences.high;
            if end != stretch.end {
                return again(stale("end", stretch.end.unwrap_or_default(), end.unwrap_or_default()));
            }
            return Ok((tiles, None));
        };
        let Some(place) = table.place(leaf.next) else {
            return again(stale("right sibling", 0, leaf.next.0.into()));
        };
        next = Collected::at(place, high);
        if tiles.len() == stretch.leaves_max {
            return Ok((tiles, Some(next)));
        }
    }
}

/// READs the key lines of leaves, again those that change under the READ.
async fn read_leaves<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    session: &RolexSession,
    places: &[LeafPlace],
    seen: &mut HashMap<LeafPlace, Option<SeenLeaf>>,
) -> Result<(), RolexError> {
    let mut waiting = places.to_vec();
    for tries in 0..TRIES_MAX {
        let mut again = Vec::new();
        while !waiting.is_empty() {
            let posted = post_leaves(slot, session.table(), &mut waiting);
            slot.completed().await;
            for (verb, place) in posted {
                match take_leaf(slot, verb, place)? {
                    Read::Leaf(leaf) => _ = seen.insert(place, Some(leaf)),
                    Read::Foreign => _ = seen.insert(place, None),
                    Read::Changing => again.push(place),
                }
            }
        }
        let Some(first) = again.first() else { return Ok(()) };
        if tries >= TRIES_AT_ONCE {
            session.await_rest(slot, *first).await?;
        }
        waiting = again;
    }
    let last = stale("consistent leaf", 0, waiting[0].leaf_number().0.into());
    Err(LearnedError::Unsettled { tries: TRIES_MAX, last }.into())
}

impl RolexSession {
    /// Waits until nobody holds the lock of the block at `place`; repairs it if its holder is dead.
    async fn await_rest<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
    ) -> Result<(), RolexError> {
        let mut lines = [Line::ZERO; KEY_LINES];
        let mut walk = Walk::new(self, 0);
        loop {
            let at = self.table().address(place, 0);
            slot.read(place.node(), at, &mut lines, ReadMode::Plain).await?;
            let lock = lock_of(&lines);
            if lock.owner().is_none() {
                return Ok(());
            }
            walk.wait(slot, place, lock).await?;
        }
    }
}

/// Posts READs of as many of `waiting` as the operation has verbs for.
fn post_leaves<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    table: &PoolTable,
    waiting: &mut Vec<LeafPlace>,
) -> Vec<(usize, LeafPlace)> {
    let mut verbs = vec![0; table.nodes().len()];
    let mut posted = Vec::new();
    waiting.retain(|&place| {
        let verb = verbs[place.node()];
        if verb == slot.verbs() {
            return true;
        }
        slot.post_read(place.node(), verb, table.address(place, 0), KEY_LINES, ReadMode::Stamped);
        verbs[place.node()] += 1;
        posted.push((verb, place));
        false
    });
    posted
}

/// What the completed READ of a block says.
fn take_leaf<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    verb: usize,
    place: LeafPlace,
) -> Result<Read, FabricError> {
    let mut lines = [Line::ZERO; KEY_LINES];
    slot.take_read(place.node(), verb, &mut lines)?;
    let (view, lock) = (KeyLines(&lines), lock_of(&lines));
    if view.incarnation().is_none() {
        // The writer of a closed block may be dead. Only a repair of the leaf before it repairs the block,
        // too.
        return Ok(if lock == LockWord::CLOSED { Read::Foreign } else { Read::Changing });
    }
    // One that is closed is no leaf, or is just being made or merged: whether it is one, its neighbours say.
    let Some(fences) = view.fences() else { return Ok(Read::Foreign) };
    let (is_empty, is_locked) = (view.is_empty(), lock != LockWord::FREE);
    Ok(Read::Leaf(SeenLeaf { fences, next: view.next(), is_empty, is_locked }))
}
