//! The record of a result, as JSON and as a table.
//!
//! Invariant: every number of a [`Record`] is the median over the runs of one setting, and the limits in it
//! were measured in those same runs. JSON names carry their unit; the table rounds for the eye and holds
//! nothing that the JSON lacks.

mod budget;
mod change;
mod comparison;
mod flexkv;
mod inserts;
mod mixes;
mod model;
mod recovery;
mod simulated;
mod table;
mod twitter;
mod values;

use std::{fs, io, path::Path};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{histogram::LatencyNs, machine::Machine, whole_file::write_whole};

pub use budget::budget_table;
pub(crate) use budget::{budget_text, way};
pub use change::{
    ChangeMark, ChangeMemory, ChangePhase, ChangeRecord, ChangeSample, ChangeScans, change_table,
};
pub use comparison::{ComparedStore, Comparison, Rate, Work};
pub(crate) use flexkv::flex_systems;
pub use flexkv::{FlexPointRecord, FlexRun, flex_table};
pub use inserts::{InsertPhase, InsertRecord, InsertSample, InsertSetting, insert_table};
pub use mixes::{MixRecord, RatioRecord, mix_table, ratio_table};
pub use model::{CurvePoint, DetailedSubModel, ModelDetail, ModelRecord, Prediction};
pub use recovery::{RecoveryRecord, RecoverySetting, RecoveryStage, RecoveryStart, recovery_table};
pub use simulated::{
    HitKind, LoneReads, PartRecord, SensitivityRow, SimulatedRecord, SimulatedSample, simulated_table,
};
pub use table::{table, thousands};
pub(crate) use twitter::systems_of;
#[cfg(test)]
pub(crate) use twitter::tests::record as cluster_record;
pub use twitter::{ClusterRecord, ClusterRun, cluster_table};
pub use values::values_table;

/// Runs that a published median takes at least.
pub const RUNS_MIN: usize = 5;

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// YCSB workload, `a` to `f`.
    pub workload: String,
    /// Which keys are popular: `uniform`, `zipfian`, `latest`.
    pub distribution: String,
    /// Name or path of the dataset.
    pub dataset: String,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a value, the longest of any length.
    pub value_size: u32,
    /// Bytes of the shortest, of any length.
    #[serde(default)]
    pub value_size_min: u32,
    /// `fixed`: of one size, in leaves; `blocks`: of any length, in blocks of their own.
    #[serde(default = "fixed")]
    pub values: String,
    /// Client threads.
    pub threads: usize,
    /// Operations of a batch.
    pub batch: usize,
    /// `one-sided` or `rpc`.
    pub access: String,
    /// What carried the verbs: `shm`, `tcp` or `rdma`.
    #[serde(default = "shared_memory")]
    pub fabric: String,
    /// `xstore`, `xstore-d` or `rolex`.
    #[serde(default = "xstore")]
    pub engine: String,
    /// Memory nodes of the pool; of a server none.
    #[serde(default)]
    pub memory_nodes: usize,
    /// How the table came to hold its keys: `fresh` by one bulk load, `aged` half of them by inserts in
    /// random order.
    #[serde(default = "fresh")]
    pub table: String,
    /// Measured time of a run, in s.
    pub seconds: f64,
    /// When writes were acknowledged, where servers kept their tables: `durable` or `memory`.
    #[serde(default)]
    pub acknowledged: Option<String>,
}

/// The table of results from before they named it.
fn fresh() -> String {
    "fresh".into()
}

/// The values of results from before they named them.
fn fixed() -> String {
    "fixed".into()
}

/// The fabric of results from before they named it.
fn shared_memory() -> String {
    "shm".into()
}

/// An engine and where its table is.
fn engine_text(engine: &str, memory_nodes: usize) -> String {
    match memory_nodes {
        0 => engine.to_owned(),
        1 => format!("{engine} in 1 memory node"),
        nodes => format!("{engine} in {nodes} memory nodes"),
    }
}

/// The engine of results from before they named it.
fn xstore() -> String {
    "xstore".into()
}

