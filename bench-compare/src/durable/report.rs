//! The record of a comparison of durable writes, and its tables.

use std::fmt::Write as _;

use farsight_bench::machine::Machine;
use farsight_bench::report::{median, thousands};
use serde::{Deserialize, Serialize};

use super::DurableTurn;

/// A comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DurableComparison {
    /// The day, as year-month-day, in UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Where all files were, as in "ext4 on /dev/vda".
    pub(crate) file_system: String,
    /// `None` if Redis took no part.
    pub(crate) redis_version: Option<String>,
    /// Processes that wanted to run, on average of a minute: before the run and after it.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    pub(crate) keys: u64,
    /// Time of one's turn, in s.
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) contests: Vec<DurableContest>,
}

/// Values of one size at one depth.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DurableContest {
    pub(crate) value_bytes: usize,
    /// Writes in flight.
    pub(crate) depth: usize,
    /// Of one write in flight, the disk's first.
    pub(crate) series: Vec<DurableSeries>,
}

/// What one store, or the disk, did, round by round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DurableSeries {
    pub(crate) name: String,
    /// The series with which it is compared.
    pub(crate) beside: Option<String>,
    pub(crate) writes_per_s: Vec<f64>,
    /// Processor time a write, of the client's thread and of the server.
    pub(crate) cpu_ns: Vec<f64>,
    /// Quantiles of the time until a batch was acknowledged.
    pub(crate) p50_ns: Vec<f64>,
    pub(crate) p99_ns: Vec<f64>,
}

impl DurableSeries {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            beside: None,
            writes_per_s: Vec::new(),
            cpu_ns: Vec::new(),
            p50_ns: Vec::new(),
            p99_ns: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, turn: &DurableTurn) {
        let (writes, quantiles) = (turn.writes as f64, turn.latencies.quantiles());
        self.writes_per_s.push(writes / turn.elapsed.as_secs_f64());
        self.cpu_ns.push(turn.cpu.as_nanos() as f64 / writes);
        self.p50_ns.push(quantiles.p50 as f64);
        self.p99_ns.push(quantiles.p99 as f64);
    }

    /// Processor time a write, over all rounds: a server's is known to a tick only.
    fn cpu_us(&self) -> f64 {
        self.cpu_ns.iter().sum::<f64>() / self.cpu_ns.len() as f64 / 1e3
    }
}

/// The median of the quotients, round by round.
fn quotient(over: &[f64], under: &[f64]) -> f64 {
    median(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
}

/// The whole comparison.
pub(super) fn markdown(comparison: &DurableComparison) -> String {
    let DurableComparison {
        date, command, machine, file_system, redis_version, keys, seconds, rounds, ..
    } = comparison;
    let redis = redis_version.as_ref().map_or(String::new(), |version| format!(" Redis {version}."));
    let mut text = format!(
        "{} uniform keys of 8 B; files on {file_system}.{redis} Servers have one core, the client another. \
         {rounds} rounds, turns of {seconds} s; {}, {} cores, load {:.1} before and {:.1} after; {date}.\n\n    \
         {command}\n",
        thousands(*keys),
        machine.cpu,
        machine.cores,
        comparison.load_before,
        comparison.load_after,
    );
    let mut sizes: Vec<usize> = comparison.contests.iter().map(|contest| contest.value_bytes).collect();
    sizes.dedup();
    for bytes in sizes {
        let of_size = comparison.contests.iter().filter(|contest| contest.value_bytes == bytes);
        let of_size: Vec<&DurableContest> = of_size.collect();
        if let Some(single) = of_size.iter().find(|contest| contest.depth == 1) {
            singles(&mut text, single);
        }
        rates(&mut text, bytes, &of_size);
    }
    text.push_str(
        "\nMedians over the rounds. *By a sync*: the median by that of writing 4 KiB over and syncing it, \
         round by round. *Times as fast*: Farsight's rate by the other's, round by round; over shared memory \
         beside stores in the client's process, over TCP beside Redis, acknowledged in memory beside \
         everysec. *Processor*: of the client's thread and the server. After the last round each store was \
         ended and opened again; every key had the value that was acknowledged last, before and after.\n\n",
    );
    text
}

/// The time of a write alone.
fn singles(text: &mut String, contest: &DurableContest) {
    let DurableContest { value_bytes, series, .. } = contest;
    let _ = writeln!(text, "\n| a write of {value_bytes} B alone | median, µs | p99, µs | by a sync |");
    text.push_str("|---|--:|--:|--:|\n");
    for own in series {
        let by_sync = quotient(&own.p50_ns, &series[0].p50_ns);
        let (p50_us, p99_us) = (median(&own.p50_ns) / 1e3, median(&own.p99_ns) / 1e3);
        let _ = writeln!(text, "| {} | {p50_us:.0} | {p99_us:.0} | {by_sync:.2} |", own.name);
    }
}

fn rates(text: &mut String, value_bytes: usize, contests: &[&DurableContest]) {
    let _ = writeln!(
        text,
        "\n| values of {value_bytes} B | in flight | k writes/s | processor, µs | times as fast |"
    );
    text.push_str("|---|--:|--:|--:|--:|\n");
    for DurableContest { depth, series, .. } in contests {
        for own in series {
            let rate = median(&own.writes_per_s) / 1e3;
            let beside = series.iter().find(|other| Some(&other.name) == own.beside.as_ref());
            let times = beside.map_or(String::new(), |beside| {
                format!("{:.2}", quotient(&beside.writes_per_s, &own.writes_per_s))
            });
            let cpu_us = own.cpu_us();
            let _ = writeln!(text, "| {} | {depth} | {rate:.2} | {cpu_us:.2} | {times} |", own.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farsight_bench::histogram::LatencyHistogram;

    use super::*;

    fn series(name: &str, beside: Option<&str>, write_us: u64) -> DurableSeries {
        let mut series = DurableSeries { beside: beside.map(str::to_owned), ..DurableSeries::new(name) };
        for round in 1..=3 {
            let each = Duration::from_micros(write_us * round);
            let mut latencies = LatencyHistogram::new();
            latencies.record(each, 1000);
            series.add(&DurableTurn { writes: 1000, elapsed: 1000 * each, cpu: 500 * each, latencies });
        }
        series
    }

    #[test]
    fn times_rates_and_quotients_are_shown() {
        let own = || series("own", None, 200);
        let singles = vec![series("disk", None, 100), own(), series("other", Some("own"), 600)];
        let many = vec![own(), series("other", Some("own"), 100)];
        let text = markdown(&DurableComparison {
            date: "2026-01-02".into(),
            command: "cargo run".into(),
            machine: Machine::default(),
            file_system: "ext4 on /dev/x".into(),
            redis_version: None,
            load_before: 0.25,
            load_after: 1.0,
            keys: 1_000,
            seconds: 0.5,
            rounds: 3,
            contests: vec![
                DurableContest { value_bytes: 8, depth: 1, series: singles },
                DurableContest { value_bytes: 8, depth: 64, series: many },
            ],
        });
        assert!(text.contains("files on ext4 on /dev/x. Servers"), "{text}");
        assert!(text.contains("| own | 400 | 400 | 2.00 |\n| other | 1200 | 1200 | 6.00 |"), "{text}");
        assert!(
            text.contains("| own | 1 | 2.50 | 200.00 |  |\n| other | 1 | 0.83 | 600.00 | 3.00 |"),
            "{text}"
        );
        assert!(text.contains("| other | 64 | 5.00 | 100.00 | 0.50 |"), "{text}");
        assert_eq!(text.matches("alone").count(), 1, "{text}");
    }
}
