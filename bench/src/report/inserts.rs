//! The record of a benchmark of inserts: its phases, each with its course over time.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};
use indicatif::BinaryBytes;
use serde::{Deserialize, Serialize};

use super::table::{millions, thousands, time};
use crate::histogram::LatencyNs;
use crate::machine::Machine;

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsertSetting {
    /// The order of the new keys: `random`, `ascending`, `append`.
    pub order: String,
    /// Name or path of the dataset.
    pub dataset: String,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a value.
    pub value_size: u32,
    /// Inserts that the writer handed over together.
    pub batch: usize,
    /// Time of a phase, of all rounds together, in s.
    pub seconds: f64,
    /// Memory that the server took at its start, so that no insert waited for the system to give it. Zero of
    /// a server that ran before.
    #[serde(default)]
    pub prefaulted_bytes: u64,
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsertPhase {
    /// `insert` (a writer alone), `read` (a reader alone), `beside` (a reader beside a writer on another
    /// table) or `both` (on one table).
    pub phase: String,
    /// New keys stored a second.
    pub inserts_per_s: f64,
    /// GETs a second, in batches of 64.
    pub gets_per_s: f64,
    /// Latency of a GET's batch.
    pub get_latency_ns: LatencyNs,
    /// The reader's own processor time for a GET's batch.
    pub get_processor_ns: LatencyNs,
    /// READs a GET.
    pub reads_per_get: f64,
    /// GETs that ended with an RPC because the cache was stale, a GET.
    pub fallbacks_per_get: f64,
    /// Server processor time a second; 1 is one core.
    pub server_cpu_fraction: f64,
    /// The part of it that trained models.
    pub training_cpu_fraction: f64,
    /// Leaves split.
    pub splits: u64,
    /// Writes that a hint led to their leaf.
    pub hint_hits: u64,
    /// Writes that went down the tree.
    pub descents: u64,
    /// Greatest age of a sub-model that waits for training, in the samples.
    pub lag_ns_max: u64,
    /// Most sub-models waiting, in the samples.
    pub pending_max: u64,
    /// The course of the phase.
    pub samples: Vec<InsertSample>,
}

/// An interval of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InsertSample {
    /// Its end, in s from the phase's beginning.
    pub at_s: f64,
    /// New keys stored a second, in the interval.
    pub inserts_per_s: f64,
    /// GETs a second, in the interval.
    pub gets_per_s: f64,
    /// Sub-models trained again in the interval; since the last whole training if that was in it.
    pub retrained: u64,
    /// Whole trainings so far.
    pub generation: u64,
    /// Sub-models waiting at its end.
    pub pending: u64,
    /// Age of the oldest of those.
    pub lag_ns: u64,
    /// Pairs in the table.
    pub pairs: u64,
}

/// The result of a benchmark of inserts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsertRecord {
    /// What was run.
    #[serde(flatten)]
    pub setting: InsertSetting,
    /// The phases, in their order.
    pub phases: Vec<InsertPhase>,
    /// Where it ran.
    pub machine: Machine,
}

const HEADER: [&str; 12] = [
    "phase",
    "inserts\nM/s",
    "GETs\nM/s",
    "p50",
    "p99",
    "own\np50",
    "own\np99",
    "READs\n/GET",
    "falls\n/GET",
    "server\nCPU",
    "train\nCPU",
    "lag",
];

