//! Results of the simulated fabric, in virtual time.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};
use serde::{Deserialize, Serialize};

use super::{Measured, thousands};
use crate::histogram::LatencyNs;

/// A constant that moves a result by less than this is none that anybody has to know better.
const WORTH_A_ROW: f64 = 0.005;
/// Names of such constants on a line.
const NAMES_A_LINE: usize = 5;

/// The result of one workload. Names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulatedRecord {
    /// `sim`.
    pub fabric: String,
    /// The profile's name.
    pub profile: String,
    /// `xstore`, `xstore-d` or `rolex`.
    #[serde(default = "super::xstore")]
    pub engine: String,
    /// Memory nodes of the pool; of a server none.
    #[serde(default)]
    pub memory_nodes: usize,
    /// What it describes.
    pub testbed: String,
    /// Client machines.
    pub machines: usize,
    /// Of those, the machines that also write for others.
    #[serde(default)]
    pub proxies: usize,
    /// Threads of each.
    pub threads_per_machine: usize,
    /// YCSB workload.
    pub workload: String,
    /// Which keys are popular.
    pub distribution: String,
    /// Name or path of the dataset.
    pub dataset: String,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u32,
    /// Operations of a batch.
    pub batch: usize,
    /// `one-sided` or `rpc`.
    pub access: String,
    /// Virtual time that was measured, in s.
    pub virtual_seconds: f64,
    /// Operations a second of virtual time.
    pub throughput_ops_per_s: f64,
    /// Latency of an operation's batch, in virtual time.
    pub latency_ns: LatencyNs,
    /// One-sided READs an operation.
    pub reads_per_op: f64,
    /// Bytes that those READs carried, an operation.
    pub bytes_read_per_op: f64,
    /// WRITEs an operation.
    #[serde(default)]
    pub writes_per_op: f64,
    /// Compare-and-swaps and fetch-and-adds an operation.
    #[serde(default)]
    pub atomics_per_op: f64,
    /// Calls an operation.
    pub calls_per_op: f64,
    /// Doorbells an operation.
    pub doorbells_per_op: f64,
    /// Look-ups that ended with a call because the cache was stale, an operation.
    pub fallbacks_per_op: f64,
    /// The part that limits the run; none if all of them are idle for a tenth of the time.
    pub bottleneck: Option<String>,
    /// How busy each kind of part was.
    pub utilization: Vec<PartRecord>,
    /// What each uncertain constant does to the throughput, if that was asked.
    pub sensitivity: Vec<SensitivityRow>,
    /// What a machine's cache might take of memory; none: as much as it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_budget_bytes: Option<u64>,
    /// What it took at the end.
    #[serde(default)]
    pub cache_memory_bytes: u64,
    /// Clients READ what their caches lack. Otherwise they call.
    #[serde(default)]
    pub publishes_models: bool,
    /// Bytes of values that a machine might keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_cache_bytes: Option<u64>,
    /// Of GETs, those that a kept value answered.
    #[serde(default)]
    pub value_hits_per_get: f64,
    /// The part of all partitions that machines wrote for others at the end; none if no machine does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<f64>,
    /// Writes that each of those machines executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxied_writes: Vec<u64>,
    /// What answered reads, where operations came one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lone_reads: Option<LoneReads>,
    /// The window in samples, if that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SimulatedSample>,
}

/// Reads that came alone, by what answered them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoneReads {
    /// A kept value.
    pub value: HitKind,
    /// An address that the machine had, and that still held.
    pub address: HitKind,
    /// Neither.
    pub other: HitKind,
}

/// Reads of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HitKind {
    /// The part of all reads.
    pub part: f64,
    /// What they took, on average.
    pub latency_ns_mean: f64,
}

/// A part of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulatedSample {
    /// When it ended, in s of virtual time from the window's begin.
    pub at_s: f64,
    /// What ran at its end.
    pub workload: String,
    /// Operations a second of virtual time.
    pub ops_per_s: f64,
    /// The part of all partitions that machines wrote for others then; none if no machine does.
    pub offloaded: Option<f64>,
}

impl SimulatedRecord {
    /// What runs on machines are told by, too.
    #[must_use]
    pub fn measured(&self) -> Measured {
        Measured {
            throughput_ops_per_s: self.throughput_ops_per_s,
            latency_ns: self.latency_ns,
            reads_per_op: self.reads_per_op,
            bytes_read_per_op: self.bytes_read_per_op,
            fallbacks_per_op: self.fallbacks_per_op,
            ..Measured::default()
        }
    }

    /// The coefficient of variation of the writes that machines executed for others: their standard deviation
    /// by their mean. None if there were no such writes.
    #[must_use]
    pub fn proxied_writes_variation(&self) -> Option<f64> {
        let count = self.proxied_writes.len() as f64;
        let mean = self.proxied_writes.iter().sum::<u64>() as f64 / count;
        let squares = self.proxied_writes.iter().map(|writes| (*writes as f64 - mean).powi(2));
        (mean > 0.0).then(|| (squares.sum::<f64>() / count).sqrt() / mean)
    }
}

/// How busy the parts of a kind were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartRecord {
    /// The kind.
    pub name: String,
    /// Parts of this kind.
    pub parts: usize,
    /// Work by time, 1 is all the time; the mean over the parts.
    pub utilization_mean: f64,
    /// That of the busiest one.
    pub utilization_most: f64,
}

/// A result with one constant at the ends of its band.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SensitivityRow {
    /// The constant's name in the profile.
    pub constant: String,
    /// The unit of the three values.
    pub unit: String,
    /// What the profile reckons with.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
    /// Operations a second with the least.
    pub ops_per_s_at_low: f64,
    /// Operations a second with the most.
    pub ops_per_s_at_high: f64,
}

