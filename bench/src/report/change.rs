//! The record of a table whose shape changed: its figures, the marks they are held against, and their course.

use serde::{Deserialize, Serialize};

use crate::histogram::LatencyNs;
use crate::loaded_leaves::PAIRS_PER_LEAF;
use crate::machine::Machine;
use crate::workload::ShapeChange;

mod rows;

pub use rows::change_table;

/// Full intervals of a change that its slowest one needs beside it to be told from the others.
const INTERVALS_MIN: usize = 4;

/// A reader's figures of some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangePhase {
    /// GETs a second of the time in calls, in batches of 64.
    pub gets_per_s: f64,
    /// Latency of a GET's batch.
    pub get_latency_ns: LatencyNs,
    /// READs a GET.
    pub reads_per_get: f64,
    /// GETs that ended with an RPC because the cache was stale, a GET.
    pub fallbacks_per_get: f64,
}

/// Scans, each one alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeScans {
    /// Pairs of each.
    pub pairs: u64,
    /// READs a scan.
    pub reads_per_scan: f64,
    /// Doorbells a scan: round trips.
    pub doorbells_per_scan: f64,
    /// Times that the server searched, a scan.
    pub fallbacks_per_scan: f64,
}

/// What the table and a cache of all of it take at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeMemory {
    /// Pairs stored.
    pub pairs: u64,
    /// Leaves in the chain.
    pub leaves: u64,
    /// Sub-models that wait for training.
    pub pending: u64,
    /// Bytes of the table's regions in use.
    pub table_bytes: u64,
    /// Bytes that the server's process has more than without a table.
    pub server_bytes: u64,
    /// Bytes of the client's cache, as it says.
    pub cache_bytes: u64,
}

impl ChangeMemory {
    fn a_pair(&self, bytes: u64) -> f64 {
        bytes as f64 / self.pairs.max(1) as f64
    }

    /// Bytes of the cache a key, as the client says.
    #[must_use]
    pub fn cache_bytes_per_key(&self) -> f64 {
        self.a_pair(self.cache_bytes)
    }

    /// Bytes of the server's process a pair.
    #[must_use]
    pub fn server_bytes_per_pair(&self) -> f64 {
        self.a_pair(self.server_bytes)
    }

    /// Bytes of the table's regions in use, a pair.
    #[must_use]
    pub fn table_bytes_per_pair(&self) -> f64 {
        self.a_pair(self.table_bytes)
    }

    /// Leaves, by those that as many pairs need after a bulk load.
    #[must_use]
    pub fn leaves_by_needed(&self) -> f64 {
        self.leaves as f64 / self.pairs.div_ceil(PAIRS_PER_LEAF as u64).max(1) as f64
    }
}

/// An interval of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeSample {
    /// `before`, `during` (beside the writer), `settling` (the reader turns to the new keys) or `after`.
    pub phase: String,
    /// Its end, in s from the first phase's beginning.
    pub at_s: f64,
    /// Its length, in s.
    pub interval_s: f64,
    /// Writes a second, in the interval.
    pub writes_per_s: f64,
    /// GETs a second of the time in calls, in the interval.
    pub gets_per_s: f64,
    /// 99 % of the GETs took at most this.
    pub get_p99_ns: u64,
    /// READs a GET.
    pub reads_per_get: f64,
    /// GETs that ended with an RPC, a GET.
    pub fallbacks_per_get: f64,
    /// Table and cache at its end.
    #[serde(flatten)]
    pub memory: ChangeMemory,
}

/// A figure and what it is held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// The figure.
    pub figure: String,
    /// What was found.
    pub found: f64,
    /// The most that it may be, if there is such a bound.
    pub at_most: Option<f64>,
    /// The least that it may be, if there is such a bound.
    pub at_least: Option<f64>,
    /// Whether it keeps the bound.
    pub is_met: bool,
}

