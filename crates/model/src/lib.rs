//! Keys to half-open ranges of leaves, with a promise. XStore's two-level model (Wei et al., OSDI 2020,
//! section 5), trained on leaf fences instead of keys.
//!
//! The leaves of a store, in key order, are given by their *low fences*: strictly increasing, the first one
//! 0. Leaf `i` owns the keys from `fences[i]` up to, and without, `fences[i + 1]`. The last leaf owns
//! everything up to and with [`u64::MAX`]. A key is looked up in three steps:
//!
//! 1. [`TopModel::dispatch`] names a sub-model for every `u64`, and never a smaller one for a larger key. The
//!    keys dispatched to one sub-model are therefore an interval, its *dispatch interval*.
//! 2. [`SubModel::predict`] gives a window of positions among the leaves that meet this interval.
//! 3. [`SubModel::choose`] picks from the window, by the leaves' 16-bit hints, the leaf (rarely: the leaves)
//!    that can own the key.
//!
//! **The promise.** For every key, present, absent or inserted later, window and choice contain the position
//! of the leaf that owned the key at training. Why it holds: a sub-model is given *every* leaf whose fence
//! interval meets its dispatch interval, and prediction is monotone. Training takes its errors, with the very
//! function that predicts, at both ends of each leaf's part of the interval. A key between the ends is
//! predicted between them.
//!
//! ROLEX has a model of its own ([`Segment`], [`fit_segments`]): lines within an error bound over runs of
//! leaves, with the same promise.
//!
//! No memory, no I/O: what a position means is the translation table's affair.

#![forbid(unsafe_code)]

mod cut;
mod decode_error;
mod fit;
mod hint;
mod hull;
mod linear;
mod piecewise;
mod radix;
mod radix_build;
mod radix_check;
mod sub_model;
mod top;
mod train;

pub use cut::{cut, is_blurred};
pub use decode_error::DecodeError;
pub use fit::train_sub_model;
pub use hint::{KeyHint, shortest_fence};
pub use linear::LinearTop;
pub use piecewise::{
    ERROR_RECORDS_MAX, ErrorBound, KeyQuanta, Prediction, Segment, SegmentPlace, fit_segments, segment_of,
};
pub use radix::RadixTop;
pub use sub_model::{ERROR_WHOLE, LEAVES_PER_SUB_MODEL_MAX, SubModel};
pub use top::TopModel;
pub use train::{TopKind, TrainError, TrainOptions, TrainedModel, TrainedSubModel, Training, train};
