//! The checked view of a value: the lines that a READ returned, an incarnation they must have.
//!
//! A value of one line is a snapshot because its line is. A value of several lines has them for itself, and
//! each write advances all their versions together: equal even versions are the same write.
//!
//! A version of zero marks a slot not written in this incarnation. A READ that took the value's line before
//! the insert and the key's line after it meets one, and tries again.

use farsight_base::{Line, WORDS_PER_LINE};

use crate::checks::{check_lines, written};
use crate::{Geometry, LeafSlot, SHORT_VALUE_BYTES, SHORT_VALUES_PER_LINE, ValuePlace};

/// Evaluates an expression in which the lines of a value of this [`Geometry`] are a constant, for loops and
/// arrays of a known length.
#[macro_export]
macro_rules! with_value_lines {
    ($geometry:expr, $lines:ident => $body:expr) => {
        match $geometry.lines_per_value() {
            1 => $crate::with_value_lines!(@constant $lines, 1, $body),
            2 => $crate::with_value_lines!(@constant $lines, 2, $body),
            3 => $crate::with_value_lines!(@constant $lines, 3, $body),
            4 => $crate::with_value_lines!(@constant $lines, 4, $body),
            _ => $crate::with_value_lines!(@constant $lines, $crate::VALUE_LINES_MAX, $body),
        }
    };
    (@constant $lines:ident, $count:expr, $body:expr) => {{
        const $lines: usize = $count;
        $body
    }};
}

/// Why lines are not the value wanted. All of these mean: look the key up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueFault {
    /// The lines changed while they were read.
    Changing,
    /// The lines belong to another incarnation than the key did.
    OtherIncarnation,
    /// The slot has not been written in this incarnation.
    NotWritten,
}

impl Geometry {
    /// Copies the value at `place.index` of `lines` (the [`Geometry::lines_per_value`] lines that start at
    /// `place.line`) into `into` and returns its version.
    ///
    /// # Errors
    /// [`ValueFault`], with `into` untouched or half-written.
    ///
    /// # Panics
    /// If `lines` or `into` are not of the geometry's sizes.
    #[inline(always)]
    pub fn read_value(
        &self,
        lines: &[Line],
        place: ValuePlace,
        incarnation: u32,
        into: &mut [u8],
    ) -> Result<u64, ValueFault> {
        assert_eq!((lines.len(), into.len()), (self.lines_per_value(), self.value_bytes()), "lines, bytes");
        if self.value_words() == 1 {
            // As an array: a copy of eight bytes is one store, of an unknown number a call.
            let into: &mut [u8; 8] = into.try_into().expect("a value of one word has eight bytes");
            return read_short_at(&lines[0], place.index, incarnation, into);
        }
        check_lines(lines, incarnation)?;
        let first = (place.index & (self.values_per_line() - 1)) * (self.value_words() + 1);
        for (word, bytes) in into.chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&body_word(lines, first + 1 + word).to_le_bytes()[..bytes.len()]);
        }
        written(body_word(lines, first))
    }
}

/// [`Geometry::read_value`] of a value of one word, whose line is `line`.
///
/// # Errors
/// [`ValueFault`], with `into` untouched or written.
#[inline(always)]
pub fn read_short_value(
    line: &Line,
    slot: LeafSlot,
    incarnation: u32,
    into: &mut [u8; SHORT_VALUE_BYTES],
) -> Result<u64, ValueFault> {
    read_short_at(line, slot.number(), incarnation, into)
}

#[inline(always)]
fn read_short_at(
    line: &Line,
    index: usize,
    incarnation: u32,
    into: &mut [u8; SHORT_VALUE_BYTES],
) -> Result<u64, ValueFault> {
    check_lines(std::slice::from_ref(line), incarnation)?;
    let index = index % SHORT_VALUES_PER_LINE;
    *into = line.0[1 + index].to_le_bytes();
    written(short_version(&line.0, index))
}

/// Word `index` of the lines' bodies, stamps left out.
#[inline(always)]
fn body_word(lines: &[Line], index: usize) -> u64 {
    let (line, word) = body_place(index);
    lines[line].0[word]
}

/// The line and word of body word `index`, stamps left out.
#[inline(always)]
pub(crate) fn body_place(index: usize) -> (usize, usize) {
    (index / (WORDS_PER_LINE - 1), 1 + index % (WORDS_PER_LINE - 1))
}

/// The version of short value `index`: its low 32 bits in words 5 and 6, its high 16 in word 7.
#[inline(always)]
pub(crate) fn short_version(words: &[u64; WORDS_PER_LINE], index: usize) -> u64 {
    short_version_of([words[short_version_word(index)], words[7]], index)
}

/// [`short_version`] from the two words that hold it.
#[inline(always)]
pub(crate) fn short_version_of([low, high]: [u64; 2], index: usize) -> u64 {
    let low = low >> (32 * (index % 2)) & 0xffff_ffff;
    low | (high >> (16 * index) & 0xffff) << 32
}

/// The word of a short line that holds the low half of short value `index`'s version, among others.
#[inline(always)]
pub(crate) fn short_version_word(index: usize) -> usize {
    5 + index / 2
}

/// That word and word 7, with `version` in its place.
#[inline(always)]
pub(crate) fn with_short_version([low, high]: [u64; 2], index: usize, version: u64) -> [u64; 2] {
    let (low_shift, high_shift) = (32 * (index % 2), 16 * index);
    let low = low & !(0xffff_ffff << low_shift) | (version & 0xffff_ffff) << low_shift;
    [low, high & !(0xffff << high_shift) | (version >> 32 & 0xffff) << high_shift]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_versions_keep_to_themselves() {
        let mut words = [u64::MAX; 8];
        let versions = [0x1234_5678_9abc, 0, 0xffff_ffff_ffff, 0x8000_0000_0001];
        for (index, version) in versions.iter().enumerate() {
            let low = short_version_word(index);
            [words[low], words[7]] = with_short_version([words[low], words[7]], index, *version);
        }
        assert_eq!([0, 1, 2, 3].map(|index| short_version(&words, index)), versions);
    }
}
