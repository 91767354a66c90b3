//! Results of the figures of FlexKV's evaluation.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::MixRecord;
use super::simulated::{LoneReads, SimulatedRecord, SimulatedSample, percent, table};
use crate::flexkv_figures::FlexFigure;
use crate::histogram::LatencyNs;

/// Samples of one line of a course.
const SAMPLES_A_ROW: usize = 4;

/// A point of a figure. Names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlexPointRecord {
    /// The figure's number in the paper.
    pub figure: String,
    /// What it shows.
    pub title: String,
    /// The testbed and what all points have in common, for the eye.
    pub setting: String,
    /// What `x` is, with its unit.
    pub axis: String,
    /// The part of the figure: a workload or a distribution.
    pub panel: String,
    /// What is compared. Verb mixes are called so.
    pub system: String,
    /// Where the point is.
    pub x: f64,
    /// What its run gave.
    pub run: FlexRun,
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlexRun {
    /// It is of verbs alone: nothing was stored or found.
    pub is_verb_mix: bool,
    /// Virtual time that was measured, in s.
    pub virtual_seconds: f64,
    /// Bytes of a value; of a verb mix none.
    pub value_size: Option<u32>,
    /// Operations a second of virtual time.
    pub throughput_ops_per_s: f64,
    /// Latency of an operation; of the store, of its batch.
    pub latency_ns: LatencyNs,
    /// READs an operation.
    pub reads_per_op: f64,
    /// WRITEs an operation.
    pub writes_per_op: f64,
    /// Compare-and-swaps and fetch-and-adds an operation.
    pub atomics_per_op: f64,
    /// Calls an operation.
    pub calls_per_op: f64,
    /// Of GETs, those that a kept value answered.
    pub value_hits_per_get: f64,
    /// The part of all partitions that compute nodes wrote for others at the end.
    pub offloaded: Option<f64>,
    /// Writes that each compute node executed for others.
    pub proxied_writes: Vec<u64>,
    /// Their coefficient of variation.
    pub proxied_writes_variation: Option<f64>,
    /// What answered reads, where operations came one at a time.
    pub lone_reads: Option<LoneReads>,
    /// The window in samples, if that was asked.
    pub samples: Vec<SimulatedSample>,
    /// The part that limits the run; none if all of them are idle for a tenth of the time.
    pub bottleneck: Option<String>,
}

impl FlexRun {
    /// Of the store.
    #[must_use]
    pub fn of_store(record: &SimulatedRecord) -> Self {
        Self {
            is_verb_mix: false,
            virtual_seconds: record.virtual_seconds,
            value_size: Some(record.value_size),
            throughput_ops_per_s: record.throughput_ops_per_s,
            latency_ns: record.latency_ns,
            reads_per_op: record.reads_per_op,
            writes_per_op: record.writes_per_op,
            atomics_per_op: record.atomics_per_op,
            calls_per_op: record.calls_per_op,
            value_hits_per_get: record.value_hits_per_get,
            offloaded: record.offloaded,
            proxied_writes: record.proxied_writes.clone(),
            proxied_writes_variation: record.proxied_writes_variation(),
            lone_reads: record.lone_reads,
            samples: record.samples.clone(),
            bottleneck: record.bottleneck.clone(),
        }
    }

    /// Of verbs alone.
    #[must_use]
    pub fn of_verbs(record: &MixRecord) -> Self {
        Self {
            is_verb_mix: true,
            virtual_seconds: record.virtual_seconds,
            value_size: None,
            throughput_ops_per_s: record.throughput_ops_per_s,
            latency_ns: record.latency_ns,
            reads_per_op: record.reads_per_op,
            writes_per_op: record.writes_per_op,
            atomics_per_op: record.atomics_per_op,
            calls_per_op: record.calls_per_op,
            value_hits_per_get: record.value_hits_per_search,
            offloaded: (record.offloaded > 0.0).then_some(record.offloaded),
            proxied_writes: Vec::new(),
            proxied_writes_variation: None,
            lone_reads: None,
            samples: Vec::new(),
            bottleneck: record.bottleneck.clone(),
        }
    }
}

/// The results for the eye, a table a figure.
#[must_use]
pub fn flex_table(records: &[FlexPointRecord]) -> String {
    let mut text = String::new();
    for figure in records.chunk_by(|one, next| one.figure == next.figure) {
        let first = &figure[0];
        let _ = writeln!(text, "{}: {}\n{}", first.figure, first.title, first.setting);
        let own = match first.figure.parse() {
            Ok(FlexFigure::Latencies) => latencies(figure),
            Ok(FlexFigure::Dynamic) => courses(figure),
            Ok(FlexFigure::Balance) => loads(figure),
            Ok(FlexFigure::Hits) => hits(figure),
            _ => rates(figure),
        };
        let _ = writeln!(text, "{own}");
    }
    if records.iter().any(|record| record.run.is_verb_mix) {
        text.push_str("verbs of a system: what cards and cores allow it; nothing is stored or found\n");
    }
    text
}

