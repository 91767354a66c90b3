//! Where things stand in a leaf, which depends on the table's value size alone.

use farsight_base::{LINE_BYTES, LeafNumber, RegionId, RemoteAddress, WORDS_PER_LINE};

use crate::{KEY_LINES, LEAF_SLOTS, SHORT_VALUES_PER_LINE, VALUE_BYTES_MAX, VALUE_BYTES_MIN};

/// Words of a line besides its stamp.
const BODY_WORDS: usize = WORDS_PER_LINE - 1;

/// A slot of a leaf, below [`LEAF_SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeafSlot(u8);

impl LeafSlot {
    /// The lowest slot.
    pub const FIRST: Self = Self(0);

    /// The slot of this number, if a leaf has it.
    #[inline]
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        (number < LEAF_SLOTS).then_some(Self(number as u8))
    }

    /// The slot of this number, which a leaf has.
    pub(crate) const fn of_number(number: usize) -> Self {
        assert!(number < LEAF_SLOTS, "a leaf has no such slot");
        Self(number as u8)
    }

    /// The slot of a key's word in the key part: words 5 to 7, 9 to 15, 17 to 22.
    #[inline]
    #[must_use]
    pub(crate) fn of_key_word(word: usize) -> Self {
        debug_assert!(
            !word.is_multiple_of(WORDS_PER_LINE) && (5..23).contains(&word),
            "word {word} holds no key"
        );
        Self((word - 5 - word / WORDS_PER_LINE) as u8)
    }

    /// The word of the key part that holds this slot's key.
    #[inline]
    #[must_use]
    pub const fn key_word(self) -> usize {
        let slot = self.0 as usize;
        slot + 5 + (slot >= 3) as usize + (slot >= 10) as usize
    }

    /// The line of the key part that holds this slot's key.
    #[inline]
    #[must_use]
    pub fn key_line(self) -> usize {
        self.key_word() / WORDS_PER_LINE
    }

    /// This slot's bit in the occupancy of its key's line.
    #[inline]
    #[must_use]
    pub fn occupancy_bit(self) -> u8 {
        1 << (self.key_word() % WORDS_PER_LINE)
    }

    /// The slot's number.
    #[inline]
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// All slots, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..LEAF_SLOTS as u8).map(Self)
    }
}

/// Where one slot's value stands: lines counted from the leaf's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePlace {
    /// The first line.
    pub line: usize,
    /// Which of the line's values it is.
    pub index: usize,
}

/// A table's leaf: sizes and places, all derived from the size of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    value_bytes: usize,
    /// Binary logarithm of the values in a line: 2, 1 or 0.
    values_per_line_log2: u32,
    lines_per_value: usize,
    leaf_lines: usize,
}

/// A value size outside the format's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a value size of {got} B is outside {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} B")]
pub struct GeometryError {
    /// The size requested.
    pub got: usize,
}

impl Geometry {
    /// The leaf of a table with values of `value_bytes`.
    ///
    /// # Errors
    /// [`GeometryError`] outside [`VALUE_BYTES_MIN`] to [`VALUE_BYTES_MAX`].
    pub fn new(value_bytes: usize) -> Result<Self, GeometryError> {
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value_bytes) {
            return Err(GeometryError { got: value_bytes });
        }
        let value_words = value_bytes.div_ceil(8);
        let (values_per_line_log2, lines_per_value) = match value_words {
            1 => (SHORT_VALUES_PER_LINE.ilog2(), 1),
            2 => (1, 1),
            words => (0, (words + 1).div_ceil(BODY_WORDS)),
        };
        let leaf_lines = KEY_LINES + (LEAF_SLOTS >> values_per_line_log2) * lines_per_value;
        Ok(Self { value_bytes, values_per_line_log2, lines_per_value, leaf_lines })
    }

    /// Bytes of a value.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Words that hold a value.
    #[inline]
    #[must_use]
    pub fn value_words(&self) -> usize {
        self.value_bytes.div_ceil(8)
    }

    /// Values that share a line; 1 for a value that has its lines for itself.
    #[inline]
    #[must_use]
    pub fn values_per_line(&self) -> usize {
        1 << self.values_per_line_log2
    }

    /// Lines that a READ of one value fetches.
    #[inline]
    #[must_use]
    pub fn lines_per_value(&self) -> usize {
        self.lines_per_value
    }

    /// Lines of a whole leaf.
    #[inline]
    #[must_use]
    pub fn leaf_lines(&self) -> usize {
        self.leaf_lines
    }

    /// Words of a whole leaf.
    #[inline]
    #[must_use]
    pub fn leaf_words(&self) -> usize {
        self.leaf_lines() * WORDS_PER_LINE
    }

    /// Bytes of a whole leaf.
    #[inline]
    #[must_use]
    pub fn leaf_bytes(&self) -> usize {
        self.leaf_lines() * LINE_BYTES
    }

    /// Where `slot`'s value stands.
    #[inline]
    #[must_use]
    pub fn value_place(&self, slot: LeafSlot) -> ValuePlace {
        let group = slot.number() >> self.values_per_line_log2;
        let index = slot.number() & (self.values_per_line() - 1);
        ValuePlace { line: KEY_LINES + group * self.lines_per_value, index }
    }

    /// The number of `line` of `leaf`, counted over the whole region.
    #[inline]
    #[must_use]
    pub fn line_number(&self, leaf: LeafNumber, line: usize) -> u64 {
        u64::from(leaf.0) * self.leaf_lines() as u64 + line as u64
    }

    /// The address of `line` of `leaf`.
    #[inline]
    #[must_use]
    pub fn address(&self, region: RegionId, leaf: LeafNumber, line: usize) -> RemoteAddress {
        let offset_bytes = self.line_number(leaf, line) * LINE_BYTES as u64;
        RemoteAddress { region, offset_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_words_and_slots_are_each_others_inverse() {
        let words: Vec<usize> = LeafSlot::all().map(LeafSlot::key_word).collect();
        assert_eq!(words, [5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22]);
        for slot in LeafSlot::all() {
            assert_eq!(LeafSlot::of_key_word(slot.key_word()), slot);
        }
    }

    #[test]
    fn values_never_overlap_and_fill_the_leaf() {
        for value_bytes in VALUE_BYTES_MIN..=VALUE_BYTES_MAX {
            let geometry = Geometry::new(value_bytes).unwrap();
            let mut places: Vec<(usize, usize)> = LeafSlot::all()
                .map(|slot| geometry.value_place(slot))
                .map(|place| (place.line, place.index))
                .collect();
            let last = places.last().unwrap().0 + geometry.lines_per_value();
            assert_eq!(last, geometry.leaf_lines(), "{value_bytes} B");
            places.dedup();
            assert_eq!(places.len(), LEAF_SLOTS, "{value_bytes} B");
        }
    }

    #[test]
    fn sizes_outside_the_format_are_named() {
        assert_eq!(Geometry::new(7).unwrap_err().to_string(), "a value size of 7 B is outside 8 to 256 B");
        assert!(Geometry::new(257).is_err());
    }

    #[test]
    fn an_eight_byte_table_has_leaves_of_seven_lines() {
        let geometry = Geometry::new(8).unwrap();
        assert_eq!((geometry.leaf_lines(), geometry.leaf_bytes()), (7, 448));
    }
}
