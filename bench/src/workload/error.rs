//! What can go wrong with a workload.

use crate::report::thousands;

/// Why operations could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No such workload.
    #[error("unknown workload `{name}`; expected a, b, b-standard, c, d, e or f")]
    UnknownWorkload {
        /// What was asked.
        name: String,
    },
    /// No such distribution.
    #[error("unknown distribution `{name}`; expected uniform, zipfian or latest")]
    UnknownDistribution {
        /// What was asked.
        name: String,
    },
    /// No such change of a table's shape.
    #[error("unknown scenario `{name}`; expected append, cluster, tenant, window, growth or delete")]
    UnknownChange {
        /// What was asked.
        name: String,
    },
    /// A skew that has no meaning.
    #[error("the skew must be a number of 0 or more, got {theta}")]
    BadTheta {
        /// What was asked.
        theta: f64,
    },
    /// A skew where there is none.
    #[error("a skew of {theta} for keys that are all alike; expected zipfian or latest")]
    NoTheta {
        /// What was asked.
        theta: f64,
    },
    /// No such cluster.
    #[error("no cluster {number}; expected 1 to {clusters}")]
    UnknownCluster {
        /// What was asked.
        number: u8,
        /// How many there are.
        clusters: usize,
    },
    /// A cluster that the published table leaves empty.
    #[error("no figures are published of cluster {number}")]
    UnpublishedCluster {
        /// Which one.
        number: u8,
    },
    /// More keys held back than leave one to load.
    #[error(
        "{} keys cannot be held back for inserts from a set of {}: at least one must be loaded",
        thousands(*.held_back as u64), thousands(*.keys as u64)
    )]
    NothingToLoad {
        /// Keys asked to be held back.
        held_back: usize,
        /// Keys of the set.
        keys: usize,
    },
    /// The gaps between the keys hold fewer new keys than asked.
    #[error(
        "only {} new keys fit into the gaps of the set, inserts need {}: hold back keys of the set instead, \
         or insert fewer",
        thousands(*.found as u64), thousands(*.asked as u64)
    )]
    GapsTooNarrow {
        /// New keys found.
        found: usize,
        /// New keys asked.
        asked: usize,
    },
    /// More keys than a stream can number.
    #[error("a workload numbers at most {} keys, got {}", thousands(u64::from(u32::MAX)), thousands(*.keys as u64))]
    TooManyKeys {
        /// Keys of the set.
        keys: usize,
    },
    /// A thread has inserted every key that it was given.
    #[error(
        "thread {thread} has inserted all of its {} keys: prepare more keys for inserts, or run for a shorter time",
        thousands(*.inserted as u64)
    )]
    InsertKeysExhausted {
        /// The thread.
        thread: usize,
        /// Keys that it inserted.
        inserted: usize,
    },
}
