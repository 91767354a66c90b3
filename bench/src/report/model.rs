//! The record of a survey of a model: how keys are distributed, and how well the model follows them.

use serde::{Deserialize, Serialize};

/// What a survey found. Keys are numbers as stored, strings in JSON, where numbers may lose bits. Positions
/// count leaves in key order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// Name of the dataset.
    pub dataset: String,
    /// Keys.
    pub keys: u64,
    /// Leaves after a bulk load of those.
    pub leaves: u64,
    /// Sub-models.
    pub sub_models: u64,
    /// Bytes of top model and sub-models, a key.
    pub model_bytes_per_key: f64,
    /// Time of training, in s.
    pub training_s: f64,
    /// Leaves that a sub-model's window holds, over all keys.
    pub window_leaves_mean: f64,
    /// The same at its widest.
    pub window_leaves_max: u64,
    /// Candidates that the fence hints leave of a window, over all keys: leaves that a GET would READ.
    pub candidates_mean: f64,
    /// The distribution, in equal steps of rank.
    pub curve: Vec<CurvePoint>,
    /// A few neighbouring sub-models in full.
    pub detail: ModelDetail,
}

/// A piece of the distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The key at which the piece begins.
    #[serde(with = "farsight_protocol::exact::word")]
    pub key: u64,
    /// The part of all keys below it.
    pub rank: f64,
    /// Leaves of the windows of its keys.
    pub window_leaves_mean: f64,
    /// The same at their widest.
    pub window_leaves_max: u64,
}

/// Neighbouring sub-models and the leaves below them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelDetail {
    /// The leaves' low fences, in order.
    #[serde(with = "farsight_protocol::exact::words")]
    pub fences: Vec<u64>,
    /// Position of the first of them among all leaves.
    pub first_position: u64,
    /// The sub-models.
    pub sub_models: Vec<DetailedSubModel>,
}

/// A sub-model as a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetailedSubModel {
    /// Its least key.
    #[serde(with = "farsight_protocol::exact::word")]
    pub from_key: u64,
    /// Its greatest key.
    #[serde(with = "farsight_protocol::exact::word")]
    pub to_key: u64,
    /// Keys and what it says of each.
    pub predictions: Vec<Prediction>,
}

/// What a sub-model says of a key, in positions among all leaves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The key.
    #[serde(with = "farsight_protocol::exact::word")]
    pub key: u64,
    /// The leaf that has it.
    pub position: u64,
    /// The first leaf of the window.
    pub window_begin: u64,
    /// Behind its last leaf.
    pub window_end: u64,
}
