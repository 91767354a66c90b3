//! Leaves and hints by vectors: the one module of this crate with unsafe code.
//!
//! Invariant: every width of vectors gives the same answers ([`farsight_base::vectors`]). What is found in
//! shared memory without a look at stamps proves nothing, and says so in its name.

pub(crate) mod in_order;
mod key_words;
mod lanes;

pub(crate) use key_words::{equal_words, words_below_unchecked};
pub use key_words::{equal_words_unchecked, words_at_most_in_line};
pub use lanes::{
    LANES_MAX, LANES_PER_LINE, LANES_PER_WORD, lane, lanes_above_in_line, lanes_at_most, lanes_at_most_widest,
};