/// The results for the eye, a table an engine and testbed; its results are of one setting but for workload
/// and distribution.
#[must_use]
pub fn simulated_table(records: &[SimulatedRecord]) -> String {
    let setting = |record: &SimulatedRecord| {
        (record.engine.clone(), record.machines, record.proxies, record.threads_per_machine)
    };
    let tables = records.chunk_by(|one, next| setting(one) == setting(next)).map(engine_table);
    tables.collect::<Vec<_>>().join("\n")
}

fn engine_table(records: &[SimulatedRecord]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut text = format!(
        "profile {}: {}\n{}; {} machines of {} threads{}; {}: {} keys, {} B values, batches of {}, {} access\n",
        first.profile,
        first.testbed,
        super::engine_text(&first.engine, first.memory_nodes),
        first.machines,
        first.threads_per_machine,
        if first.proxies > 0 {
            format!(", {} of which write for others", first.proxies)
        } else {
            String::new()
        },
        first.dataset,
        thousands(first.keys),
        first.value_size,
        first.batch,
        first.access,
    );
    let _ = writeln!(text, "{}", results(records));
    let _ =
        writeln!(text, "{} ms of virtual time each; how busy the parts were:", first.virtual_seconds * 1e3);
    let _ = writeln!(text, "{}", utilization(records));
    for record in records.iter().filter(|record| !record.sensitivity.is_empty()) {
        let of = format!("{} ({})", record.workload, record.distribution);
        text.push_str(&sensitivity(&of, record.throughput_ops_per_s, &record.sensitivity));
    }
    text
}

fn results(records: &[SimulatedRecord]) -> Table {
    let header = [
        "workload",
        "skew",
        "M ops/s",
        "p50\nµs",
        "p99\nµs",
        "READs\n/op",
        "bytes\n/op",
        "WRITEs\n/op",
        "calls\n/op",
        "rings\n/op",
        "falls\n/op",
        "limited by",
    ];
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let rows = records.iter().map(|record| {
        vec![
            record.workload.clone(),
            record.distribution.clone(),
            format!("{:.1}", record.throughput_ops_per_s / 1e6),
            us(record.latency_ns.p50),
            us(record.latency_ns.p99),
            format!("{:.3}", record.reads_per_op),
            format!("{:.1}", record.bytes_read_per_op),
            format!("{:.3}", record.writes_per_op),
            format!("{:.3}", record.calls_per_op),
            format!("{:.3}", record.doorbells_per_op),
            format!("{:.4}", record.fallbacks_per_op),
            record.bottleneck.clone().unwrap_or_else(|| "waiting".to_owned()),
        ]
    });
    table(&header, rows, &[0, 1, 11])
}

fn utilization(records: &[SimulatedRecord]) -> Table {
    let header: Vec<&str> =
        ["part", "number"].into_iter().chain(records.iter().map(|record| record.workload.as_str())).collect();
    let parts = &records[0].utilization;
    let rows = parts.iter().enumerate().map(|(index, part)| {
        let busy = records.iter().map(|record| {
            record.utilization.get(index).map_or(String::new(), |part| percent(part.utilization_mean))
        });
        [part.name.clone(), part.parts.to_string()].into_iter().chain(busy).collect()
    });
    table(&header, rows, &[0])
}

/// What uncertain constants do to the result `of` something, which is `base` operations a second.
pub(super) fn sensitivity(of: &str, base: f64, rows: &[SensitivityRow]) -> String {
    let span = |row: &SensitivityRow| {
        let (low, high) = (row.ops_per_s_at_low, row.ops_per_s_at_high);
        (low.max(high).max(base) - low.min(high).min(base)) / base
    };
    let mut sorted: Vec<&SensitivityRow> = rows.iter().collect();
    sorted.sort_by(|a, b| span(b).total_cmp(&span(a)));
    let (shown, others): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|row| span(row) >= WORTH_A_ROW);
    let rows = shown.into_iter().map(|row| {
        vec![
            row.constant.clone(),
            format!("{} {}", row.value, row.unit),
            format!("{} to {}", row.low, row.high),
            format!("{:.1}", row.ops_per_s_at_low / 1e6),
            format!("{:.1}", row.ops_per_s_at_high / 1e6),
            format!(
                "{:+.0} % to {:+.0} %",
                (row.ops_per_s_at_low / base - 1.0) * 1e2,
                (row.ops_per_s_at_high / base - 1.0) * 1e2
            ),
        ]
    });
    let header = ["constant", "value", "band", "M ops/s\nat the least", "M ops/s\nat the most", "change"];
    let mut text =
        format!("sensitivity of {of}, {:.1} M ops/s:\n{}\n", base / 1e6, table(&header, rows, &[0, 1, 2]));
    if !others.is_empty() {
        let _ = writeln!(text, "less than {}:", percent(WORTH_A_ROW));
        for names in others.chunks(NAMES_A_LINE) {
            let names: Vec<&str> = names.iter().map(|row| row.constant.as_str()).collect();
            let _ = writeln!(text, "  {}", names.join(", "));
        }
    }
    text
}

pub(super) fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 1e2)
}

/// A table whose columns of text stand to the left, and numbers to the right.
pub(super) fn table(
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    text_columns: &[usize],
) -> Table {
    let cell = |(column, text): (usize, &str)| {
        let alignment =
            if text_columns.contains(&column) { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(alignment)
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(header.iter().copied().enumerate().map(cell));
    for row in rows {
        table.add_row(row.iter().map(String::as_str).enumerate().map(cell));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}
