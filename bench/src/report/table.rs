//! Results for the eye, at most 100 columns wide.
//!
//! Records in a row that share a setting but for the workload and its distribution make one table. Its
//! heading states the setting and, per table, the limits of the machine.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use super::{RUNS_MIN, Record, Setting};

const HEADER: [&str; 11] = [
    "workload",
    "skew",
    "M ops/s",
    "p50",
    "p99",
    "p99.9",
    "READs\n/op",
    "bytes\n/op",
    "falls\n/op",
    "server\nCPU",
    "of\nlimit",
];

/// Client threads that had less of their cores shared them with other programs, and the reader should know.
const CPU_FRACTION_WORTH_A_WORD: f64 = 0.97;

/// Columns of text, which stand to the left; numbers stand to the right.
const TEXT_COLUMNS: usize = 2;

/// Tables of the records, with their headings.
#[must_use]
pub fn table(records: &[Record]) -> String {
    // Loads differ in the pages that they got, machines do not.
    let common =
        |record: &Record| (heading(&record.setting), record.machine.cpu.clone(), record.machine.cores);
    let groups = records.chunk_by(|a, b| common(a) == common(b));
    groups.map(group).collect::<Vec<_>>().join("\n")
}

fn group(records: &[Record]) -> String {
    let first = &records[0];
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(HEADER.iter().enumerate().map(|(column, name)| cell(column, name)));
    for record in records {
        table.add_row(row(record).iter().enumerate().map(|(column, text)| cell(column, text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let runs = records.iter().map(|record| record.runs.len()).min().unwrap_or(0);
    let few = if runs < RUNS_MIN { " (fewer than 5: noisy)" } else { "" };
    let setting = &first.setting;
    let mut lines = vec![
        heading(setting),
        format!(
            "{}, {} cores, huge pages {}{}",
            first.machine.cpu,
            first.machine.cores,
            huge_pages(first),
            acknowledged(setting)
        ),
        table.to_string(),
        format!(
            "medians of {runs} runs of {} s{few}; client cache {:.2} B a key",
            setting.seconds, first.median.cache_bytes_per_key
        ),
    ];
    if records.iter().any(|record| record.median.extra_reads_per_get > 0.0) {
        let extra = |record: &Record| {
            format!("{} {:.4}", workload(&record.setting), record.median.extra_reads_per_get)
        };
        let extra: Vec<String> = records.iter().map(extra).collect();
        lines.push(format!("READs a GET that a fresh cache saves: {}", extra.join(", ")));
    }
    if first.median.shape_limit_per_s > 0.0 {
        lines.push(format!(
            "limits of this machine: {} M random 64 B reads/s, {} M unchecked walks of this layout/s",
            millions(first.median.random_read_limit_per_s),
            millions(first.median.shape_limit_per_s)
        ));
    }
    if first.median.block_copy_limit_per_s > 0.0 {
        let bytes = f64::from(setting.value_size + setting.value_size_min) / 2.0;
        let gigabytes = |per_second: f64| format!("{:.2} GB", per_second * bytes / 1e9);
        lines.push(format!(
            "values a second: {}; copies out of random blocks: {}",
            records
                .iter()
                .map(|record| format!(
                    "{} {}",
                    workload(&record.setting),
                    gigabytes(record.median.throughput_ops_per_s)
                ))
                .collect::<Vec<_>>()
                .join(", "),
            gigabytes(first.median.block_copy_limit_per_s)
        ));
    }
    let least = records.iter().map(|record| record.median.client_cpu_fraction).fold(1.0, f64::min);
    if least < CPU_FRACTION_WORTH_A_WORD {
        lines.push(format!("clients had as little as {:.0} % of their cores: rates suffer", least * 100.0));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// What a group has in common.
fn heading(setting: &Setting) -> String {
    format!(
        "{}: {} keys, {}, {} {}, batches of {}, {}, {} access over {}",
        setting.dataset,
        thousands(setting.keys),
        values(setting),
        setting.threads,
        if setting.threads == 1 { "thread" } else { "threads" },
        setting.batch,
        super::engine_text(&setting.engine, setting.memory_nodes),
        setting.access,
        setting.fabric
    )
}

fn acknowledged(setting: &Setting) -> &'static str {
    match setting.acknowledged.as_deref() {
        None => "",
        Some("durable") => "; writes are durable",
        Some(_) => "; writes are logged, and not synced",
    }
}

fn values(setting: &Setting) -> String {
    let Setting { value_size: most, value_size_min: least, .. } = setting;
    let deadlines = if setting.values == "expiring" { " with deadlines" } else { "" };
    match &setting.values[..] {
        "fixed" => format!("{most} B values"),
        _ if least < most => format!("blocks of {least} to {most} B{deadlines}"),
        _ => format!("blocks of {most} B{deadlines}"),
    }
}

/// The workload, and the table's age if it is not the usual one.
fn workload(setting: &Setting) -> String {
    match &setting.table[..] {
        "fresh" => setting.workload.clone(),
        age => format!("{} {age}", setting.workload),
    }
}

fn huge_pages(record: &Record) -> String {
    match record.machine.huge_page_bytes_mapped {
        0 => "none".into(),
        bytes => format!("{} MiB", thousands(bytes >> 20)),
    }
}

fn row(record: &Record) -> [String; HEADER.len()] {
    let median = &record.median;
    [
        workload(&record.setting),
        record.setting.distribution.clone(),
        millions(median.throughput_ops_per_s),
        time(median.latency_ns.p50),
        time(median.latency_ns.p99),
        time(median.latency_ns.p999),
        format!("{:.2}", median.reads_per_op),
        format!("{:.0}", median.bytes_read_per_op),
        format!("{:.4}", median.fallbacks_per_op),
        format!("{:.2}", median.server_cpu_fraction),
        match median.shape_limit_per_s {
            limit if limit > 0.0 => format!("{:.0} %", record.fraction_of_shape_limit * 100.0),
            _ => "-".into(),
        },
    ]
}

fn cell(column: usize, text: &str) -> Cell {
    let side = if column < TEXT_COLUMNS { CellAlignment::Left } else { CellAlignment::Right };
    Cell::new(text).set_alignment(side)
}

pub(super) fn millions(per_second: f64) -> String {
    format!("{:.2}", per_second / 1e6)
}

/// A time with its unit, to three digits.
pub(super) fn time(nanoseconds: u64) -> String {
    let scaled = |unit: f64, name| {
        let value = nanoseconds as f64 / unit;
        let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        format!("{value:.decimals$} {name}")
    };
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => scaled(1e3, "µs"),
        1_000_000..1_000_000_000 => scaled(1e6, "ms"),
        _ => scaled(1e9, "s"),
    }
}

/// A number with a comma before each group of three digits.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::tests::example, *};

    #[test]
    fn numbers_are_written_for_the_eye() {
        assert_eq!([0, 999, 1_000, 10_000_000].map(thousands), ["0", "999", "1,000", "10,000,000"]);
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            [0, 850, 1_480, 41_239, 999_960, 2_345_678, 60_000_000_000].map(time),
            ["0 ns", "850 ns", "1.48 µs", "41.2 µs", "1000 µs", "2.35 ms", "60.0 s"]
        );
    }

    #[test]
    fn a_table_fits_100_columns_and_groups_by_setting() {
        let mut extreme = example("b-standard", &[1.234_567e9]);
        extreme.setting.distribution = "zipfian".into();
        extreme.median.latency_ns.p50 = 999_949;
        extreme.median.latency_ns.p99 = 999_949_999;
        extreme.median.bytes_read_per_op = 123_456.0;
        extreme.median.reads_per_op = 123.456;
        let mut other = example("c", &[8e7; 5]);
        other.setting.threads = 1;
        other.median.client_cpu_fraction = 0.614;
        let mut aged = example("f", &[7e7; 5]);
        aged.setting.table = "aged".into();
        let text = table(&[example("c", &[8e7; 5]), extreme, aged, other]);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert_eq!(text.matches("longitudes: 3,766,456 keys").count(), 2, "{text}");
        assert!(text.contains("2 threads") && text.contains("1 thread,"), "{text}");
        assert!(text.contains("80.00") && text.contains("1.48 µs") && text.contains("80 %"), "{text}");
        assert_eq!(text.matches("clients had as little as 61 % of their cores").count(), 1, "{text}");
        assert!(
            text.contains("READs a GET that a fresh cache saves: c 0.0200, b-standard 0.0200, f aged 0.0200"),
            "{text}"
        );
        assert!(text.contains("medians of 1 runs of 5 s (fewer than 5: noisy)"), "{text}");
    }
}