/// What one run measured, over all client threads. A field that does not apply is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations a second.
    pub throughput_ops_per_s: f64,
    /// Latency of an operation's batch.
    pub latency_ns: LatencyNs,
    /// One-sided READs an operation.
    pub reads_per_op: f64,
    /// READs that a fresh cache would have saved, a GET or scan: steps to a leaf that was split off, and
    /// READs repeated because a line was being written.
    #[serde(default)]
    pub extra_reads_per_get: f64,
    /// Bytes that those READs carried, an operation.
    pub bytes_read_per_op: f64,
    /// Doorbells waited for one after the other, an operation.
    pub round_trips_per_op: f64,
    /// Operations that ended with an RPC because the cache was stale, an operation.
    pub fallbacks_per_op: f64,
    /// Client cache (model and table), bytes a key of the table.
    pub cache_bytes_per_key: f64,
    /// Of it, the models; the rest are tables of leaves.
    #[serde(default)]
    pub model_bytes_per_key: f64,
    /// Server processor time a second of run; 1 is one core.
    pub server_cpu_fraction: f64,
    /// Processor time of the client threads a second of run; 1 unless others had their cores for a part of
    /// it.
    pub client_cpu_fraction: f64,
    /// Best rate of independent 64 B reads over a region of the same size and pages, same threads.
    pub random_read_limit_per_s: f64,
    /// Rate of unchecked walks of the same layout, same threads: in batches, or one at a time for batches of
    /// one.
    pub shape_limit_per_s: f64,
    /// Copies a second of a value out of a random block, same threads.
    #[serde(default)]
    pub block_copy_limit_per_s: f64,
}

/// The result of a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was run.
    #[serde(flatten)]
    pub setting: Setting,
    /// Medians over the runs, field by field.
    #[serde(flatten)]
    pub median: Measured,
    /// Median of each run's throughput by the shape limit of that run; zero without a limit.
    pub fraction_of_shape_limit: f64,
    /// Throughput of each run, in operations a second, in their order.
    pub runs: Vec<f64>,
    /// Where it ran.
    pub machine: Machine,
}

/// Why a result could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file could not be written or read.
    #[error("{action} {path}: {source}")]
    Io {
        /// "reading" or "writing".
        action: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not an array of records.
    #[error("{path} is not an array of results: {source}")]
    Form {
        /// The file.
        path: String,
        /// The JSON reader's error.
        source: serde_json::Error,
    },
}

impl Record {
    /// Takes the medians of the runs of one setting; [`RUNS_MIN`] and more make a result worth publishing.
    ///
    /// # Panics
    /// Without a run, or if a measurement is not a finite number.
    #[must_use]
    pub fn of_runs(setting: Setting, runs: &[Measured], machine: Machine) -> Self {
        let of = |field: fn(&Measured) -> f64| median(&runs.iter().map(field).collect::<Vec<_>>());
        let of_latency = |field: fn(&LatencyNs) -> u64| {
            median(&runs.iter().map(|run| field(&run.latency_ns) as f64).collect::<Vec<_>>()).round() as u64
        };
        let median = Measured {
            throughput_ops_per_s: of(|run| run.throughput_ops_per_s),
            latency_ns: LatencyNs {
                p50: of_latency(|latency| latency.p50),
                p90: of_latency(|latency| latency.p90),
                p99: of_latency(|latency| latency.p99),
                p999: of_latency(|latency| latency.p999),
            },
            reads_per_op: of(|run| run.reads_per_op),
            extra_reads_per_get: of(|run| run.extra_reads_per_get),
            bytes_read_per_op: of(|run| run.bytes_read_per_op),
            round_trips_per_op: of(|run| run.round_trips_per_op),
            fallbacks_per_op: of(|run| run.fallbacks_per_op),
            cache_bytes_per_key: of(|run| run.cache_bytes_per_key),
            model_bytes_per_key: of(|run| run.model_bytes_per_key),
            server_cpu_fraction: of(|run| run.server_cpu_fraction),
            client_cpu_fraction: of(|run| run.client_cpu_fraction),
            random_read_limit_per_s: of(|run| run.random_read_limit_per_s),
            shape_limit_per_s: of(|run| run.shape_limit_per_s),
            block_copy_limit_per_s: of(|run| run.block_copy_limit_per_s),
        };
        Self {
            setting,
            median,
            fraction_of_shape_limit: of(Measured::fraction_of_shape_limit),
            runs: runs.iter().map(|run| run.throughput_ops_per_s).collect(),
            machine,
        }
    }
}

impl Measured {
    fn fraction_of_shape_limit(&self) -> f64 {
        if self.shape_limit_per_s > 0.0 { self.throughput_ops_per_s / self.shape_limit_per_s } else { 0.0 }
    }
}

/// The median; the mean of the middle two for an even count.
///
/// # Panics
/// Without a value, or if a value is not finite.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "a median needs a value");
    assert!(values.iter().all(|value| value.is_finite()), "a measurement is a finite number: {values:?}");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Records as a JSON array, one object a setting.
///
/// # Panics
/// If a record is no plain data.
pub fn to_json(records: &[impl Serialize]) -> String {
    let mut text = serde_json::to_string_pretty(records).expect("records are plain data");
    text.push('\n');
    text
}