/// The systems of some records, in the order of their first coming.
pub(crate) fn flex_systems(records: &[FlexPointRecord]) -> Vec<&str> {
    let mut systems = Vec::new();
    for record in records {
        if !systems.contains(&record.system.as_str()) {
            systems.push(record.system.as_str());
        }
    }
    systems
}

/// M operations/s: a row a panel and place, a column a system.
fn rates(records: &[FlexPointRecord]) -> String {
    let systems = flex_systems(records);
    let columns: Vec<String> =
        systems.iter().map(|system| system.replacen("verbs of ", "verbs of\n", 1)).collect();
    let header: Vec<&str> =
        ["part", records[0].axis.as_str()].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let place = |record: &FlexPointRecord| (record.panel.clone(), record.x.to_bits());
    let rows = records.chunk_by(|one, next| place(one) == place(next)).map(|points| {
        let rate = |system: &&str| {
            let point = points.iter().find(|point| point.system == **system);
            point.map_or(String::new(), |point| millions(point.run.throughput_ops_per_s))
        };
        let place = [points[0].panel.clone(), points[0].x.to_string()];
        place.into_iter().chain(systems.iter().map(rate)).collect()
    });
    format!("M ops/s\n{}\n", table(&header, rows, &[0]))
}

fn latencies(records: &[FlexPointRecord]) -> String {
    let header = ["part", "system", "M ops/s", "p50\nµs", "p90\nµs", "p99\nµs", "p99.9\nµs"];
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let rows = records.iter().map(|FlexPointRecord { panel, system, run, .. }| {
        let LatencyNs { p50, p90, p99, p999 } = run.latency_ns;
        let of = [panel.clone(), system.clone(), millions(run.throughput_ops_per_s)];
        of.into_iter().chain([p50, p90, p99, p999].map(us)).collect()
    });
    format!("of a batch of the store, of an operation of a verb mix\n{}\n", table(&header, rows, &[0, 1]))
}

/// Rates over time, some samples a row.
fn courses(records: &[FlexPointRecord]) -> String {
    let header = ["until\nms", "part", "M ops/s", "offloaded"];
    let mut text = String::new();
    for FlexPointRecord { panel, run, .. } in records {
        let rows = run.samples.chunks(SAMPLES_A_ROW).map(|samples| {
            let last = samples.last().expect("a chunk has some");
            let rate = samples.iter().map(|sample| sample.ops_per_s).sum::<f64>() / samples.len() as f64;
            vec![
                format!("{:.1}", last.at_s * 1e3),
                last.workload.clone(),
                millions(rate),
                last.offloaded.map_or(String::new(), percent),
            ]
        });
        let _ = writeln!(text, "{panel}\n{}", table(&header, rows, &[1]));
    }
    text
}

fn loads(records: &[FlexPointRecord]) -> String {
    let header = ["part", "system", "M ops/s", "M writes/s\nfor others", "their\nvariation"];
    let rows = records.iter().map(|FlexPointRecord { panel, system, run, .. }| {
        let writes = run.proxied_writes.iter().sum::<u64>() as f64 / run.virtual_seconds;
        vec![
            panel.clone(),
            system.clone(),
            millions(run.throughput_ops_per_s),
            millions(writes),
            run.proxied_writes_variation.map_or(String::new(), |variation| format!("{variation:.3}")),
        ]
    });
    format!("{}\n", table(&header, rows, &[0, 1]))
}

fn hits(records: &[FlexPointRecord]) -> String {
    let header = [
        "part",
        "M ops/s",
        "offloaded",
        "by values",
        "by\naddresses",
        "value\nµs",
        "address\nµs",
        "other\nµs",
    ];
    let rows = records.iter().map(|FlexPointRecord { panel, run, .. }| {
        let offloaded = run.offloaded.map_or(String::new(), percent);
        let mut row = vec![panel.clone(), millions(run.throughput_ops_per_s), offloaded];
        if let Some(LoneReads { value, address, other }) = run.lone_reads {
            row.extend([value, address].map(|kind| percent(kind.part)));
            row.extend([value, address, other].map(|kind| format!("{:.1}", kind.latency_ns_mean / 1e3)));
        } else {
            row.extend(std::iter::repeat_n(String::new(), 5));
        }
        row
    });
    format!("one operation at a time, reads by what answered them\n{}\n", table(&header, rows, &[0]))
}

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}
