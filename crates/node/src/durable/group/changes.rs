//! What a group changes, in the order in which it was decided, and what that leaves of each key.
//!
//! Invariant: a key of which [`Changes::presence`] says nothing is there after the group exactly if it was
//! before. [`Changes::latest`] knows all changes that were there when [`Changes::index`] was called last.
//!
//! Most groups write pairs that are there, and nobody looks for a value among them. So keys are found by a
//! map that is made when somebody does.

use std::ops::Range;

use farsight_base::LeafNumber;
use farsight_index_xstore::server::StagedReference;
use farsight_protocol::TableId;
use foldhash::HashMap;

/// One change to be applied.
pub(super) struct Change {
    pub(super) table: TableId,
    pub(super) key: u64,
    pub(super) version: u64,
    /// Where its value stands in the frame; `None` for a removal.
    pub(super) value: Option<Range<u32>>,
    /// What is stored in the value's place, in a table of blocks.
    pub(super) staged: Option<StagedReference>,
    pub(super) hint: LeafNumber,
    /// Where in the hinted leaf its key was seen, if it was.
    pub(super) slot: Option<u8>,
    /// Where its outcome stands in `outcomes`, if that is not written already.
    pub(super) outcome: Option<u32>,
}

/// The changes of a group.
#[derive(Default)]
pub(super) struct Changes {
    list: Vec<Change>,
    /// Keys that were absent and are stored, or the other way round: whether they are there.
    presence: HashMap<(TableId, u64), bool>,
    /// The last change of each key, of the first `indexed` ones.
    latest: HashMap<(TableId, u64), usize>,
    indexed: usize,
}

impl Change {
    /// Where its value stands in the frame; `None` for a removal.
    pub(super) fn value_place(&self) -> Option<Range<usize>> {
        self.value.as_ref().map(|place| place.start as usize..place.end as usize)
    }
}

impl Changes {
    /// Appends a change of a key that was there before, or was not.
    #[inline]
    pub(super) fn push(&mut self, change: Change, was_present: bool) {
        let is_present = change.value.is_some();
        if is_present != was_present {
            self.presence.insert((change.table, change.key), is_present);
        }
        self.list.push(change);
    }

    /// Whether a key is there after these changes, if that may differ from before.
    #[inline]
    pub(super) fn presence(&self, table: TableId, key: u64) -> Option<bool> {
        if self.presence.is_empty() { None } else { self.presence.get(&(table, key)).copied() }
    }

    /// Makes all changes known to [`Changes::latest`].
    pub(super) fn index(&mut self) {
        let behind = self.list.iter().enumerate().skip(self.indexed);
        self.latest.extend(behind.map(|(place, change)| ((change.table, change.key), place)));
        self.indexed = self.list.len();
    }

    /// The last change of a key, of those that are indexed.
    pub(super) fn latest(&self, table: TableId, key: u64) -> Option<&Change> {
        debug_assert_eq!(self.indexed, self.list.len(), "changes that are indexed");
        self.latest.get(&(table, key)).map(|place| &self.list[*place])
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn list(&self) -> &[Change] {
        &self.list
    }

    /// Takes all out again.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.presence.clear();
        self.latest.clear();
        self.indexed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(3);

    fn change(key: u64, version: u64, is_pair: bool) -> Change {
        let value = is_pair.then_some(0..8);
        let (hint, slot, outcome) = (LeafNumber::NONE, None, None);
        Change { table: TABLE, key, version, value, staged: None, hint, slot, outcome }
    }

    #[test]
    fn keys_are_known_by_presence_and_by_their_last_change() {
        let mut changes = Changes::default();
        assert_eq!(changes.presence(TABLE, 1), None);
        changes.push(change(1, 10, true), true);
        assert_eq!(changes.presence(TABLE, 1), None, "it was there, and is");
        changes.push(change(1, 11, false), true);
        changes.push(change(2, 12, true), false);
        assert_eq!([1, 2, 3].map(|key| changes.presence(TABLE, key)), [Some(false), Some(true), None]);
        assert_eq!(changes.presence(TableId(4), 2), None, "another table's key");
        changes.index();
        let version = |changes: &Changes, key: u64| changes.latest(TABLE, key).map(|change| change.version);
        assert_eq!([1, 2, 3].map(|key| version(&changes, key)), [Some(11), Some(12), None]);
        changes.push(change(1, 13, true), false);
        changes.push(change(2, 14, true), true);
        assert_eq!([1, 2].map(|key| changes.presence(TABLE, key)), [Some(true); 2]);
        changes.index();
        assert_eq!([1, 2].map(|key| version(&changes, key)), [Some(13), Some(14)]);
        changes.clear();
        changes.index();
        assert_eq!((changes.presence(TABLE, 1), version(&changes, 2), changes.len()), (None, None, 0));
    }
}
