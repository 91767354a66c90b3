//! Sub-models that the cache lacks, READ from the region where the server publishes them: one more READ, and
//! nothing for the server's processor to do.
//!
//! Invariant: what is READ is validated as what a reply brings is, and is no proof either. A record counts if
//! its checksum, its generation and its number are right ([`farsight_layout::published`]).
//!
//! Protocol: the keys of a batch that have no sub-model go through rounds together. Each round READs one
//! record for each number that any of them wants, the same one once, with one doorbell. A branch says where
//! its keys go on; a record that stands elsewhere is READ there. What came goes into the cache as far as its
//! budget allows, and serves this batch in any case. Where the slots of a generation are, the root line says;
//! a session READs it once a generation, and when a number has no slot or a record is none.
//!
//! Bounds: a key is left to the server when a record was none twice, or after [`ROUNDS_MAX`] rounds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use farsight_base::sync::AtomicU64;
use farsight_base::{LINE_BYTES, LeafNumber, Line, RegionId, RemoteAddress};
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::published::{
    PUBLISHED_LINES_MAX, PUBLISHED_SLOT_LINES, PublishedRecord, PublishedRoot, published_record,
};
use farsight_protocol::{
    BRANCH_LEVELS_MAX, ModelReader, SentBranch, SentModel, SentSubModel, Space, TableInfo, Words,
};

use super::block::{CachedSubModel, words_in_lines};
use super::cache::CachedModel;
use super::refresh::request_slot;
use super::route::Route;
use super::{XClient, XStoreError};

/// Rounds of READs at most: two for each part of the longest path, and two more.
const ROUNDS_MAX: usize = 2 * (BRANCH_LEVELS_MAX + 1) + 2;
/// Times that a key's record may be none.
const FAULTS_MAX: u8 = 2;

/// The region, and what a session knows of it.
pub(super) struct Published {
    region: RegionId,
    /// Its lines; zero: there is none.
    lines: u64,
    root: PublishedRoot,
    /// A generation newer than the model's that a record or root was of; zero: none.
    newer: u64,
    searches: Vec<Descent>,
    /// What was READ for the keys at hand, by number.
    parts: BTreeMap<u32, ReadPart>,
    /// READs of this round: of which number, and where it stands.
    wanted: Vec<(u32, Range<u64>)>,
    room: Vec<Line>,
}

/// A key on its way to its sub-model.
struct Descent {
    key: u64,
    number: u32,
    /// Where the record of `number` stands, if not in its slot.
    elsewhere: Option<Range<u64>>,
    faults: u8,
    state: DescentState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DescentState {
    UnderWay,
    Found,
    Failed,
}

/// What a number stands for.
enum ReadPart {
    SubModel(Box<[AtomicU64]>),
    Branch { boundaries: Vec<u64>, children: Vec<u32> },
}

impl ReadPart {
    fn of_branch(sent: &SentBranch<'_>) -> Self {
        Self::Branch { boundaries: sent.boundaries.iter().collect(), children: sent.children().collect() }
    }

    fn of_sub_model(sent: &SentSubModel<'_>) -> Self {
        let entries: Vec<u64> = sent.entries.iter().collect();
        Self::SubModel(words_in_lines(&sent.record, &entries).into_iter().map(AtomicU64::new).collect())
    }
}

impl Published {
    /// Of a table that is described so.
    pub(super) fn new(table: &TableInfo) -> Self {
        // A node that names no region publishes nothing.
        let region = table.region_of(Space::Meta).map(|region| (region.id(), u64::from(region.capacity)));
        let (region, lines) = region.unwrap_or((RegionId(0), 0));
        Self {
            region,
            lines,
            root: PublishedRoot::default(),
            newer: 0,
            searches: Vec::new(),
            parts: BTreeMap::new(),
            wanted: Vec::new(),
            room: Vec::new(),
        }
    }

    /// True if there is something to READ.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.lines > 0
    }

