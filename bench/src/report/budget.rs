//! Throughput by what a client's cache may take, for the eye.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use super::{SimulatedRecord, thousands};

/// The results of `farsight bench cache`; each share is of the whole cache's rate under the same skew.
#[must_use]
pub fn budget_table(records: &[SimulatedRecord]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let mut text = format!(
        "profile {}: {}\n{} machines of {} threads; {}: {} keys, {} B values, batches of {}\n",
        first.profile,
        first.testbed,
        first.machines,
        first.threads_per_machine,
        first.dataset,
        thousands(first.keys),
        first.value_size,
        first.batch,
    );
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    let header = [
        "skew",
        "cache",
        "lacking\nby",
        "taken\nKiB",
        "M ops/s",
        "of the\nwhole",
        "READs\n/op",
        "bytes\n/op",
        "calls\n/op",
        "p50\nµs",
        "limited by",
    ];
    let cell = |column: usize, text: &str| {
        let is_left = matches!(column, 0..=2 | 10);
        let alignment = if is_left { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(alignment)
    };
    table.set_header(header.iter().enumerate().map(|(column, name)| cell(column, name)));
    for record in records {
        let row = row(records, record);
        table.add_row(row.iter().enumerate().map(|(column, text)| cell(column, text)));
    }
    let _ = writeln!(text, "{table}");
    text
}

fn row(records: &[SimulatedRecord], record: &SimulatedRecord) -> [String; 11] {
    let is_whole = |other: &&SimulatedRecord| {
        other.cache_budget_bytes.is_none() && other.distribution == record.distribution
    };
    let whole = records.iter().find(is_whole).map_or(f64::NAN, |whole| whole.throughput_ops_per_s);
    [
        record.distribution.clone(),
        budget_text(record),
        if record.cache_budget_bytes.is_none() { "-" } else { way(record) }.to_owned(),
        thousands(record.cache_memory_bytes >> 10),
        format!("{:.1}", record.throughput_ops_per_s / 1e6),
        format!("{:.0} %", 100.0 * record.throughput_ops_per_s / whole),
        format!("{:.3}", record.reads_per_op),
        format!("{:.1}", record.bytes_read_per_op),
        format!("{:.3}", record.calls_per_op),
        format!("{:.1}", record.latency_ns.p50 as f64 / 1e3),
        record.bottleneck.clone().unwrap_or_else(|| "waiting".to_owned()),
    ]
}

/// What a cache might take.
pub(crate) fn budget_text(record: &SimulatedRecord) -> String {
    match record.cache_budget_bytes {
        None => "whole".to_owned(),
        Some(0) => "top model alone".to_owned(),
        Some(bytes) => format!("{} KiB", thousands(bytes >> 10)),
    }
}

/// How clients get what their caches lack.
pub(crate) fn way(record: &SimulatedRecord) -> &'static str {
    if record.publishes_models { "READs" } else { "calls" }
}
