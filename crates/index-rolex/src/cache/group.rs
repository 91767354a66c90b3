//! A group in a compute node's memory: its model, its leaves, and the leaves that split off since.

use std::ops::Range;
use std::sync::Arc;

use farsight_base::words::prefetch;
use farsight_layout::learned::{GroupEntry, GroupImage, GroupTime, ImageError, SEGMENT_WORDS};
use farsight_model::{ErrorBound, KeyQuanta, Segment, fit_segments, segment_of};

use crate::walk::FoundLeaf;
use crate::{LeafPlace, PoolTable};

/// How far a prediction may be off: half of a leaf.
pub const ERROR_BOUND: ErrorBound = ErrorBound { records: 8, slots: farsight_layout::LEAF_SLOTS as u32 };

/// Leaves that are READ for one key at first. Trained groups name one, hardly ever two.
pub const CANDIDATES_MAX: usize = 3;

/// Synonyms that are remembered of one group. Of more, every other one is forgotten: more steps find it.
const SYNONYMS_MAX: usize = 1024;

/// A group's model and its leaves in key order, all of them places of the table. A copy shares both.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    time: GroupTime,
    segment_count: u32,
    /// The segments' words, then an entry a leaf: together, so that a prediction follows one pointer.
    words: Arc<[u64]>,
}

/// What is left of a group's leaves when a key's segment has been found.
#[derive(Clone, Debug)]
pub(super) struct Window {
    positions: Range<u32>,
    quanta: KeyQuanta,
}

impl Window {
    /// No leaf.
    pub(super) const NONE: Self = Self { positions: 0..0, quanta: KeyQuanta::NONE };
}

impl Group {
    fn new(time: GroupTime, segments: &[Segment], entries: impl Iterator<Item = GroupEntry>) -> Self {
        let segment_count = u32::try_from(segments.len()).expect("a group has few segments");
        let words = segments.iter().flat_map(Segment::to_words).chain(entries.map(|entry| entry.0)).collect();
        Self { time, segment_count, words }
    }

    /// The group of a table that has no directory yet.
    pub(super) fn of_first_leaf(first: LeafPlace) -> Self {
        Self::train(GroupTime { generation: 1, splits: 0 }, &[(0, first)])
    }

    /// Trains a group on its leaves: their low fences, strictly increasing, and places.
    ///
    /// # Panics
    /// If there is no leaf, or fences do not increase.
    #[must_use]
    pub fn train(time: GroupTime, leaves: &[(u64, LeafPlace)]) -> Self {
        let fences: Vec<u64> = leaves.iter().map(|(low, _)| *low).collect();
        let segments = fit_segments(&fences, ERROR_BOUND);
        let mut entries = Vec::with_capacity(leaves.len());
        for (index, segment) in segments.iter().enumerate() {
            let end = segments.get(index + 1).map_or(leaves.len(), |next| next.first_position() as usize);
            let run = &leaves[segment.first_position() as usize..end];
            let entry = |(low, place): &(u64, LeafPlace)| {
                GroupEntry::new(place.leaf_number(), segment.leaf_hint(*low))
            };
            entries.extend(run.iter().map(entry));
        }
        Self::new(time, &segments, entries.into_iter())
    }