/// The result of one change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// The change: `append`, `cluster`, `tenant`, `window`, `growth`, `delete`.
    pub change: String,
    /// Keys loaded.
    pub keys: u64,
    /// Writes of the change.
    pub operations: u64,
    /// Those a second.
    pub writes_per_s: f64,
    /// A reader of loaded keys, alone.
    pub before: ChangePhase,
    /// The same beside the writer.
    pub during: ChangePhase,
    /// A reader of the new keys, or of those left, from one second after the last write to two.
    pub after: ChangePhase,
    /// Scans before, of changes that remove.
    pub scans_before: Option<ChangeScans>,
    /// Scans after, of changes that remove.
    pub scans_after: Option<ChangeScans>,
    /// Table and cache as loaded, with a full cache.
    pub fresh: ChangeMemory,
    /// Table and cache at the end.
    pub end: ChangeMemory,
    /// Bytes a key by which a new client's process grew while it filled its cache: of the table as loaded,
    /// and of that at the end.
    pub process_bytes_per_key: [f64; 2],
    /// Operations whose answers were checked, all of them right.
    pub operations_checked: u64,
    /// The figures that have a bound.
    pub marks: Vec<ChangeMark>,
    /// The course of all phases.
    pub samples: Vec<ChangeSample>,
    /// Where it ran.
    pub machine: Machine,
}

impl ChangeRecord {
    /// The record with its marks.
    #[must_use]
    pub fn judged(mut self, change: ShapeChange) -> Self {
        let at_most = |figure: &str, found: f64, bound: f64| ChangeMark {
            figure: figure.to_owned(),
            found,
            at_most: Some(bound),
            at_least: None,
            is_met: found <= bound,
        };
        let at_least = |figure: &str, found: f64, bound: f64| ChangeMark {
            figure: figure.to_owned(),
            found,
            at_most: None,
            at_least: Some(bound),
            is_met: found >= bound,
        };
        let mut marks = vec![
            at_most("reader_p99_ratio", self.reader_p99_ratio(), 2.0),
            at_most("reads_per_get", self.after.reads_per_get, 2.1),
            at_most("fallbacks_per_get", self.after.fallbacks_per_get, 0.001),
            at_least("get_rate_ratio", self.get_rate_ratio(), 0.7),
            at_most("fresh_cache_bytes_per_key", self.fresh.cache_bytes_per_key(), 0.9),
        ];
        marks.extend(self.slowest_write_ratio().map(|ratio| at_least("slowest_write_ratio", ratio, 0.5)));
        match change {
            ShapeChange::Window => marks.push(at_most("leaves_by_needed", self.end.leaves_by_needed(), 2.0)),
            ShapeChange::Delete => {
                marks.push(at_most("server_bytes_per_pair", self.end.server_bytes_per_pair(), 60.0));
            }
            _ => marks.push(at_most("worst_cache_bytes_per_key", self.worst_cache_bytes_per_key(), 1.2)),
        }
        self.marks = marks;
        self
    }

    /// The reader's p99 beside the writer, by that without.
    #[must_use]
    pub fn reader_p99_ratio(&self) -> f64 {
        self.during.get_latency_ns.p99 as f64 / self.before.get_latency_ns.p99.max(1) as f64
    }

    /// The rate of GETs of the new keys, by that of loaded ones before the change.
    #[must_use]
    pub fn get_rate_ratio(&self) -> f64 {
        self.after.gets_per_s / self.before.gets_per_s.max(1.0)
    }

    /// The most that the cache took a key, as the client says, from the beginning to the end.
    #[must_use]
    pub fn worst_cache_bytes_per_key(&self) -> f64 {
        self.samples.iter().map(|sample| sample.memory.cache_bytes_per_key()).fold(0.0, f64::max)
    }

    /// The writer's rate in its slowest interval, by the median of the first half of its intervals. So a
    /// writer that stalls shows, and one that slows down for good. The last interval, which is not full, is
    /// left out. `None` with too few intervals.
    #[must_use]
    pub fn slowest_write_ratio(&self) -> Option<f64> {
        let during = self.samples.iter().filter(|sample| sample.phase == "during");
        let mut rates: Vec<f64> = during.map(|sample| sample.writes_per_s).collect();
        rates.pop();
        if rates.len() < INTERVALS_MIN {
            return None;
        }
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let first_half = rates.len() / 2;
        rates.truncate(first_half);
        rates.sort_by(f64::total_cmp);
        Some(slowest / rates[first_half / 2].max(1.0))
    }

    /// The mark of a figure, if it has one.
    #[must_use]
    pub fn mark(&self, figure: &str) -> Option<&ChangeMark> {
        self.marks.iter().find(|mark| mark.figure == figure)
    }

    /// Marks that are missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.marks.iter().filter(|mark| !mark.is_met).count()
    }
}
