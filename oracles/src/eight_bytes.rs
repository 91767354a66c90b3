//! Identities as keys of eight bytes.
//!
//! Invariant: all identities fill eight bytes, so only [`EightBytes::Plain`] has a key for each of them. The
//! others have keys for the identities up to a last one, and put them where indexes have a hard time.

use farsight_base::prng::SplitMix64;

use crate::{Embedding, Identity};

/// The most bits of a cluster's places.
const PLACE_BITS_MAX: u64 = 6;

/// Where eight-byte keys lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EightBytes {
    /// A key is its identity's number.
    #[default]
    Plain,
    /// Equal distances between neighbours.
    Spread {
        /// The key of the least identity.
        first: u64,
        /// Between two neighbours.
        stride: u64,
    },
    /// Clusters of neighbours one apart, which share all but their low bits, with gaps between them.
    Clustered {
        /// A cluster has two to the power of so many keys.
        place_bits: u32,
        /// Zero bits between a cluster's number and a key's place in it.
        gap_bits: u32,
    },
    /// The lower half of the identities at the low end of the key space, the upper half at the high end.
    Ends {
        /// The greatest identity, which has the greatest key.
        last: Identity,
    },
}

impl EightBytes {
    /// One of them that has keys up to `last`, as `random` draws it.
    #[must_use]
    pub fn draw(random: &mut SplitMix64, last: Identity) -> Self {
        match random.below(4) {
            0 => Self::Plain,
            1 => {
                let room = u64::MAX - last.0;
                let stride = 1 + random.below(room / last.0.max(2) + 1);
                Self::Spread { first: random.below((u64::MAX - last.0 * stride).max(1)), stride }
            }
            2 => {
                let place_bits = random.below(PLACE_BITS_MAX + 1) as u32;
                Self::Clustered {
                    place_bits,
                    gap_bits: last.0.leading_zeros().min(u64::BITS - 1 - place_bits),
                }
            }
            _ => Self::Ends { last },
        }
    }
}

impl Embedding for EightBytes {
    type Key = u64;

    fn last(&self) -> Identity {
        match *self {
            Self::Plain => Identity::MAX,
            Self::Spread { first, stride } => Identity((u64::MAX - first) / stride),
            Self::Clustered { gap_bits, .. } => Identity(u64::MAX >> gap_bits),
            Self::Ends { last } => last,
        }
    }

    /// Where all keys are plain, nothing.
    #[inline]
    fn key(&self, identity: Identity) -> u64 {
        if matches!(self, Self::Plain) { identity.0 } else { self.key_laid_out(identity) }
    }

    /// Where all keys are plain, nothing.
    #[inline]
    fn identity(&self, key: &u64) -> Option<Identity> {
        if matches!(self, Self::Plain) { Some(Identity(*key)) } else { self.identity_laid_out(*key) }
    }
}

impl EightBytes {
    #[inline(never)]
    fn key_laid_out(&self, identity: Identity) -> u64 {
        let number = identity.0;
        assert!(identity <= self.last(), "{identity} has no key in {self:?}");
        match *self {
            Self::Plain => number,
            Self::Spread { first, stride } => first + number * stride,
            Self::Clustered { place_bits, gap_bits } => {
                let places = (1 << place_bits) - 1;
                (number & !places) << gap_bits | number & places
            }
            Self::Ends { last } if number <= last.0 / 2 => number,
            Self::Ends { last } => u64::MAX - (last.0 - number),
        }
    }

    #[inline(never)]
    fn identity_laid_out(&self, key: u64) -> Option<Identity> {
        let number = match *self {
            Self::Plain => key,
            Self::Spread { first, stride } => key.checked_sub(first)? / stride,
            Self::Clustered { place_bits, gap_bits } => {
                let places = (1 << place_bits) - 1;
                key >> gap_bits & !places | key & places
            }
            Self::Ends { last } if key <= last.0 / 2 => key,
            Self::Ends { last } => last.0.checked_sub(u64::MAX - key)?,
        };
        let identity = Identity(number);
        (identity <= self.last() && self.key(identity) == key).then_some(identity)
    }
}
