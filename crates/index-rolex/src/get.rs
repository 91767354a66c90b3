//! GET: READ all candidate leaves and what is known to have split off them in one doorbell; the leaf whose
//! fences hold the key answers.
//!
//! Linearization: docs/protocol/rolex.md. A hit and a miss are each proved by the lines of one READ.

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::pool::{BlockGeometry, BlockSearch, LockWord, lock_of, miss_in_block, search_block};
use farsight_layout::{KEY_LINES, KeyLines};

use crate::cache::Candidates;
use crate::walk::{Seen, Walk};
use crate::{LeafPlace, RolexError, RolexSession};

/// What a leaf that was looked at turned out to be, instead of the key's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Looked {
    pub(crate) place: LeafPlace,
    pub(crate) lock: LockWord,
    pub(crate) seen: Seen,
}

impl RolexSession {
    /// The version of `key`, its value in `value`; 0: it is absent. If the leaves that are predicted were
    /// looked at already, the way begins behind what came of that.
    pub(crate) async fn get<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
        looked: Option<Looked>,
        value: &mut [u8],
    ) -> Result<u64, RolexError> {
        let geometry = *self.table().geometry();
        let candidates = self.candidates(slot, key).await?;
        let mut block = self.block();
        let lines = &mut block[..geometry.leaf().leaf_lines()];
        let looked = match looked {
            Some(looked) => looked,
            None => match self.look_at(slot, &candidates, key, lines, value).await? {
                Ok(version) => return Ok(version),
                Err(looked) => looked,
            },
        };
        let mut walk = Walk::new(self, key);
        let Looked { mut place, mut lock, mut seen } = looked;
        self.count(|counters| counters.slow_path += 1);
        loop {
            place = walk.next(slot, place, lock, seen).await?;
            self.post_leaves(slot, &[place], lines.len());
            slot.completed().await;
            slot.take_read(place.node(), 0, lines)?;
            match search_leaf(&geometry, lines, key, value) {
                (_, Ok(version)) => {
                    self.learn(slot, &walk, &candidates, lines, place, key).await;
                    return Ok(version);
                }
                (found, Err(other)) => (lock, seen) = (found, other),
            }
        }
    }

    /// READs all candidates; the answer, or the last of them whose keys do not all lie right of this one.
    async fn look_at<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        candidates: &Candidates,
        key: u64,
        lines: &mut [Line],
        value: &mut [u8],
    ) -> Result<Result<u64, Looked>, RolexError> {
        self.post_leaves(slot, candidates.leaves(), lines.len());
        slot.completed().await;
        for (index, place) in candidates.leaves().iter().enumerate().rev() {
            slot.take_read(place.node(), index, lines)?;
            match search_leaf(self.table().geometry(), lines, key, value) {
                (_, Ok(version)) => return Ok(Ok(version)),
                (_, Err(Seen::Left | Seen::Closed)) => {}
                (lock, Err(seen)) => return Ok(Err(Looked { place: *place, lock, seen })),
            }
        }
        Ok(Err(Looked::left_of(candidates.leaves()[candidates.likeliest()])))
    }

    /// Posts READs of whole leaves, verb by verb.
    pub(crate) fn post_leaves<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        places: &[LeafPlace],
        lines: usize,
    ) {
        for (verb, place) in places.iter().enumerate() {
            slot.post_read(place.node(), verb, self.table().address(*place, 0), lines, ReadMode::Stamped);
        }
    }

    /// After a walk: remembers the leaf, and asks for a newer image when that has happened often.
    pub(crate) async fn learn<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        walk: &Walk<'_>,
        candidates: &Candidates,
        lines: &[Line],
        place: LeafPlace,
        key: u64,
    ) {
        let key_lines = lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part");
        let Some(fences) = KeyLines(key_lines).fences().filter(|_| walk.has_walked()) else { return };
        if self.hints.note_found(candidates.group, walk.found(fences.low, place)) {
            // The operation is done. What was replaced while it was READ is fetched another time, and a
            // fabric that failed says so to the next operation.
            let _ = self.hints.refresh(slot, key).await;
        }
    }
}

impl Looked {
    /// All candidates lie right of the key, or are no leaves; the likeliest stands at `place`.
    fn left_of(place: LeafPlace) -> Self {
        Self { place, lock: LockWord::FREE, seen: Seen::Left }
    }

    /// What the key part of the one candidate, READ at `place`, says of a key that is not there; `None`: the
    /// key is absent.
    #[cold]
    pub(crate) fn at(place: LeafPlace, key_lines: &[Line; KEY_LINES], key: u64) -> Option<Self> {
        match seen_in(miss_in_block(key_lines, key), key_lines) {
            Ok(_) => None,
            Err(Seen::Left | Seen::Closed) => Some(Self::left_of(place)),
            Err(seen) => Some(Self { place, lock: lock_of(key_lines), seen }),
        }
    }
}

/// A leaf's lock, and its answer or what else it was.
pub(crate) fn search_leaf(
    geometry: &BlockGeometry,
    lines: &[Line],
    key: u64,
    value: &mut [u8],
) -> (LockWord, Result<u64, Seen>) {
    let key_lines = lines.first_chunk().expect("a leaf has a key part");
    (lock_of(key_lines), seen_in(search_block(geometry, lines, key, value), key_lines))
}

fn seen_in(found: BlockSearch, key_lines: &[Line; KEY_LINES]) -> Result<u64, Seen> {
    match found {
        BlockSearch::Hit(version) => Ok(version),
        BlockSearch::Absent => Ok(0),
        BlockSearch::Right(next) => Err(Seen::right_of(KeyLines(key_lines).fences(), next)),
        BlockSearch::Left => Err(Seen::Left),
        BlockSearch::Changing => Err(Seen::Busy),
        BlockSearch::Closed => Err(Seen::Closed),
    }
}
