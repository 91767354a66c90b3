//! The table of changes: a change a row, the worst first, each figure beside its mark.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use super::{ChangeRecord, ChangeScans};
use crate::report::table::{millions, thousands, time};

const HEADER: [&str; 12] = [
    "",
    "writes\nM/s",
    "slowest\n≥0.5",
    "p99\n≤2",
    "READs\n≤2.1",
    "falls %\n≤0.1",
    "rate\n≥0.7",
    "cache\n≤0.9",
    "worst\n≤1.2",
    "grown",
    "leaves\n≤2",
    "B/pair\n≤60",
];

/// The changes for the eye, at most 100 columns wide.
#[must_use]
pub fn change_table(records: &[ChangeRecord]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    let cell = |column: usize, text: &str| {
        Cell::new(text).set_alignment(if column == 0 { CellAlignment::Left } else { CellAlignment::Right })
    };
    table.set_header(HEADER.iter().enumerate().map(|(column, name)| cell(column, name)));
    let mut worst_first: Vec<&ChangeRecord> = records.iter().collect();
    let badness = |record: &ChangeRecord| (record.missed() as f64, record.after.fallbacks_per_get);
    worst_first.sort_by(|one, other| badness(other).partial_cmp(&badness(one)).expect("figures are numbers"));
    for record in &worst_first {
        table.add_row(row(record).iter().enumerate().map(|(column, text)| cell(column, text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    format!("{}{table}\n{}", heading(records), remarks(&worst_first))
}

fn heading(records: &[ChangeRecord]) -> String {
    let machine = records.first().map(|record| &record.machine);
    let machine =
        machine.map_or_else(String::new, |machine| format!("{}, {} cores", machine.cpu, machine.cores));
    format!("8 B values; writes in batches of 1,024, GETs in batches of 64; {machine}\n")
}

/// A figure with the sign of its mark, if it has one.
fn marked(record: &ChangeRecord, figure: &str, text: &str) -> String {
    match record.mark(figure) {
        Some(mark) if mark.is_met => format!("{text} ✓"),
        Some(_) => format!("{text} ✗"),
        None => format!("{text}  "),
    }
}

fn p99_text(ratio: f64) -> String {
    if ratio < 100.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

fn row(record: &ChangeRecord) -> [String; HEADER.len()] {
    let marked = |figure: &str, text: String| marked(record, figure, &text);
    let slowest = record.slowest_write_ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let end = &record.end;
    [
        record.change.clone(),
        millions(record.writes_per_s),
        marked("slowest_write_ratio", slowest),
        marked("reader_p99_ratio", p99_text(record.reader_p99_ratio())),
        marked("reads_per_get", format!("{:.2}", record.after.reads_per_get)),
        marked("fallbacks_per_get", format!("{:.2}", record.after.fallbacks_per_get * 100.0)),
        marked("get_rate_ratio", format!("{:.2}", record.get_rate_ratio())),
        marked("fresh_cache_bytes_per_key", format!("{:.2}", record.fresh.cache_bytes_per_key())),
        marked("worst_cache_bytes_per_key", format!("{:.2}", record.worst_cache_bytes_per_key())),
        format!("{:.2}", record.process_bytes_per_key[1]),
        marked("leaves_by_needed", format!("{:.2}", end.leaves_by_needed())),
        marked("server_bytes_per_pair", format!("{:.0}", end.server_bytes_per_pair())),
    ]
}

/// What the table has no column for, and how to read it.
fn remarks(records: &[&ChangeRecord]) -> String {
    let mut text = String::from(
        "slowest: the writer's slowest 25 ms, by the median of its first half; p99: the reader's beside the\n\
         writer, by that before; READs, falls, rate: GETs of the new keys (or of those left) from 1 to 2 s\n\
         after the last write, their rate by the fresh table's; cache: B a key of a full one, fresh, worst,\n\
         and as a new process grows that fills one at the end; leaves: by those needed; B/pair: the server's\n",
    );
    for record in records {
        text.push_str(&remark(record));
    }
    if records.first().is_some_and(|record| record.machine.cores == 2) {
        text.push_str("(two cores: beside the reader the writer shared the server's)\n");
    }
    text
}

fn remark(record: &ChangeRecord) -> String {
    let change = &record.change;
    let [before, during, after] = [&record.before, &record.during, &record.after];
    let mut text = format!(
        "{change}: {} keys, {} writes\n  GETs, M/s: {} before, {} beside, {} after; p50 {}, {}, {}\n",
        thousands(record.keys),
        thousands(record.operations),
        millions(before.gets_per_s),
        millions(during.gets_per_s),
        millions(after.gets_per_s),
        time(before.get_latency_ns.p50),
        time(during.get_latency_ns.p50),
        time(after.get_latency_ns.p50),
    );
    let _ = writeln!(
        text,
        "  fresh: {:.2} B a key as a process grows, {:.0} B a pair of the server's; at the end {:.0} B in use",
        record.process_bytes_per_key[0],
        record.fresh.server_bytes_per_pair(),
        record.end.table_bytes_per_pair(),
    );
    if let (Some(before), Some(after)) = (&record.scans_before, &record.scans_after) {
        let _ = writeln!(
            text,
            "  READs, doorbells and fallbacks of a scan of {} pairs: {}; fresh {}",
            after.pairs,
            scans_text(after),
            scans_text(before)
        );
    }
    text
}

fn scans_text(scans: &ChangeScans) -> String {
    let ChangeScans { reads_per_scan, doorbells_per_scan, fallbacks_per_scan, .. } = scans;
    format!("{reads_per_scan:.1}, {doorbells_per_scan:.1}, {fallbacks_per_scan:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::LatencyNs;
    use crate::machine::Machine;
    use crate::report::{ChangeMemory, ChangePhase, ChangeSample};
    use crate::workload::ShapeChange;

    fn phase(gets_per_s: f64, p99: u64, fallbacks_per_get: f64) -> ChangePhase {
        let get_latency_ns = LatencyNs { p50: p99 / 2, p90: p99, p99, p999: p99 };
        ChangePhase {
            gets_per_s,
            get_latency_ns,
            reads_per_get: 2.0 + fallbacks_per_get * 6.0,
            fallbacks_per_get,
        }
    }

    fn record(change: ShapeChange, fallbacks_per_get: f64, rates: &[f64]) -> ChangeRecord {
        let memory = |pairs: u64| ChangeMemory {
            pairs,
            leaves: pairs / 12,
            pending: 0,
            table_bytes: pairs * 40,
            server_bytes: pairs * 50,
            cache_bytes: pairs / 2,
        };
        let sample = |rate: &f64| ChangeSample {
            phase: "during".into(),
            at_s: 0.1,
            interval_s: 0.1,
            writes_per_s: *rate,
            gets_per_s: 1e7,
            get_p99_ns: 1_000,
            reads_per_get: 2.0,
            fallbacks_per_get: 0.0,
            memory: memory(12_000),
        };
        let scans = ChangeScans {
            pairs: 100,
            reads_per_scan: 10.0,
            doorbells_per_scan: 1.0,
            fallbacks_per_scan: 0.0,
        };
        let record = ChangeRecord {
            change: change.name().into(),
            keys: 100_000_000,
            operations: 10_000_000,
            writes_per_s: 2e6,
            before: phase(3e7, 999_949, 0.0),
            during: phase(1e7, 999_949_999, 0.0),
            after: phase(2.5e7, 2_000, fallbacks_per_get),
            scans_before: change.removes().then_some(scans),
            scans_after: change.removes().then_some(scans),
            fresh: memory(12_000),
            end: memory(24_000),
            process_bytes_per_key: [0.5, 12.5],
            operations_checked: 1,
            marks: Vec::new(),
            samples: rates.iter().map(sample).collect(),
            machine: Machine { cpu: "Example 9000".into(), cores: 2, ..Machine::default() },
        };
        record.judged(change)
    }

    #[test]
    fn the_table_fits_100_columns_and_begins_with_the_worst() {
        let records = ShapeChange::ALL.map(|change| {
            let fallbacks = if change == ShapeChange::Tenant { 0.99 } else { 0.0 };
            record(change, fallbacks, &[2e6; 9])
        });
        let text = change_table(&records);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        let place = |name: &str| text.find(&format!("\n{name} ")).expect("a row");
        assert!(place("tenant") < place("append") && place("tenant") < place("delete"), "{text}");
        assert!(text.contains("99.00 ✗") && text.contains("2.00 ✓"), "{text}");
        assert!(text.contains("a scan of 100 pairs: 10.0, 1.0, 0.00; fresh 10.0"), "{text}");
    }

    #[test]
    fn a_writer_that_stalls_or_slows_down_is_told_from_a_steady_one() {
        let ratio_of = |rates: &[f64]| record(ShapeChange::Growth, 0.0, rates).slowest_write_ratio();
        // The last interval is not full.
        assert_eq!(ratio_of(&[2.0, 2.0, 2.0, 2.0, 0.0]), Some(1.0));
        assert_eq!(ratio_of(&[2.0, 2.0, 2.0, 0.0]), None);
        assert_eq!(ratio_of(&[4.0, 4.0, 4.0, 1.0, 4.0, 4.0, 4.0]), Some(0.25));
        assert_eq!(ratio_of(&[4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0]), Some(0.5));
        let stalled = record(ShapeChange::Growth, 0.0, &[4e6, 4e6, 4e6, 1e6, 4e6, 4e6, 4e6]);
        assert!(!stalled.mark("slowest_write_ratio").expect("it has enough intervals").is_met);
        assert_eq!(stalled.missed(), 2, "that, and the reader's p99: {:?}", stalled.marks);
    }

    #[test]
    fn json_carries_marks_and_the_course() {
        let record = record(ShapeChange::Delete, 0.0, &[2e6; 9]);
        let value = serde_json::to_value(&record).expect("plain data");
        for field in ["at_s", "writes_per_s", "get_p99_ns", "reads_per_get", "pairs", "cache_bytes"] {
            assert!(value["samples"][3][field].is_number(), "{field} is missing in {value}");
        }
        let bound = record.mark("server_bytes_per_pair").expect("a mark of this change");
        assert!(bound.is_met && bound.at_most == Some(60.0) && (bound.found - 50.0).abs() < 1e-9);
        assert_eq!(serde_json::from_value::<ChangeRecord>(value).expect("readable"), record);
    }
}
