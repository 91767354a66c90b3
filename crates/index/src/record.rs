//! A sub-model as the model crate evaluates it and as the format writes it: the same fields, told apart so
//! that neither layer knows the other.

use farsight_layout::SubModelRecord;
use farsight_model::SubModel;

/// The record of a sub-model.
#[must_use]
pub fn record_of(model: &SubModel) -> SubModelRecord {
    let SubModel { base, slope, intercept, error_low, error_high, leaf_count, hint_shift } = *model;
    SubModelRecord { base, slope, intercept, error_low, error_high, leaf_count, hint_shift }
}

/// The sub-model of a record. Any record evaluates.
#[inline(always)]
#[must_use]
pub fn model_of(record: &SubModelRecord) -> SubModel {
    let SubModelRecord { base, slope, intercept, error_low, error_high, leaf_count, hint_shift } = *record;
    SubModel { base, slope, intercept, error_low, error_high, leaf_count, hint_shift }
}
