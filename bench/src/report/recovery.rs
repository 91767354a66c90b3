//! The record of a benchmark of recovery: what each start of a killed server took.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use serde::{Deserialize, Serialize};

use super::table::thousands;
use crate::machine::Machine;

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecoverySetting {
    /// Name or path of the dataset.
    pub dataset: String,
    /// Keys loaded.
    pub keys: u64,
    /// What values are: `fixed`, or `blocks` of their own.
    pub values: String,
    /// Bytes of a value.
    pub value_size: u32,
    /// Updates that were handed over together.
    pub batch: usize,
}

/// One start. Times are from the process's begin on, in s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoveryStart {
    /// Until the server said that clients can connect.
    pub ready_s: f64,
    /// Processor time of the server until then, of all its threads.
    pub processor_s: f64,
    /// Until a client had the answers of its first batch of GETs, and they were right.
    pub first_get_s: f64,
    /// Until the table's whole model was trained.
    pub trained_s: f64,
}

/// The starts from files of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecoveryStage {
    /// `empty`, `loaded` (all pairs in a snapshot) or `logged` (besides, updates in the log alone).
    pub stage: String,
    /// Pairs of the table.
    pub pairs: u64,
    /// Records of the log.
    pub records: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Each start.
    pub starts: Vec<RecoveryStart>,
    /// Their medians.
    pub median: RecoveryStart,
    /// Bytes of the snapshot's files.
    pub snapshot_bytes: u64,
    /// One thread reads them, and computes a checksum: the time of that.
    pub snapshot_read_s: f64,
    /// Bytes of the log's files, with room at their ends.
    pub log_file_bytes: u64,
    /// One thread reads them, and computes a checksum: the time of that.
    pub log_read_s: f64,
}

/// A result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecoveryRecord {
    /// What was run.
    pub setting: RecoverySetting,
    /// The stages, in their order.
    pub stages: Vec<RecoveryStage>,
    /// Where.
    pub machine: Machine,
}

impl RecoveryStart {
    /// The median of each time.
    pub(crate) fn median(starts: &[Self]) -> Self {
        let of = |time: fn(&Self) -> f64| {
            let mut times: Vec<f64> = starts.iter().map(time).collect();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        };
        Self {
            ready_s: of(|start| start.ready_s),
            processor_s: of(|start| start.processor_s),
            first_get_s: of(|start| start.first_get_s),
            trained_s: of(|start| start.trained_s),
        }
    }
}

impl RecoveryStage {
    /// Time and processor time of its files: of a start, less what one of the stage before takes.
    fn beyond(&self, before: &Self) -> (f64, f64) {
        let less = |of: fn(&RecoveryStart) -> f64| (of(&self.median) - of(&before.median)).max(0.0);
        (less(|start| start.ready_s), less(|start| start.processor_s))
    }
}

/// The results for the eye: a row a stage, and what its files have taken.
#[must_use]
pub fn recovery_table(record: &RecoveryRecord) -> String {
    let setting = &record.setting;
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::default()));
    table.set_header(["stage", "ready\ns", "processor\ns", "first GETs\ns", "trained\ns"]);
    for stage in &record.stages {
        let RecoveryStart { ready_s, processor_s, first_get_s, trained_s } = stage.median;
        let times = [ready_s, processor_s, first_get_s, trained_s].map(|time| format!("{time:.2}"));
        table.add_row([stage.stage.clone()].into_iter().chain(times));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!(
        "a killed server starts again: {} pairs of {}, {} values of {} B\n{table}\n",
        thousands(setting.keys),
        setting.dataset,
        setting.values,
        setting.value_size
    );
    for pair in record.stages.windows(2) {
        text.push_str(&files_text(&pair[0], &pair[1]));
    }
    text
}

/// What the files took that a stage has more than the one before.
fn files_text(before: &RecoveryStage, stage: &RecoveryStage) -> String {
    let (time_s, processor_s) = stage.beyond(before);
    let rate = |count: u64, time_s: f64| count as f64 / 1e6 / time_s.max(1e-9);
    let mut text = String::new();
    let (what, count, unit, bytes, read) = if stage.records > 0 {
        let read = rate(stage.log_file_bytes, stage.log_read_s);
        ("log", stage.records, "records", stage.log_bytes, read)
    } else {
        let read = rate(stage.snapshot_bytes, stage.snapshot_read_s);
        ("snapshot", stage.pairs, "pairs", stage.snapshot_bytes, read)
    };
    let _ = writeln!(
        text,
        "{what}: {} {unit} in {:.0} MB take {time_s:.2} s, {processor_s:.2} s of processor time: {:.2} M {unit}/s, \
         {:.0} MB/s;\n  one thread reads and checks those files with {read:.0} MB/s, {:.2} of that",
        thousands(count),
        bytes as f64 / 1e6,
        rate(count, time_s),
        rate(bytes, time_s),
        rate(bytes, time_s) / read.max(1e-9),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_takes_what_the_one_before_does_not() {
        let stage = |name: &str, ready_s: [f64; 3], records: u64| {
            let starts: Vec<_> = ready_s
                .into_iter()
                .map(|ready_s| RecoveryStart {
                    ready_s,
                    processor_s: 2.0 * ready_s,
                    ..RecoveryStart::default()
                })
                .collect();
            RecoveryStage {
                stage: name.into(),
                pairs: 1000,
                records,
                log_bytes: 500_000_000,
                median: RecoveryStart::median(&starts),
                starts,
                snapshot_bytes: 100_000_000,
                snapshot_read_s: 0.1,
                log_file_bytes: 600_000_000,
                log_read_s: 0.5,
            }
        };
        let (loaded, logged) =
            (stage("loaded", [3.0, 1.0, 2.0], 0), stage("logged", [9.0, 4.0, 1.0], 20_000_000));
        assert_eq!(logged.beyond(&loaded), (2.0, 4.0));
        let text = files_text(&loaded, &logged);
        assert!(
            text.contains("take 2.00 s, 4.00 s of processor time: 10.00 M records/s, 250 MB/s;"),
            "{text}"
        );
        assert!(text.contains("with 1200 MB/s, 0.21 of that"), "{text}");
    }
}
