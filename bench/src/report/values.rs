//! Results of values of several lengths: in leaves, and in blocks of their own.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use super::{Measured, Record, thousands};

const HEADER: [&str; 7] = [
    "B a value",
    "in leaves\nM/s",
    "READs",
    "in blocks\nM/s",
    "READs",
    "of that\nin leaves",
    "blocks' GB/s\n(copies')",
];

/// The results for the eye, a row a length: XStore's Figure 16a. The records of a length stand together, in
/// any order; lengths that no leaf holds have one.
#[must_use]
pub fn values_table(records: &[Record]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(HEADER);
    let lengths = records.chunk_by(|one, other| one.setting.value_size == other.setting.value_size);
    for of_length in lengths {
        table.add_row(row(of_length));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let Some(first) = records.first() else { return String::new() };
    let setting = &first.setting;
    format!(
        "GETs in batches of {}, {} keys of {}, {}\n{table}\n",
        setting.batch,
        thousands(setting.keys),
        setting.dataset,
        setting.distribution
    )
}

fn row(records: &[Record]) -> Vec<String> {
    let of_kind = |kind: &str| records.iter().find(|record| record.setting.values == kind);
    let (leaves, blocks) = (of_kind("fixed"), of_kind("blocks"));
    let rate = |record: &Record| record.median.throughput_ops_per_s;
    let text = |record: Option<&Record>, text: fn(&Record) -> String| record.map_or_else(String::new, text);
    let millions = |record: &Record| format!("{:.2}", record.median.throughput_ops_per_s / 1e6);
    let reads = |record: &Record| format!("{:.2}", record.median.reads_per_op);
    let ratio = leaves.zip(blocks).map(|(leaves, blocks)| format!("{:.2}", rate(blocks) / rate(leaves)));
    let bytes = |record: &Record| {
        let gigabytes = |rate: f64| rate * f64::from(record.setting.value_size) / 1e9;
        let Measured { throughput_ops_per_s, block_copy_limit_per_s, .. } = record.median;
        format!("{:.2} ({:.2})", gigabytes(throughput_ops_per_s), gigabytes(block_copy_limit_per_s))
    };
    vec![
        thousands(records[0].setting.value_size.into()),
        text(leaves, millions),
        text(leaves, reads),
        text(blocks, millions),
        text(blocks, reads),
        ratio.unwrap_or_default(),
        text(blocks, bytes),
    ]
}