/// The phases for the eye, at most 100 columns wide.
#[must_use]
pub fn insert_table(record: &InsertRecord) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    let cell = |column: usize, text: &str| {
        Cell::new(text).set_alignment(if column == 0 { CellAlignment::Left } else { CellAlignment::Right })
    };
    table.set_header(HEADER.iter().enumerate().map(|(column, name)| cell(column, name)));
    for phases in by_name(record) {
        table.add_row(row(&phases).iter().enumerate().map(|(column, text)| cell(column, text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let setting = &record.setting;
    format!(
        "{}: {} keys, {} B values, {} inserts in batches of {}, GETs in batches of 64\n{}, {} cores\n{table}\n{}",
        setting.dataset,
        thousands(setting.keys),
        setting.value_size,
        setting.order,
        setting.batch,
        record.machine.cpu,
        record.machine.cores,
        remarks(record)
    )
}

/// The phases of each name, in the order of their first.
fn by_name(record: &InsertRecord) -> Vec<Vec<&InsertPhase>> {
    let mut found: Vec<Vec<&InsertPhase>> = Vec::new();
    for phase in &record.phases {
        match found.iter_mut().find(|phases| phases[0].phase == phase.phase) {
            Some(phases) => phases.push(phase),
            None => found.push(vec![phase]),
        }
    }
    found
}

fn named<'a>(record: &'a InsertRecord, name: &str) -> Vec<&'a InsertPhase> {
    record.phases.iter().filter(|phase| phase.phase == name).collect()
}

/// The median of some figure.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn row(phases: &[&InsertPhase]) -> [String; HEADER.len()] {
    let median = |of: fn(&InsertPhase) -> f64| median(phases.iter().map(|phase| of(phase)).collect());
    let time_of = |of: fn(&InsertPhase) -> u64| {
        let mut times: Vec<u64> = phases.iter().map(|phase| of(phase)).collect();
        times.sort_unstable();
        time(times[times.len() / 2])
    };
    let (inserts, gets) = (median(|phase| phase.inserts_per_s), median(|phase| phase.gets_per_s));
    let of = |is_there: bool, text: String| if is_there { text } else { "-".to_owned() };
    let lag_ns = phases.iter().map(|phase| phase.lag_ns_max).max().unwrap_or(0);
    [
        phases[0].phase.clone(),
        of(inserts > 0.0, millions(inserts)),
        of(gets > 0.0, millions(gets)),
        of(gets > 0.0, time_of(|phase| phase.get_latency_ns.p50)),
        of(gets > 0.0, time_of(|phase| phase.get_latency_ns.p99)),
        of(gets > 0.0, time_of(|phase| phase.get_processor_ns.p50)),
        of(gets > 0.0, time_of(|phase| phase.get_processor_ns.p99)),
        of(gets > 0.0, format!("{:.2}", median(|phase| phase.reads_per_get))),
        of(gets > 0.0, format!("{:.4}", median(|phase| phase.fallbacks_per_get))),
        format!("{:.2}", median(|phase| phase.server_cpu_fraction)),
        format!("{:.2}", median(|phase| phase.training_cpu_fraction)),
        of(lag_ns > 0, time(lag_ns)),
    ]
}

/// How much longer a GET's batch takes in the phases of the first name than in those of the second: p50 and
/// p99, the medians over the rounds.
fn slower(record: &InsertRecord, names: [&str; 2]) -> Option<[f64; 2]> {
    let [slow, plain] = names.map(|name| named(record, name));
    let ratios = |of: fn(&LatencyNs) -> u64| {
        let pairs = slow.iter().zip(&plain);
        let ratio = |(slow, plain): (&&InsertPhase, &&InsertPhase)| {
            of(&slow.get_latency_ns) as f64 / of(&plain.get_latency_ns).max(1) as f64
        };
        median(pairs.map(ratio).collect())
    };
    let is_there = !slow.is_empty() && !plain.is_empty();
    is_there.then(|| [ratios(|latency| latency.p50), ratios(|latency| latency.p99)])
}