/// Writes records as [`to_json`] has them: the whole file, or nothing of it.
///
/// # Errors
/// [`ReportError::Io`] with the path.
pub fn write_json(path: &Path, records: &[impl Serialize]) -> Result<(), ReportError> {
    write_whole(path, to_json(records).as_bytes()).map_err(|source| ReportError::Io {
        action: "writing",
        path: path.display().to_string(),
        source,
    })
}

/// Reads what [`write_json`] wrote.
///
/// # Errors
/// [`ReportError`] with the path.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, ReportError> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| ReportError::Io {
        action: "reading",
        path: shown(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| ReportError::Form { path: shown(), source })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example(workload: &str, throughputs: &[f64]) -> Record {
        let setting = Setting {
            workload: workload.into(),
            distribution: "uniform".into(),
            dataset: "longitudes".into(),
            keys: 3_766_456,
            value_size: 8,
            value_size_min: 8,
            values: "fixed".into(),
            threads: 2,
            batch: 64,
            access: "one-sided".into(),
            fabric: "shm".into(),
            engine: "xstore".into(),
            memory_nodes: 0,
            table: "fresh".into(),
            seconds: 5.0,
            acknowledged: None,
        };
        let runs: Vec<_> = throughputs
            .iter()
            .map(|&throughput_ops_per_s| Measured {
                throughput_ops_per_s,
                latency_ns: LatencyNs { p50: 1_480, p90: 2_110, p99: 2_950, p999: 41_200 },
                reads_per_op: 2.02,
                extra_reads_per_get: 0.02,
                bytes_read_per_op: 260.0,
                round_trips_per_op: 0.03,
                fallbacks_per_op: 0.0001,
                cache_bytes_per_key: 0.87,
                model_bytes_per_key: 0.09,
                server_cpu_fraction: 0.0,
                client_cpu_fraction: 1.0,
                random_read_limit_per_s: 2e8,
                shape_limit_per_s: 1e8,
                block_copy_limit_per_s: 0.0,
            })
            .collect();
        let machine = Machine { cpu: "Example 9000".into(), cores: 2, ..Machine::default() };
        Record::of_runs(setting, &runs, machine)
    }

    #[test]
    fn medians_are_middles() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        let record = example("c", &[8e7, 2e7, 7e7, 9e7, 1e7]);
        assert!((record.median.throughput_ops_per_s - 7e7).abs() < 1.0);
        assert!((record.fraction_of_shape_limit - 0.7).abs() < 1e-12);
        assert_eq!(record.runs.len(), RUNS_MIN);
        assert_eq!(record.median.latency_ns.p999, 41_200);
    }

    #[test]
    #[should_panic(expected = "a measurement is a finite number")]
    fn a_measurement_that_is_no_number_is_a_bug() {
        let _ = median(&[1.0, f64::NAN]);
    }

    #[test]
    fn json_is_an_array_of_flat_objects_with_every_field() {
        let path = std::env::temp_dir().join(format!("farsight-report-{}.json", std::process::id()));
        let records = [example("a", &[1e6]), example("c", &[7e7, 8e7])];
        write_json(&path, &records).expect("a temporary file");
        let text = fs::read_to_string(&path).expect("written");
        let values: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&text).expect("an array of objects");
        assert_eq!(values.len(), 2);
        for field in [
            "workload",
            "dataset",
            "distribution",
            "access",
            "machine",
            "runs",
            "latency_ns",
            "keys",
            "threads",
            "batch",
            "value_size",
            "seconds",
            "throughput_ops_per_s",
            "reads_per_op",
            "extra_reads_per_get",
            "bytes_read_per_op",
            "round_trips_per_op",
            "fallbacks_per_op",
            "cache_bytes_per_key",
            "server_cpu_fraction",
            "client_cpu_fraction",
            "random_read_limit_per_s",
            "shape_limit_per_s",
            "fraction_of_shape_limit",
        ] {
            assert!(values[1].contains_key(field), "{field} is missing in {text}");
        }
        assert_eq!(values[1]["throughput_ops_per_s"], 7.5e7);
        for quantile in ["p50", "p99", "p999"] {
            assert!(values[1]["latency_ns"][quantile].is_u64(), "{quantile}");
        }
        assert_eq!(read_json::<Record>(&path).expect("readable"), records);
        fs::write(&path, "{}").expect("writable");
        let error = read_json::<Record>(&path).expect_err("no array").to_string();
        assert!(error.contains("is not an array of results"), "{error}");
        fs::remove_file(path).expect("removable");
    }
}
