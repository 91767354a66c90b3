//! The leaf as this client reads it: the one file of the client that knows the leaf's format.
//!
//! Invariant: what is said of a key here follows from the lines that were READ. The other files decide where
//! to READ and when, and where to look next.

use farsight_base::words::{Moves, SharedLine, Widest};
use farsight_base::{LeafNumber, Line, RegionId, RemoteAddress};
use farsight_fabric::filter::{Filter, Filtered};
use farsight_fabric::mapped::{
    Mapped as _, ask_lines, copy_known_lines, lines_in_place, read_alone, read_part, take_lines,
};
use farsight_fabric::{FabricError, QueuePair, ReadMode, Slot};
use farsight_index::{ConsistentLeaf, Extent};
use farsight_layout::{
    Geometry, GeometryError, KEY_WORDS_MASK, KeyLines, KeySearch, LeafSlot, SHORT_LEAF_LINES,
    SHORT_VALUE_BYTES, ShortPair, VALUE_LINES_MAX, ValueFault, find_key, find_short, hit_in_line, read_short,
    read_short_value,
};

pub(super) use farsight_layout::{KEY_LINES, with_value_lines};

/// Lines of the longest leaf that a single GET fetches whole: that of values of nine to sixteen bytes. A READ
/// of the next one, of nineteen lines, takes longer than two of a few.
const ALONE_LINES_MAX: usize = 11;

/// Where things stand in a table's leaves, and what their lines say.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafReader {
    geometry: Geometry,
}

/// A key found in a key part: where its value stands, and the incarnation that it must have. Other files
/// carry it about and look into none.
pub(super) type Hit = (LeafSlot, u32);

/// In place of a hit, where there is none.
pub(super) const NO_HIT: Hit = (LeafSlot::FIRST, 0);

/// What a key part says of a key.
#[derive(Clone, Copy)]
pub(super) enum Search {
    /// The key is here.
    Hit(Hit),
    /// The key belongs here and is not stored.
    Absent,
    /// The key belongs to the right, from the leaf's high fence on.
    Right {
        /// The right sibling.
        next: LeafNumber,
        /// The high fence.
        high: u64,
    },
    /// The key belongs to the left.
    Left,
    /// The lines changed under the READ.
    Changing,
    /// The lines are no leaf. If they were one, this may be the leaf that has its keys by now.
    Foreign(LeafNumber),
}

/// What a leaf's lines say of a key whose value they hold, too.
pub(super) enum Looked {
    /// It is there, of this version; its value has been copied.
    Value(u64),
    Absent,
    /// The lines prove nothing.
    Again,
    /// Neither a hit nor a proof of absence.
    Elsewhere(Search),
}

/// The key in a copied key part, if that holds it: the only part of [`search`] that most keys need.
#[inline(always)]
pub(super) fn find(lines: &[Line; KEY_LINES], key: u64) -> Option<Hit> {
    KeyLines(lines).hit(key)
}

/// [`find`] in a key part where it lies. None if it does not show the key plainly.
#[inline(always)]
pub(super) fn find_in_place(lines: &[SharedLine; KEY_LINES], key: u64, widest: Widest) -> Option<Hit> {
    find_key(lines, key, widest)
}

/// What a copied key part says of a key.
#[inline]
pub(super) fn search(lines: &[Line; KEY_LINES], key: u64) -> Search {
    match KeyLines(lines).search(key) {
        KeySearch::Hit { slot, incarnation } => Search::Hit((slot, incarnation)),
        KeySearch::Absent => Search::Absent,
        KeySearch::Right(next) => {
            let high = KeyLines(lines).fences().and_then(|fences| fences.high);
            Search::Right { next, high: high.unwrap_or(u64::MAX) }
        }
        KeySearch::Left => Search::Left,
        KeySearch::Changing => Search::Changing,
        KeySearch::Foreign => Search::Foreign(KeyLines(lines).next()),
    }
}

/// The low fence that a copied key part shows; zero if it is no leaf's.
#[inline]
pub(super) fn low_fence(lines: &[Line; KEY_LINES]) -> u64 {
    KeyLines(lines).fences().map_or(0, |fences| fences.low)
}

