//! Writes that another write overtook while they waited for their leaf's lock: they are done.
//!
//! Invariant: an update that is done here took effect right before another write of its key, which took
//! effect while it was under way. Nobody can have seen the leaf between the two.
//!
//! Protocol: a writer READs its leaf behind each attempt at the lock, also if somebody else holds that. Two
//! such READs may show its key in one slot of one incarnation, under different versions. Then the key was
//! present all the time, and a write of it took effect between them. If that did not look at the value, one
//! that does not either may have come right before it, and leaves nothing behind. [`PairVersion`] tells such
//! writes apart.

use farsight_base::Line;
use farsight_fabric::ReadMode;
use farsight_index::PairVersion;
use farsight_layout::pool::{BlockGeometry, hit_in_block};
use farsight_layout::{KEY_LINES, LeafSlot, VALUE_BYTES_MAX};
use farsight_protocol::{WriteOperation, WriteOutcome};

#[cfg(injected)]
use crate::injected;
use crate::{LeafPlace, Write};

/// What a write that does not get its leaf's lock has seen of its key there.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Watch(Option<Sighting>);

/// A key as one READ showed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sighting {
    place: LeafPlace,
    incarnation: u32,
    slot: LeafSlot,
    version: u64,
}

/// True of writes that replace a value, whatever it is, and need not know it.
fn may_be_overtaken(operation: WriteOperation) -> bool {
    matches!(operation, WriteOperation::Update | WriteOperation::Put)
}

/// How a write READs its leaf behind the lock. Only if the lock is another's does it matter that lines come
/// whole.
pub(crate) fn read_mode(operation: WriteOperation) -> ReadMode {
    if may_be_overtaken(operation) { ReadMode::Stamped } else { ReadMode::Plain }
}

impl Watch {
    /// This one, or the other if this one saw nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }

    /// Looks at the block of the leaf at `place`, READ as [`read_mode`] says while somebody else held its
    /// lock, and since the write began. The write's outcome, if another has overtaken it.
    pub(crate) fn look(
        &mut self,
        write: &Write<'_>,
        geometry: &BlockGeometry,
        (place, block): (LeafPlace, &[Line]),
    ) -> Option<WriteOutcome> {
        if !may_be_overtaken(write.operation) {
            return None;
        }
        let now = Sighting::of(geometry, (place, block), write.key)?;
        let Some(before) = self.0.filter(|before| now.is_of_pair(*before)) else {
            self.0 = Some(now);
            return None;
        };
        #[cfg(injected)]
        if injected::OVERTAKEN_BY_NONE.is_injected() {
            return Some(WriteOutcome::Replaced(now.version | 1));
        }
        let overtaken = PairVersion(now.version).overtaken()?;
        (overtaken > before.version).then_some(WriteOutcome::Replaced(overtaken))
    }
}

/// The version of the next write to a leaf whose newest one is this; `None` if there are no more.
pub(crate) fn next_version(newest: u64, is_conditional: bool) -> Option<u64> {
    #[cfg(injected)]
    let is_conditional = is_conditional && !injected::OVERTAKEN_BY_ANY.is_injected();
    PairVersion::next(newest, is_conditional)
}

impl Sighting {
    /// A key that a GET would find in these lines.
    fn of(geometry: &BlockGeometry, (place, block): (LeafPlace, &[Line]), key: u64) -> Option<Self> {
        let leaf = geometry.leaf();
        let (slot, incarnation) = hit_in_block(block.first_chunk::<KEY_LINES>()?, key)?;
        let at = leaf.value_place(slot);
        let mut value = [0; VALUE_BYTES_MAX];
        let value = &mut value[..leaf.value_bytes()];
        let lines = &block[at.line..][..leaf.lines_per_value()];
        let version = leaf.read_value(lines, at, incarnation, value).ok()?;
        Some(Self { place, incarnation, slot, version })
    }

    /// True if the key was present from one sighting to the other: its slot serves one key, once.
    fn is_of_pair(self, before: Self) -> bool {
        let pair = |of: Self| (of.place, of.incarnation, of.slot);
        pair(self) == pair(before)
    }
}

#[cfg(test)]
mod tests {
    use farsight_layout::pool::{LockWord, LockedLeaf, Writes};

    use super::*;
    use crate::plan::{Planned, plan_locked};

    const KEY: u64 = 77;

    /// A leaf that somebody holds, as READs see it.
    struct Held {
        geometry: BlockGeometry,
        block: Vec<Line>,
    }

