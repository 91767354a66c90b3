//! Results of verb mixes: the verbs of systems on a testbed whose parts have prices.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::simulated::{PartRecord, SensitivityRow, percent, sensitivity, table};
use super::thousands;
use crate::histogram::LatencyNs;

/// The result of one system and workload. Names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixRecord {
    /// Whose verbs.
    pub system: String,
    /// YCSB workload.
    pub workload: String,
    /// The profile's name.
    pub profile: String,
    /// What it describes.
    pub testbed: String,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Client threads of all compute nodes.
    pub clients: usize,
    /// Operations that each has under way.
    pub coroutines_per_client: usize,
    /// Keys.
    pub keys: u64,
    /// Their Zipfian skew.
    pub theta: f64,
    /// The part of the index that compute nodes proxy, 0 to 1.
    pub offloaded: f64,
    /// Virtual time that was measured, in s.
    pub virtual_seconds: f64,
    /// Operations a second of virtual time.
    pub throughput_ops_per_s: f64,
    /// Latency of an operation, in virtual time.
    pub latency_ns: LatencyNs,
    /// READs an operation.
    pub reads_per_op: f64,
    /// Bytes that those READs carried, an operation.
    pub bytes_read_per_op: f64,
    /// WRITEs an operation.
    pub writes_per_op: f64,
    /// Compare-and-swaps an operation.
    pub atomics_per_op: f64,
    /// Calls an operation.
    pub calls_per_op: f64,
    /// Of SEARCHes, those that a cached value answers.
    pub value_hits_per_search: f64,
    /// Of SEARCHes, those that a cached address answers.
    pub address_hits_per_search: f64,
    /// The part that limits the run; none if all of them are idle for a tenth of the time.
    pub bottleneck: Option<String>,
    /// How busy each kind of part was.
    pub utilization: Vec<PartRecord>,
    /// What each uncertain constant does to the throughput, if that was asked.
    pub sensitivity: Vec<SensitivityRow>,
}

/// What systems reach where a CAS and a message cost so many WRITEs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RatioRecord {
    /// YCSB workload.
    pub workload: String,
    /// The profile's name, whose other prices hold.
    pub profile: String,
    /// WRITEs that a CAS costs.
    pub writes_per_swap: f64,
    /// WRITEs that a message of a call costs.
    pub writes_per_message: f64,
    /// Operations a second, by system.
    pub ops_per_s: Vec<(String, f64)>,
}

/// The results for the eye. They are of one testbed.
#[must_use]
pub fn mix_table(records: &[MixRecord]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut text = format!(
        "profile {}: {}\n{} compute and {} memory nodes; {} clients x {}; {} keys, Zipfian {}; {} ms\n",
        first.profile,
        first.testbed,
        first.compute_nodes,
        first.memory_nodes,
        first.clients,
        first.coroutines_per_client,
        thousands(first.keys),
        first.theta,
        first.virtual_seconds * 1e3,
    );
    let header = [
        "workload",
        "system",
        "off-\nloaded",
        "M ops/s",
        "p50\nµs",
        "p99\nµs",
        "READs\n/op",
        "WRITEs\n/op",
        "CASes\n/op",
        "calls\n/op",
        "value\nhits",
        "addr.\nhits",
        "limited by",
    ];
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let rows = records.iter().map(|record| {
        vec![
            record.workload.clone(),
            record.system.clone(),
            format!("{:.0} %", record.offloaded * 1e2),
            format!("{:.2}", record.throughput_ops_per_s / 1e6),
            us(record.latency_ns.p50),
            us(record.latency_ns.p99),
            format!("{:.2}", record.reads_per_op),
            format!("{:.2}", record.writes_per_op),
            format!("{:.2}", record.atomics_per_op),
            format!("{:.2}", record.calls_per_op),
            percent(record.value_hits_per_search),
            percent(record.address_hits_per_search),
            record.bottleneck.clone().unwrap_or_else(|| "waiting".to_owned()),
        ]
    });
    let _ = writeln!(text, "{}", table(&header, rows, &[0, 1, 12]));
    for record in records.iter().filter(|record| !record.sensitivity.is_empty()) {
        let of = format!("{}, workload {}", record.system, record.workload);
        text.push_str(&sensitivity(&of, record.throughput_ops_per_s, &record.sensitivity));
    }
    text
}

/// Throughputs by what a CAS and a message cost, for the eye.
#[must_use]
pub fn ratio_table(records: &[RatioRecord]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let systems = first.ops_per_s.iter().map(|(system, _)| system.as_str());
    let header: Vec<&str> =
        ["workload", "WRITEs\na CAS", "WRITEs\na message"].into_iter().chain(systems).collect();
    let rows = records.iter().map(|record| {
        let ratios = [
            record.workload.clone(),
            record.writes_per_swap.to_string(),
            record.writes_per_message.to_string(),
        ];
        let rates = record.ops_per_s.iter().map(|(_, rate)| format!("{:.2}", rate / 1e6));
        ratios.into_iter().chain(rates).collect()
    });
    format!("M ops/s by what a CAS and a message of a call cost\n{}\n", table(&header, rows, &[0]))
}