fn remarks(record: &InsertRecord) -> String {
    let mut text =
        String::from("own: the reader's processor time; lag: the oldest sub-model waiting for training\n");
    if let Some(alone) = named(record, "insert").first() {
        let _ = writeln!(
            text,
            "inserts alone: {} splits, {} of {} writes by hint, {} sub-models waited at most",
            thousands(alone.splits),
            thousands(alone.hint_hits),
            thousands(alone.hint_hits + alone.descents),
            thousands(alone.pending_max)
        );
    }
    let comparisons = [
        (["beside", "read"], "GETs beside a writer on another table", "without"),
        (["both", "beside"], "GETs of a table that is written", "beside another"),
        (["both", "read"], "GETs of a table that is written", "without"),
    ];
    for (names, what, than) in comparisons {
        if let Some([p50, p99]) = slower(record, names) {
            let _ = writeln!(text, "{what}: p50 {p50:.2}, p99 {p99:.2} times those {than}");
        }
    }
    let prefaulted_bytes = record.setting.prefaulted_bytes;
    if prefaulted_bytes > 0 {
        let _ = writeln!(text, "memory: {} taken by the server at its start", BinaryBytes(prefaulted_bytes));
    }
    if record.machine.cores == 2 {
        text.push_str("(two cores: beside a reader the writer shared the server's)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, p99: u64) -> InsertPhase {
        let latency = LatencyNs { p50: 999_949, p90: p99, p99, p999: 999_949_999 };
        let sample = InsertSample {
            at_s: 0.1,
            inserts_per_s: 3e6,
            gets_per_s: 1e7,
            retrained: 5,
            generation: 1,
            pending: 2,
            lag_ns: 7,
            pairs: 9,
        };
        InsertPhase {
            phase: name.into(),
            inserts_per_s: 3.14e6,
            gets_per_s: 1.234e8,
            get_latency_ns: latency,
            get_processor_ns: latency,
            reads_per_get: 12.34,
            fallbacks_per_get: 0.0123,
            server_cpu_fraction: 1.25,
            training_cpu_fraction: 0.19,
            splits: 1_000,
            hint_hits: 900,
            descents: 100,
            lag_ns_max: 999_949_999,
            pending_max: 12_345,
            samples: vec![sample; 3],
        }
    }

    fn example() -> InsertRecord {
        let setting = InsertSetting {
            order: "ascending".into(),
            dataset: "uniform".into(),
            keys: 10_000_000,
            value_size: 8,
            batch: 2048,
            seconds: 5.0,
            prefaulted_bytes: 3 << 29,
        };
        let round =
            |scale: u64| [phase("read", scale * 10), phase("beside", scale * 20), phase("both", scale * 30)];
        let phases = [phase("insert", 0)].into_iter().chain([100, 999_949, 200].into_iter().flat_map(round));
        let phases = phases.collect();
        let machine = Machine { cpu: "Example 9000".into(), cores: 2, ..Machine::default() };
        InsertRecord { setting, phases, machine }
    }

    #[test]
    fn the_table_fits_100_columns_and_compares_the_readers() {
        let text = insert_table(&example());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert!(text.contains("on another table: p50 1.00, p99 2.00 times those without"), "{text}");
        assert!(text.contains("is written: p50 1.00, p99 1.50 times those beside another"), "{text}");
        assert!(text.contains("is written: p50 1.00, p99 3.00 times those without"), "{text}");
        assert_eq!(text.matches("both").count(), 1, "rounds share a row: {text}");
        assert!(text.contains("900 of 1,000 writes by hint"), "{text}");
        assert!(text.contains("the writer shared the server's"), "{text}");
        assert!(text.contains("memory: 1.50 GiB taken by the server at its start"), "{text}");
    }

    #[test]
    fn json_carries_the_course_of_each_phase() {
        let value = serde_json::to_value(example()).expect("plain data");
        let sample = &value["phases"][1]["samples"][2];
        for field in ["at_s", "inserts_per_s", "gets_per_s", "retrained", "pending", "lag_ns", "pairs"] {
            assert!(sample[field].is_number(), "{field} is missing in {sample}");
        }
        assert_eq!(value["order"], "ascending");
        assert_eq!(serde_json::from_value::<InsertRecord>(value).expect("readable"), example());
    }
}