/// [`LeafReader::accept`] of a value of one word, whose line is `line`.
#[inline(always)]
pub(super) fn accept_short(
    line: &Line,
    (slot, incarnation): Hit,
    into: &mut [u8; SHORT_VALUE_BYTES],
) -> Result<u64, ValueFault> {
    read_short_value(line, slot, incarnation, into)
}

/// [`accept_short`] from a line where it lies. None if that takes a copy.
#[inline(always)]
pub(super) fn accept_in_place(line: &SharedLine, (slot, incarnation): Hit) -> Option<ShortPair> {
    read_short(line, slot, incarnation)
}

/// The key part of a whole leaf.
#[inline(always)]
pub(super) fn key_part(lines: &[Line]) -> KeyLines<'_> {
    KeyLines(lines.first_chunk().expect("a leaf has a key part"))
}

impl Looked {
    #[inline(always)]
    fn accepted(version: Result<u64, ValueFault>) -> Self {
        version.map_or(Self::Again, Self::Value)
    }

    /// What lines without a hit come to.
    fn missed(found: Search) -> Self {
        match found {
            Search::Absent => Self::Absent,
            other => Self::Elsewhere(other),
        }
    }
}

/// Takes the lines of a leaf that were READ by their slot.
#[inline(always)]
pub(super) fn take<Q: QueuePair>(queue: &mut Q, slot: Slot, lines: &mut [Line]) -> Result<(), FabricError> {
    // A number of lines known when this is compiled is taken in half the instructions of any.
    if let Ok(lines) = <&mut [Line; SHORT_LEAF_LINES]>::try_from(&mut *lines) {
        queue.take_read(slot, lines)
    } else {
        queue.take_read(slot, lines)
    }
}

impl LeafReader {
    /// The reader of leaves with values of so many bytes.
    pub(super) fn new(value_bytes: usize) -> Result<Self, GeometryError> {
        Geometry::new(value_bytes).map(|geometry| Self { geometry })
    }

    /// Bytes of a value.
    #[inline]
    pub(super) fn value_bytes(&self) -> usize {
        self.geometry.value_bytes()
    }

    /// Lines of a value.
    #[inline]
    pub(super) fn lines_per_value(&self) -> usize {
        self.geometry.lines_per_value()
    }

    /// Lines of a whole leaf.
    #[inline]
    pub(super) fn leaf_lines(&self) -> usize {
        self.geometry.leaf_lines()
    }

    /// Bytes of a whole leaf.
    pub(super) fn leaf_bytes(&self) -> usize {
        self.geometry.leaf_bytes()
    }

    /// The address of a leaf, where its key part begins.
    #[inline]
    pub(super) fn address(&self, region: RegionId, leaf: LeafNumber) -> RemoteAddress {
        self.geometry.address(region, leaf, 0)
    }

    /// The line, counted in the region, at which a leaf's key part begins.
    #[inline(always)]
    pub(super) fn line(&self, leaf: LeafNumber) -> u64 {
        self.geometry.line_number(leaf, 0)
    }

    /// The address of the value that a hit in this leaf names.
    #[inline]
    pub(super) fn value_address(&self, region: RegionId, leaf: LeafNumber, hit: Hit) -> RemoteAddress {
        self.geometry.address(region, leaf, self.geometry.value_place(hit.0).line)
    }

    /// The line, counted in the region, at which that value begins.
    #[inline(always)]
    pub(super) fn value_line(&self, leaf: LeafNumber, hit: Hit) -> u64 {
        self.geometry.line_number(leaf, self.geometry.value_place(hit.0).line)
    }

    /// True if values are one word each, which [`accept_short`] takes.
    #[inline(always)]
    pub(super) fn has_short_values(&self) -> bool {
        self.value_bytes() == SHORT_VALUE_BYTES
    }

    /// Copies a value from its lines; its version, or why they are not what the key's line promised.
    #[inline(always)]
    pub(super) fn accept(
        &self,
        lines: &[Line],
        (slot, incarnation): Hit,
        into: &mut [u8],
    ) -> Result<u64, ValueFault> {
        self.geometry.read_value(lines, self.geometry.value_place(slot), incarnation, into)
    }