    /// True if sub-models were READ for the keys at hand, or could not be.
    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        !self.searches.is_empty()
    }

    /// Forgets what was READ: the keys at hand are answered.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.is_in_use() {
            self.searches.clear();
            self.parts.clear();
        }
    }

    /// The route of a key at hand by its sub-model that was READ.
    pub(super) fn route<'a>(&'a self, model: &'a CachedModel, key: u64) -> Option<Route<'a>> {
        let index = self.searches.binary_search_by_key(&key, |search| search.key).ok()?;
        let search = &self.searches[index];
        if search.state != DescentState::Found {
            return None;
        }
        let ReadPart::SubModel(words) = self.parts.get(&search.number)? else { return None };
        let generation = model.newest();
        let sub_model = CachedSubModel::in_lines(words, generation.region_leaves())?;
        Some(Route::of(generation, sub_model, key))
    }

    /// The lines of `range`, if the region has them.
    fn bounded(&self, first: u64, lines: usize) -> Option<Range<u64>> {
        let end = first.checked_add(lines as u64)?;
        (first > 0 && end <= self.lines).then_some(first..end)
    }

    /// What the search at `index` wants next; `None` if it ends.
    fn next_place(&self, search: &Descent) -> Option<Range<u64>> {
        let slot = || self.bounded(self.root.slot(search.number)?, PUBLISHED_SLOT_LINES);
        search.elsewhere.clone().or_else(slot)
    }

    /// Takes searches as far as what was READ already leads; those that need more are left under way.
    fn advance(&mut self) {
        let Self { searches, parts, .. } = self;
        for search in searches.iter_mut().filter(|search| search.state == DescentState::UnderWay) {
            for _ in 0..=BRANCH_LEVELS_MAX {
                match parts.get(&search.number) {
                    None => break,
                    Some(ReadPart::SubModel(_)) => {
                        search.state = DescentState::Found;
                        break;
                    }
                    Some(ReadPart::Branch { boundaries, children }) => {
                        let index = boundaries.partition_point(|boundary| *boundary <= search.key);
                        // A branch has a child more than boundaries.
                        search.number = children[index];
                        search.elsewhere = None;
                    }
                }
            }
        }
    }

    /// The record of `number` was none: those that want it look once more, in its slot.
    fn note_fault(&mut self, number: u32) {
        for search in &mut self.searches {
            if search.state == DescentState::UnderWay && search.number == number {
                search.elsewhere = None;
                search.faults += 1;
                if search.faults >= FAULTS_MAX {
                    search.state = DescentState::Failed;
                }
            }
        }
    }

    fn under_way(&self) -> impl Iterator<Item = &Descent> {
        self.searches.iter().filter(|search| search.state == DescentState::UnderWay)
    }

    fn address(&self, line: u64) -> RemoteAddress {
        RemoteAddress { region: self.region, offset_bytes: line * LINE_BYTES as u64 }
    }
}

