//! Values that follow from one word, which they begin with.
//!
//! Invariant: a value put together of two of them, or with a byte changed, follows from no word, unless all
//! that was changed is in the word itself. A caller whose values are as short as the word gives it a check.

use farsight_base::prng::mix;

/// Word `index` of the value that follows from `first`.
#[must_use]
pub fn word(first: u64, index: usize) -> u64 {
    if index == 0 { first } else { mix(first ^ ((index as u64) << 48)) }
}

/// Writes the value that follows from `first`.
pub fn write(first: u64, value: &mut [u8]) {
    for (index, piece) in value.chunks_mut(8).enumerate() {
        piece.copy_from_slice(&word(first, index).to_le_bytes()[..piece.len()]);
    }
}

/// The word that a value follows from; `None` if it follows from none.
#[must_use]
pub fn first_word(value: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(*value.first_chunk()?);
    let (words, rest) = value.as_chunks();
    let mut whole = words.iter().enumerate();
    let is_whole = whole.all(|(index, bytes)| u64::from_le_bytes(*bytes) == word(first, index))
        && *rest == word(first, words.len()).to_le_bytes()[..rest.len()];
    is_whole.then_some(first)
}