    /// The words of its image.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let entries = self.entries().iter().map(|entry| GroupEntry(*entry)).collect();
        GroupImage { time: self.time, segments: self.segments().to_vec(), entries }.to_words()
    }

    /// The group that these words are the image of, if all of its leaves are places of `table`.
    ///
    /// # Errors
    /// [`ImageError`]: stale, torn or hostile.
    pub fn from_words(words: &[u64], table: &PoolTable) -> Result<Self, ImageError> {
        let image = GroupImage::from_words(words)?;
        let wrong = |what, expected, got| ImageError { piece: "group image", what, expected, got };
        let mut segments: Vec<Segment> = Vec::with_capacity(image.segments.len());
        for words in image.segments {
            let segment = Segment::from_words(words).ok_or_else(|| wrong("segment's line", 0, words[1]))?;
            let least = segments.last().map_or(0, |before| u64::from(before.first_position()) + 1);
            let is_next = match segments.last() {
                None => segment.first_position() == 0,
                Some(before) => {
                    u64::from(segment.first_position()) >= least && segment.first_key > before.first_key
                }
            };
            if !is_next || segment.first_position() as usize >= image.entries.len() {
                return Err(wrong("segment's first position", least, segment.first_position().into()));
            }
            segments.push(segment);
        }
        if let Some(entry) = image.entries.iter().find(|entry| table.place(entry.place()).is_none()) {
            return Err(wrong("leaf's place", 0, entry.place().0.into()));
        }
        Ok(Self::new(image.time, &segments, image.entries.into_iter()))
    }

    #[inline]
    fn segments(&self) -> &[[u64; SEGMENT_WORDS]] {
        self.words[..self.segment_count as usize * SEGMENT_WORDS].as_chunks().0
    }

    /// The entries' words.
    #[inline]
    fn entries(&self) -> &[u64] {
        &self.words[self.segment_count as usize * SEGMENT_WORDS..]
    }

    #[inline]
    fn entry(&self, position: u32) -> GroupEntry {
        GroupEntry(self.entries()[position as usize])
    }

    /// When it was trained.
    #[must_use]
    pub fn time(&self) -> GroupTime {
        self.time
    }

    /// The group's least key: which group it is.
    #[must_use]
    pub fn boundary(&self) -> u64 {
        self.words[0]
    }

    /// Its leaves.
    #[must_use]
    pub fn leaf_count(&self) -> usize {
        self.entries().len()
    }

    /// Its segments.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segment_count as usize
    }

    /// The places of its leaves, in key order; the first one holds the group's least key.
    pub fn places(&self, table: &PoolTable) -> impl Iterator<Item = LeafPlace> {
        let place = |entry: &u64| table.place(GroupEntry(*entry).place());
        self.entries().iter().map(move |entry| place(entry).expect("places were checked"))
    }

    /// Bytes of its segments and entries.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Asks for the lines that a search for a key's segment by halves looks at first.
    #[inline]
    pub(super) fn prefetch_segments(&self) {
        let segments = self.segments();
        for quarter in 1..4 {
            prefetch(&segments[segments.len() * quarter / 4]);
        }
    }

    /// What the line of the segment of `key` leaves.
    #[inline]
    pub(super) fn window(&self, key: u64) -> Window {
        let leaf_count = self.entries().len() as u32;
        let (segment, end) =
            segment_of(self.segments(), leaf_count, key, |words| Segment::from_checked_words(*words));
        let positions = segment.predict(key, end, ERROR_BOUND).window;
        Window { positions, quanta: segment.quanta(key) }
    }

    /// Asks for the entries of a window.
    #[inline]
    pub(super) fn prefetch_entries(&self, window: &Window) {
        let entries = self.entries();
        prefetch(&entries[window.positions.start as usize]);
        prefetch(&entries[window.positions.end as usize - 1]);
    }

    /// The positions of `window` that hints leave: those of the leaves that can own the key.
    #[inline]
    pub(super) fn choose(&self, window: &Window) -> Range<u32> {
        let chosen = window.quanta.choose(window.positions.clone(), |position| self.entry(position).hint());
        // Of more than are READ at once (hints that say nothing) the last. If the key lies left of them, the
        // group's first leaf leads to it.
        chosen.start.max(chosen.end.saturating_sub(CANDIDATES_MAX as u32))..chosen.end
    }

    /// The positions of the leaves that can own `key`.
    #[inline]
    pub(super) fn positions(&self, key: u64) -> Range<u32> {
        self.choose(&self.window(key))
    }
}

/// A leaf that split off from one of a group's leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Synonym {
    low: u64,
    /// The group's leaf that its keys are predicted to.
    position: u32,
    place: LeafPlace,
}

impl Synonym {
    fn of(group: &Group, low: u64, place: LeafPlace) -> Self {
        // The last candidate begins at or below the key.
        Self { low, position: group.positions(low).end - 1, place }
    }
}

/// A group with what was found beside it; a copy shares both.
#[derive(Clone, Debug)]
pub(super) struct CachedGroup {
    pub(super) group: Group,
    /// By their low fences.
    synonyms: Arc<[Synonym]>,
}

impl CachedGroup {
    /// A new image, beside leaves that were found before: those that it does not name, in key order.
    pub(super) fn new(group: Group, found: impl Iterator<Item = (u64, LeafPlace)>) -> Self {
        let named: std::collections::HashSet<u32> =
            group.entries().iter().map(|entry| GroupEntry(*entry).place().0).collect();
        let kept = found.filter(|(_, place)| !named.contains(&place.leaf_number().0));
        let synonyms = kept.take(SYNONYMS_MAX).map(|(low, place)| Synonym::of(&group, low, place)).collect();
        Self { group, synonyms }
    }