impl XClient {
    /// READs the sub-models of `keys`, none of which the cache has, for as many as a doorbell takes. Then
    /// [`Published::route`] knows them, and so does the cache as far as its budget allows.
    ///
    /// # Errors
    /// [`XStoreError::Fabric`].
    #[cold]
    #[inline(never)]
    pub(super) fn read_sub_models<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        model: &Arc<CachedModel>,
        keys: impl Iterator<Item = u64>,
    ) -> Result<(), XStoreError> {
        self.published.clear();
        if !self.published.is_there() {
            return Ok(());
        }
        let search = |key| Descent {
            key,
            number: model.locate(key).number,
            elsewhere: None,
            faults: 0,
            state: DescentState::UnderWay,
        };
        self.published.searches.extend(keys.map(search));
        // In their order keys of one sub-model are neighbours.
        self.published.searches.sort_unstable_by_key(|search| search.key);
        if !model.is_full() {
            // There is room for their neighbours, too.
            for search in &self.published.searches {
                self.refreshes.count_nowhere(model, search.key);
            }
        }
        if self.published.root.generation != model.generation() {
            self.read_root(queue, model.generation())?;
        }
        for _ in 0..ROUNDS_MAX {
            self.published.advance();
            if self.published.under_way().next().is_none() {
                break;
            }
            self.read_round(queue, model)?;
        }
        for search in &mut self.published.searches {
            if search.state == DescentState::UnderWay {
                search.state = DescentState::Failed;
            }
        }
        Ok(())
    }

    /// READs the root line. Without one of this generation nothing has a slot.
    fn read_root<Q: QueuePair>(&mut self, queue: &mut Q, generation: u64) -> Result<(), FabricError> {
        let mut line = [Line::ZERO];
        queue.post_read(0, self.published.address(0), 1, ReadMode::Plain);
        queue.doorbell()?;
        queue.drain_slot(0)?;
        queue.take_read(0, &mut line)?;
        let root = PublishedRoot::from_line(&line[0]).unwrap_or_default();
        if root.generation > generation {
            self.published.newer = root.generation;
        }
        self.published.root = if root.generation == generation { root } else { PublishedRoot::default() };
        Ok(())
    }

    /// One round: what each search wants next, the same record once.
    fn read_round<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        model: &Arc<CachedModel>,
    ) -> Result<(), XStoreError> {
        let mut wanted = std::mem::take(&mut self.published.wanted);
        wanted.clear();
        let mut is_without_slot = false;
        for index in 0..self.published.searches.len() {
            let search = &self.published.searches[index];
            let is_there = wanted.last().is_some_and(|(number, _)| *number == search.number);
            if search.state != DescentState::UnderWay || is_there {
                continue;
            }
            let number = search.number;
            match self.published.next_place(search) {
                Some(place) if wanted.len() < request_slot::<Q>() => wanted.push((number, place)),
                // The next round's.
                Some(_) => {}
                None => {
                    is_without_slot = true;
                    self.published.note_fault(number);
                }
            }
        }
        let done = self.read_wanted(queue, model, &wanted);
        self.published.wanted = wanted;
        if done? | is_without_slot && self.published.under_way().next().is_some() {
            // An extent may be new, and so may the generation.
            self.read_root(queue, model.generation())?;
        }
        Ok(())
    }

    /// READs these records and takes what they say. True if one of them was none.
    fn read_wanted<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        model: &Arc<CachedModel>,
        wanted: &[(u32, Range<u64>)],
    ) -> Result<bool, XStoreError> {
        for (slot, (_, place)) in wanted.iter().enumerate() {
            let lines = (place.end - place.start) as usize;
            queue.post_read(slot, self.published.address(place.start), lines, ReadMode::Plain);
        }
        queue.doorbell()?;
        let mut room = std::mem::take(&mut self.published.room);
        room.resize(PUBLISHED_LINES_MAX, Line::ZERO);
        let mut has_fault = false;
        let mut done = Ok(());
        for (slot, (number, place)) in wanted.iter().enumerate() {
            let lines = &mut room[..(place.end - place.start) as usize];
            done = queue.drain_slot(slot).and_then(|()| queue.take_read(slot, lines));
            if done.is_err() {
                break;
            }
            if !self.take_record(model, *number, lines) {
                has_fault = true;
                self.published.note_fault(*number);
            }
        }
        self.published.room = room;
        done?;
        Ok(has_fault)
    }

    /// Takes what the record of `number` says; false if it is none.
    fn take_record(&mut self, model: &Arc<CachedModel>, number: u32, lines: &[Line]) -> bool {
        let part = match published_record(lines, model.generation(), number) {
            Ok(PublishedRecord::Part(part)) => part,
            Ok(PublishedRecord::Elsewhere { first_line, lines }) => {
                let place = self.published.bounded(first_line.into(), lines as usize);
                let is_new = |search: &Descent| search.number == number && search.elsewhere.is_none();
                let mut has_any = false;
                for search in self.published.searches.iter_mut().filter(|search| is_new(search)) {
                    search.elsewhere.clone_from(&place);
                    has_any = true;
                }
                return place.is_some() && has_any;
            }
            Err(_) => return false,
        };
        let words = Words::new("a published part of the model", part);
        let Ok(Some(sent)) = words.and_then(|words| ModelReader::new(words).read()) else { return false };
        // What the cache refuses no reader may follow. That it has no room is no refusal.
        if self.cache.install_part(model, &sent).is_err() {
            return false;
        }
        let part = match &sent {
            // Of no keys by now: the server knows whose they are.
            SentModel::SubModel(sent) if sent.record.leaf_count == 0 => return false,
            SentModel::SubModel(sent) => ReadPart::of_sub_model(sent),
            SentModel::Branch(sent) => ReadPart::of_branch(sent),
        };
        self.counters.sub_models_fetched += u64::from(matches!(part, ReadPart::SubModel(_)));
        self.published.parts.insert(number, part);
        true
    }

    /// The likeliest leaf of a key whose sub-model was READ.
    pub(super) fn published_leaf(&self, model: &CachedModel, key: u64) -> LeafNumber {
        self.published.route(model, key).map_or(LeafNumber::NONE, |route| route.leaf)
    }

    /// The keys at hand are answered. Fetches the generation of which a root told, if it is newer.
    pub(super) fn end_published<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        self.published.clear();
        match std::mem::take(&mut self.published.newer) {
            0 => Ok(()),
            newer => self.fetch_generation(queue, newer),
        }
    }
}
