//! Identities as byte strings.
//!
//! A key is a prefix that all keys share, a family, and a place in the family:
//!
//! 1. The family's number: one byte says in how many bytes, then these, the highest first. So a longer number
//!    comes behind a shorter one, and no family's key begins with another's.
//! 2. The filler: bytes that follow from the family, as many as its number says, up to a most.
//! 3. The place: that many zeros. So each key of a family is a prefix of the next one.

use farsight_base::prng::{SplitMix64, mix};

use crate::{Embedding, Identity};

/// Keys of a family.
const FAMILY: u64 = 4;

/// Byte strings of different lengths with long common prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Strings {
    /// What all keys begin with.
    pub prefix: Vec<u8>,
    /// The most bytes of filler.
    pub filler_bytes_max: usize,
}

impl Strings {
    /// The first key of a family.
    fn first_key(&self, family: u64) -> Vec<u8> {
        let zeros = family.leading_zeros() as usize / 8;
        let mut key = self.prefix.clone();
        key.push((size_of::<u64>() - zeros) as u8);
        key.extend(&family.to_be_bytes()[zeros..]);
        let mut filler = SplitMix64::new(mix(family));
        let end = key.len() + filler.below(self.filler_bytes_max as u64 + 1) as usize;
        while key.len() < end {
            key.extend(filler.next_u64().to_le_bytes());
        }
        key.truncate(end);
        key
    }
}

impl Embedding for Strings {
    type Key = Vec<u8>;

    fn key(&self, identity: Identity) -> Vec<u8> {
        let mut key = self.first_key(identity.0 / FAMILY);
        key.resize(key.len() + (identity.0 % FAMILY) as usize, 0);
        key
    }

    fn identity(&self, key: &Vec<u8>) -> Option<Identity> {
        let (&number_bytes, rest) = key.strip_prefix(&self.prefix[..])?.split_first()?;
        let number = rest.get(..usize::from(number_bytes))?;
        let mut family = [0; size_of::<u64>()];
        let zeros = family.len().checked_sub(number.len())?;
        family[zeros..].copy_from_slice(number);
        let family = u64::from_be_bytes(family);
        let place = key.strip_prefix(&self.first_key(family)[..])?;
        let is_place = (place.len() as u64) < FAMILY && place.iter().all(|byte| *byte == 0);
        is_place.then_some(Identity(family.checked_mul(FAMILY)? | place.len() as u64))
    }
}
