//! Values that prove whose they are.
//!
//! Invariant: the first word holds a checksum of the key's identity and the value's length (40 bits) and the
//! writer's counter (24 bits). Every further word follows from the first and its place. So a value of another
//! key, one that was cut, or one put together of two writes, shows.

use farsight_oracles::Identity;

use super::Values;

/// Bits of the counter below the checksum.
const COUNTER_BITS: u32 = 24;
/// 2^64 by the golden ratio: odd, so that it maps words one to one.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A value in a buffer of its own, as the batched writes take them.
#[derive(Clone)]
pub(crate) struct CheckedValue {
    values: Values,
    bytes: Vec<u8>,
}

impl CheckedValue {
    /// A buffer for such values.
    pub(super) fn new(values: Values) -> Self {
        Self { values, bytes: Vec::with_capacity(values.most_bytes()) }
    }

    /// Makes it the value of `key` with this counter.
    #[inline]
    pub(super) fn set(&mut self, key: Identity, counter: u32) {
        self.bytes.resize(self.values.length(key, counter), 0);
        write(key, counter, &mut self.bytes);
    }
}

impl AsRef<[u8]> for CheckedValue {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[inline]
fn word(first: u64, place: usize) -> [u8; 8] {
    first.wrapping_add(GOLDEN.wrapping_mul(place as u64)).to_le_bytes()
}

#[inline]
fn scattered(key: Identity, length: usize) -> u64 {
    key.0.wrapping_mul(GOLDEN).wrapping_add((length as u64) << COUNTER_BITS)
}

#[inline]
fn first_word(key: Identity, counter: u32, length: usize) -> u64 {
    let mask = (1 << COUNTER_BITS) - 1;
    scattered(key, length) & !mask | u64::from(counter) & mask
}

/// Writes the value of `key` with this counter.
pub fn write(key: Identity, counter: u32, value: &mut [u8]) {
    let first = first_word(key, counter, value.len());
    let (words, rest) = value.as_chunks_mut::<8>();
    let end = words.len();
    for (place, piece) in words.iter_mut().enumerate() {
        *piece = word(first, place);
    }
    rest.copy_from_slice(&word(first, end)[..rest.len()]);
}

/// The counter of a value of `key`; `None` if it is none, or not whole.
#[inline]
#[must_use]
pub fn counter(key: Identity, value: &[u8]) -> Option<u32> {
    let (words, rest) = value.as_chunks::<8>();
    let first = u64::from_le_bytes(*words.first()?);
    let is_of_key = (first ^ scattered(key, value.len())) >> COUNTER_BITS == 0;
    // Without a branch or a product a word: long values are compared as fast as they are read.
    let (mut expected, mut differences) = (first, 0);
    for piece in words {
        differences |= u64::from_le_bytes(*piece) ^ expected;
        expected = expected.wrapping_add(GOLDEN);
    }
    let is_whole = differences == 0 && *rest == expected.to_le_bytes()[..rest.len()];
    (is_of_key && is_whole).then_some(first as u32 & ((1 << COUNTER_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_knows_its_key_and_counter() {
        for length in [8, 9, 16, 31, 256] {
            for key in [0, 1, u64::MAX, 1 << 63, 0x1234_5678] {
                let mut value = CheckedValue::new(Values::fixed(length));
                value.set(Identity(key), 77);
                assert_eq!(counter(Identity(key), value.as_ref()), Some(77), "{length} bytes of {key}");
                assert_eq!(counter(Identity(key ^ 1), value.as_ref()), None, "a neighbour's");
                assert_eq!(counter(Identity(key ^ 1 << 63), value.as_ref()), None, "a distant key's");
                for cut in 8..length {
                    assert_eq!(counter(Identity(key), &value.as_ref()[..cut]), None, "cut at {cut}");
                }
            }
        }
        assert_eq!(counter(Identity(1), &[0; 7]), None);
    }

    #[test]
    fn lengths_are_those_that_were_given() {
        let mut value = CheckedValue::new(Values::blocks(10, 12));
        let lengths: std::collections::BTreeSet<usize> = (0..100)
            .map(|key| {
                value.set(Identity(key), 3);
                assert_eq!(counter(Identity(key), value.as_ref()), Some(3));
                value.as_ref().len()
            })
            .collect();
        assert!(lengths.into_iter().eq(10..=12));
    }

    #[test]
    fn a_value_of_two_writes_shows() {
        let (mut old, mut new) = [20; 2].map(|bytes| CheckedValue::new(Values::fixed(bytes))).into();
        old.set(Identity(5), 1);
        new.set(Identity(5), 2);
        for at in 1..20 {
            let torn: Vec<u8> = new.as_ref()[..at].iter().chain(&old.as_ref()[at..]).copied().collect();
            // Where the bytes behind the cut agree in both, nothing is torn.
            let whole = [old.as_ref(), new.as_ref()].contains(&&torn[..]);
            assert_eq!(counter(Identity(5), &torn).is_some(), whole, "torn at {at}");
        }
    }
}
