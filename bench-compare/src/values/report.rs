//! The record of a comparison of values by size, and its tables.

use std::fmt::Write as _;

use farsight_bench::machine::Machine;
use farsight_bench::report::{median, thousands};
use serde::{Deserialize, Serialize};

use super::ValuesTurn;

/// A comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ValuesComparison {
    /// The day, as year-month-day, in UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) redis_version: String,
    /// Processes that wanted to run, on average of a minute: before the run and after it.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    /// MiB of all values of a size.
    pub(crate) mib: u64,
    pub(crate) batch: usize,
    /// Time of one's turn, in s.
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) contests: Vec<ValuesContest>,
}

/// One work with values of one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ValuesContest {
    pub(crate) work: String,
    pub(crate) value_bytes: usize,
    pub(crate) keys: u64,
    pub(crate) series: Vec<ValuesSeries>,
}

/// What one did, round by round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ValuesSeries {
    pub(crate) name: String,
    /// The series with which it is compared.
    pub(crate) beside: Option<String>,
    pub(crate) operations_per_s: Vec<f64>,
    /// Processor time an operation, of the client's thread and of the server.
    pub(crate) cpu_ns: Vec<f64>,
}

impl ValuesSeries {
    pub(super) fn new(name: &str, beside: Option<&str>) -> Self {
        let beside = beside.map(str::to_owned);
        Self { name: name.to_owned(), beside, operations_per_s: Vec::new(), cpu_ns: Vec::new() }
    }

    pub(super) fn add(&mut self, turn: ValuesTurn) {
        let operations = turn.operations as f64;
        self.operations_per_s.push(operations / turn.elapsed.as_secs_f64().max(1e-9));
        self.cpu_ns.push(turn.cpu.as_nanos() as f64 / operations);
    }

    /// Processor time an operation, over all rounds: a server's is known to a tick only.
    fn cpu_us(&self) -> f64 {
        self.cpu_ns.iter().sum::<f64>() / self.cpu_ns.len() as f64 / 1e3
    }
}

/// The whole comparison.
pub(super) fn markdown(comparison: &ValuesComparison) -> String {
    let ValuesComparison { date, command, machine, redis_version, mib, batch, seconds, rounds, .. } =
        comparison;
    let mut text = format!(
        "{mib} MiB of values of each size under uniform keys of 8 B, batches of {batch}, random keys; \
         Redis {redis_version}. Servers have one core, the client another. {rounds} rounds, turns of {seconds} \
         s; {}, {} cores, load {:.1} before and {:.1} after; {date}.\n\n    {command}\n\n",
        machine.cpu, machine.cores, comparison.load_before, comparison.load_after,
    );
    text.push_str("| work | bytes of a value | keys | M/s | GB/s | processor, µs | times as fast |\n");
    text.push_str("|---|--:|--:|--:|--:|--:|--:|\n");
    for ValuesContest { work, value_bytes, keys, series } in &comparison.contests {
        for own in series {
            let rate = median(&own.operations_per_s);
            let beside = series.iter().find(|other| Some(&other.name) == own.beside.as_ref());
            let times = beside.map_or(String::new(), |beside| {
                let pairs = beside.operations_per_s.iter().zip(&own.operations_per_s);
                format!("{:.2}", median(&pairs.map(|(over, under)| over / under).collect::<Vec<_>>()))
            });
            let _ = writeln!(
                text,
                "| {work}, {} | {value_bytes} | {} | {:.3} | {:.2} | {:.3} | {times} |",
                own.name,
                thousands(*keys),
                rate / 1e6,
                rate * *value_bytes as f64 / 1e9,
                own.cpu_us(),
            );
        }
    }
    text.push_str(
        "\nMedians over the rounds; GETs of one thread that does all the work by its processor time, all else \
         by wall time. *Times as fast*: Farsight's rate by the other's, round by round. *Processor*: of the \
         client's thread and the server, an operation. Every value was read to its end and checked, but for \
         those of memcpy.\n\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_bandwidths_and_quotients_are_shown() {
        let series = |name: &str, beside: Option<&str>, times: u64| {
            let mut series = ValuesSeries::new(name, beside);
            for round in 1..=3 {
                let (elapsed, cpu) = (Duration::from_secs(1), Duration::from_secs(round));
                series.add(ValuesTurn { operations: times * round * 1_000_000, elapsed, cpu });
            }
            series
        };
        let text = markdown(&ValuesComparison {
            date: "2026-01-02".into(),
            command: "cargo run".into(),
            machine: Machine::default(),
            redis_version: "7.0".into(),
            load_before: 0.0,
            load_after: 0.5,
            mib: 256,
            batch: 64,
            seconds: 0.2,
            rounds: 3,
            contests: vec![ValuesContest {
                work: "GET".into(),
                value_bytes: 1000,
                keys: 268_435,
                series: vec![series("Farsight", None, 1), series("other", Some("Farsight"), 4)],
            }],
        });
        assert!(text.contains("| GET, Farsight | 1000 | 268,435 | 2.000 | 2.00 | 1.000 |  |"), "{text}");
        assert!(text.contains("| GET, other | 1000 | 268,435 | 8.000 | 8.00 | 0.250 | 0.25 |"), "{text}");
    }
}