    impl Held {
        fn new(value_bytes: usize) -> Self {
            let geometry = BlockGeometry::new(value_bytes).unwrap();
            let words = geometry.first_leaf();
            let block = words.as_chunks().0.iter().map(|words| Line(*words)).collect();
            let mut held = Self { geometry, block };
            held.leaf().unlock(LockWord::of(1, 1), &mut Writes::default());
            held
        }

        fn leaf(&mut self) -> LockedLeaf<'_> {
            LockedLeaf::new(&self.geometry, place().leaf_number(), &mut self.block)
        }

        fn write(&mut self, operation: WriteOperation) -> WriteOutcome {
            let value = vec![3; self.geometry.leaf().value_bytes()];
            let write = Write { operation, key: KEY, value: &value, old: &[] };
            match plan_locked(&mut self.leaf(), None, &write, &mut Writes::default()) {
                Planned::Done(outcome) => outcome,
                other => panic!("{other:?}"),
            }
        }

        fn look(&self, watch: &mut Watch, operation: WriteOperation) -> Option<WriteOutcome> {
            let write = Write { operation, key: KEY, value: &[], old: &[] };
            watch.look(&write, &self.geometry, (place(), &self.block))
        }
    }

    fn place() -> LeafPlace {
        LeafPlace::new(0, 5).unwrap()
    }

    fn version(outcome: WriteOutcome) -> u64 {
        match outcome {
            WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) => version,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_update_that_another_one_overtook_is_done_between_the_two() {
        use WriteOperation::{Insert, Put, Update};
        for value_bytes in [8, 16, 120] {
            let mut held = Held::new(value_bytes);
            let mut watches = [Watch::default(); 2];
            assert_eq!(held.look(&mut watches[0], Update), None, "the key is absent");
            let first = version(held.write(Insert));
            for watch in &mut watches {
                assert_eq!(held.look(watch, Update), None, "nothing to compare with");
                assert_eq!(held.look(watch, Update), None, "nothing has happened");
            }
            let second = version(held.write(Update));
            for (watch, operation) in watches.iter_mut().zip([Update, Put]) {
                let own = version(held.look(watch, operation).expect("overtaken"));
                assert!(first < own && own < second, "{first} < {own} < {second}");
            }
        }
    }

    #[test]
    fn a_key_that_was_removed_in_between_was_not_there_all_the_time() {
        use WriteOperation::{Insert, Remove, Update};
        let mut held = Held::new(8);
        let mut watch = Watch::default();
        held.write(Insert);
        assert_eq!(held.look(&mut watch, Update), None);
        held.write(Remove);
        assert_eq!(held.look(&mut watch, Update), None, "absent");
        held.write(Insert);
        assert_eq!(held.look(&mut watch, Update), None, "in another slot");
        held.write(Update);
        assert!(held.look(&mut watch, Update).is_some(), "there since the last look");
    }

    #[test]
    fn what_depends_on_the_value_is_never_overtaken() {
        use WriteOperation::{CompareAndSet, FetchAdd, Insert, Remove, Swap, Update};
        for operation in [Insert, Remove, CompareAndSet, FetchAdd, Swap] {
            let mut held = Held::new(8);
            let mut watch = Watch::default();
            held.write(Insert);
            assert_eq!(held.look(&mut watch, operation), None);
            held.write(Update);
            assert_eq!(held.look(&mut watch, operation), None, "{operation:?}");
        }
    }

    /// It told its caller what it found, and that was not the update's value.
    #[test]
    fn a_write_that_looked_at_the_value_overtakes_nobody() {
        use WriteOperation::{Insert, Swap, Update};
        let mut held = Held::new(8);
        let mut watch = Watch::default();
        held.write(Insert);
        assert_eq!(held.look(&mut watch, Update), None);
        held.write(Swap);
        assert_eq!(held.look(&mut watch, Update), None);
        held.write(Update);
        assert!(held.look(&mut watch, Update).is_some());
    }

    #[test]
    fn lines_that_are_changing_say_nothing() {
        let mut held = Held::new(8);
        let mut watch = Watch::default();
        held.write(WriteOperation::Insert);
        assert_eq!(held.look(&mut watch, WriteOperation::Update), None);
        held.write(WriteOperation::Update);
        let whole = held.block.clone();
        let leaf_lines = held.geometry.leaf().leaf_lines();
        held.block[..leaf_lines].iter_mut().for_each(|line| line.0[0] = line.stamp().changing().0);
        assert_eq!(held.look(&mut watch, WriteOperation::Update), None);
        held.block = whole;
        assert!(held.look(&mut watch, WriteOperation::Update).is_some());
    }
}