    /// The low fences and places of the leaves that were found beside the image.
    pub(super) fn synonyms(&self) -> impl Iterator<Item = (u64, LeafPlace)> {
        self.synonyms.iter().map(|synonym| (synonym.low, synonym.place))
    }

    pub(super) fn synonym_bytes(&self) -> usize {
        size_of_val(&*self.synonyms)
    }

    /// This group with one more synonym; `None` if nothing is new, or it is no multiple of `stride` steps
    /// from one that is known. Where half of them are forgotten, `stride` doubles.
    pub(super) fn with(&self, leaf: FoundLeaf, stride: &mut u32) -> Option<Self> {
        let FoundLeaf { steps, low, place } = leaf;
        let synonym = Synonym::of(&self.group, low, place);
        let at = self.synonyms.partition_point(|other| other.low < synonym.low);
        let known = self.synonyms.get(at).copied().filter(|other| other.low == low);
        if known == Some(synonym) || known.is_none() && !steps.is_multiple_of(*stride) {
            return None;
        }
        let mut synonyms = self.synonyms.to_vec();
        match known {
            Some(_) => synonyms[at] = synonym,
            None => synonyms.insert(at, synonym),
        }
        if synonyms.len() > SYNONYMS_MAX {
            // From the one before, its leaf is found by steps. The new one stays.
            *stride = stride.saturating_mul(2);
            let mut index = 0;
            synonyms.retain(|_| {
                index += 1;
                (index - 1) % 2 == at % 2
            });
        }
        Some(Self { group: self.group.clone(), synonyms: synonyms.into() })
    }

    /// This group without the synonyms at `place`; `None` if there is none.
    pub(super) fn without(&self, place: LeafPlace) -> Option<Self> {
        let is_another = |synonym: &&Synonym| synonym.place != place;
        if self.synonyms.iter().all(|synonym| is_another(&synonym)) {
            return None;
        }
        let synonyms = self.synonyms.iter().filter(is_another).copied().collect();
        Some(Self { group: self.group.clone(), synonyms })
    }

    /// Up to `count` leaves from the one at or below `key` on, in key order: the group's own, and those that
    /// split off from them.
    pub(super) fn range(&self, table: &PoolTable, key: u64, count: usize, leaves: &mut Vec<LeafPlace>) {
        let first = self.group.positions(key).end - 1;
        leaves.push(self.place(table, first, key));
        let mut behind = self.synonyms[self.synonyms.partition_point(|synonym| synonym.low <= key)..].iter();
        let mut next = behind.next();
        for position in first..self.group.leaf_count() as u32 {
            if position > first && leaves.len() < count {
                leaves.push(self.own_place(table, position));
            }
            while let Some(synonym) = next.filter(|synonym| synonym.position <= position)
                && leaves.len() < count
            {
                leaves.push(synonym.place);
                next = behind.next();
            }
            if leaves.len() >= count {
                return;
            }
        }
    }

    /// [`CachedGroup::range`] downwards: from the leaf at or below `key` on.
    pub(super) fn range_down(&self, table: &PoolTable, key: u64, count: usize, leaves: &mut Vec<LeafPlace>) {
        let first = self.group.positions(key).end - 1;
        let mut below = self.synonyms.partition_point(|synonym| synonym.low <= key);
        for position in (0..=first).rev() {
            while let Some(synonym) = below.checked_sub(1).map(|index| &self.synonyms[index])
                && synonym.position >= position
                && leaves.len() < count
            {
                leaves.push(synonym.place);
                below -= 1;
            }
            if leaves.len() >= count {
                return;
            }
            leaves.push(self.own_place(table, position));
        }
    }

    #[inline]
    fn own_place(&self, table: &PoolTable, position: u32) -> LeafPlace {
        table.place(self.group.entry(position).place()).expect("places were checked")
    }

    /// The place at `position` for `key`: the group's leaf, or the last known leaf that split off from it at
    /// or below the key.
    #[inline]
    pub(super) fn place(&self, table: &PoolTable, position: u32, key: u64) -> LeafPlace {
        let below = self.synonyms.partition_point(|synonym| synonym.low <= key);
        match self.synonyms[..below].last().filter(|synonym| synonym.position == position) {
            Some(synonym) => synonym.place,
            None => self.own_place(table, position),
        }
    }
}