    /// The version of a pair whose value is one word, if the fabric has the leaf in its own memory and `key`
    /// is plainly in it.
    #[inline(always)]
    pub(super) fn get_in_place<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (region, leaf): (RegionId, LeafNumber),
        key: u64,
        widest: Widest,
        value: &mut [u8],
    ) -> Option<u64> {
        if !self.has_short_values() {
            return None;
        }
        let value: &mut [u8; SHORT_VALUE_BYTES] = value.try_into().expect("a value is of the table's size");
        let line = u64::from(leaf.0) * SHORT_LEAF_LINES as u64;
        let mapped = queue.mapped()?;
        mapped.begin().ok()?;
        let lines = lines_in_place::<SHORT_LEAF_LINES>(mapped, region, line)?;
        let found = find_short(lines, key, widest)?;
        mapped.end().ok()?;
        mapped.count_reads(1, SHORT_LEAF_LINES as u64, 1);
        *value = found.value.to_le_bytes();
        Some(found.version)
    }

    /// READs what a single GET needs of a leaf: a short leaf whole, or the key part and then the value.
    #[inline(always)]
    pub(super) fn get<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (region, leaf): (RegionId, LeafNumber),
        key: u64,
        value: &mut [u8],
    ) -> Result<Looked, FabricError> {
        match self.leaf_lines() {
            SHORT_LEAF_LINES => self.get_whole::<SHORT_LEAF_LINES, Q>(queue, (region, leaf), key, value),
            ALONE_LINES_MAX => self.get_whole::<ALONE_LINES_MAX, Q>(queue, (region, leaf), key, value),
            _ => self.get_in_two(queue, (region, leaf), key, value),
        }
    }

    /// From one READ of a whole leaf, of `LINES` lines.
    #[inline(always)]
    fn get_whole<const LINES: usize, Q: QueuePair>(
        &self,
        queue: &mut Q,
        (region, leaf): (RegionId, LeafNumber),
        key: u64,
        value: &mut [u8],
    ) -> Result<Looked, FabricError> {
        let mut missed = Looked::Absent;
        let choose = |key_lines: &[Line; KEY_LINES]| {
            let Some(hit) = find(key_lines, key) else {
                missed = look_again(key_lines, key);
                return None;
            };
            Some((self.geometry.value_place(hit.0).line, hit))
        };
        let keep = |hit: Hit, lines: &[Line; 1]| {
            if LINES == SHORT_LEAF_LINES {
                accept_short(&lines[0], hit, value.try_into().expect("a value is of the table's size"))
            } else {
                self.accept(lines, hit, value)
            }
        };
        let kept = read_part::<LINES, KEY_LINES, 1, _, _>(queue, region, self.line(leaf), choose, keep)?;
        Ok(kept.map_or(missed, Looked::accepted))
    }

    /// From a READ of the key part and one of the value.
    #[inline(never)]
    fn get_in_two<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (region, leaf): (RegionId, LeafNumber),
        key: u64,
        value: &mut [u8],
    ) -> Result<Looked, FabricError> {
        let mut key_lines = [Line::ZERO; KEY_LINES];
        read_alone(queue, self.address(region, leaf), &mut key_lines, ReadMode::Stamped)?;
        let Some(hit) = find(&key_lines, key) else { return Ok(look_again(&key_lines, key)) };
        let mut lines = [Line::ZERO; VALUE_LINES_MAX];
        let lines = &mut lines[..self.lines_per_value()];
        read_alone(queue, self.value_address(region, leaf, hit), lines, ReadMode::Stamped)?;
        Ok(Looked::accepted(self.accept(lines, hit, value)))
    }

    /// Lines of a leaf that a scan READs.
    #[inline(always)]
    pub(super) fn lines_of(&self, extent: Extent) -> usize {
        extent.lines(&self.geometry)
    }

    /// Posts the READ of a leaf's first lines.
    #[inline(always)]
    pub(super) fn post<Q: QueuePair>(
        &self,
        queue: &mut Q,
        slot: Slot,
        (region, leaf): (RegionId, LeafNumber),
        line_count: usize,
    ) {
        let from = self.address(region, leaf);
        match line_count {
            SHORT_LEAF_LINES => queue.post_read(slot, from, SHORT_LEAF_LINES, ReadMode::Stamped),
            line_count => queue.post_read(slot, from, line_count, ReadMode::Stamped),
        }
    }

    /// Asks for a leaf's first lines among the lines of its region, for [`LeafReader::take`].
    #[inline(always)]
    pub(super) fn ask_in_place(&self, lines: &[SharedLine], leaf: LeafNumber, line_count: usize) {
        match line_count {
            SHORT_LEAF_LINES => ask_lines(lines, self.line(leaf), SHORT_LEAF_LINES),
            line_count => ask_lines(lines, self.line(leaf), line_count),
        }
    }

    /// Takes a leaf's first lines from among the lines of its region. None, and nothing is taken, if they lie
    /// beyond.
    #[inline(always)]
    pub(super) fn copy_in_place(
        &self,
        lines: &[SharedLine],
        leaf: LeafNumber,
        moves: Moves,
        into: &mut [Line],
    ) -> Option<()> {
        if let Ok(into) = <&mut [Line; SHORT_LEAF_LINES]>::try_from(&mut *into) {
            copy_known_lines(lines, self.line(leaf), moves, into)
        } else {
            copy_known_lines(lines, self.line(leaf), moves, into)
        }
    }

    /// Takes a leaf's first lines: in place, or from the slot in which they were posted.
    #[inline(always)]
    pub(super) fn take<Q: QueuePair>(
        &self,
        queue: &mut Q,
        slot: Slot,
        (region, leaf): (RegionId, LeafNumber),
        into: &mut [Line],
    ) -> Result<(), FabricError> {
        let place = (region, self.line(leaf));
        // A number of lines known when this is compiled is taken in half the instructions of any.
        if let Ok(lines) = <&mut [Line; SHORT_LEAF_LINES]>::try_from(&mut *into) {
            take_lines(queue, slot, place, lines)
        } else {
            take_lines(queue, slot, place, into)
        }
    }

    /// Of a whole leaf a GET needs the line that holds its key, and its value's lines.
    pub(super) fn filter(&self) -> Filter {
        Filter {
            words: KEY_WORDS_MASK,
            parts_begin: KEY_LINES as u8,
            part_lines: self.lines_per_value() as u8,
            sharing_log2: self.geometry.values_per_line().ilog2() as u8,
        }
    }

    /// Looks `key` up in what came of its leaf through [`LeafReader::filter`], and copies its value.
    #[inline]
    pub(super) fn search_filtered(&self, filtered: &Filtered<'_>, key: u64, into: &mut [u8]) -> Looked {
        let (hit, value_lines) = match *filtered {
            Filtered::Picked { word, line, part } => match hit_in_line(line, word, key) {
                Some(hit) => (hit, part),
                None => return Looked::Again,
            },
            Filtered::Missed(lines) => {
                let key_lines = lines.first_chunk().expect("the filtered lines are the key part");
                return match search(key_lines, key) {
                    // It came between the look and the copy.
                    Search::Hit(_) => Looked::Again,
                    found => Looked::missed(found),
                };
            }
            Filtered::Whole(lines) => {
                let found = search(lines.first_chunk().expect("a leaf has a key part"), key);
                let Search::Hit(hit) = found else { return Looked::missed(found) };
                let first = self.geometry.value_place(hit.0).line;
                (hit, &lines[first..][..self.lines_per_value()])
            }
        };
        Looked::accepted(self.accept(value_lines, hit, into))
    }

    /// A whole leaf's pairs for a scan to take, once its key part agrees on an incarnation.
    #[inline(always)]
    pub(super) fn pairs<'a>(&'a self, lines: &'a [Line], incarnation: u32) -> ConsistentLeaf<'a> {
        let permutation = key_part(lines).permutation();
        ConsistentLeaf { geometry: &self.geometry, lines, incarnation, permutation }
    }
}

/// What a key part without a hit comes to.
#[inline(never)]
fn look_again(key_lines: &[Line; KEY_LINES], key: u64) -> Looked {
    Looked::missed(search(key_lines, key))
}
