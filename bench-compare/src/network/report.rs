//! The record of a comparison over the network, and its tables with the marks.

use std::fmt::Write as _;

use farsight_bench::machine::Machine;
use farsight_bench::report::{median, thousands};
use serde::{Deserialize, Serialize};

use super::Turn;

/// A comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NetworkComparison {
    /// The day, as year-month-day, in UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) redis_version: String,
    pub(crate) keys: u64,
    /// Time of one's turn, in s.
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) contests: Vec<Contest>,
}

/// One work at one depth.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Contest {
    pub(crate) work: String,
    /// Requests in flight.
    pub(crate) depth: usize,
    /// Farsight's first.
    pub(crate) series: Vec<Series>,
}

/// What one contestant did, round by round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) requests_per_s: Vec<f64>,
    /// The server's processor time a request.
    pub(crate) server_cpu_ns: Vec<f64>,
}

impl Series {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), requests_per_s: Vec::new(), server_cpu_ns: Vec::new() }
    }

    pub(super) fn add(&mut self, turn: Turn) {
        let requests = turn.requests as f64;
        self.requests_per_s.push(requests / turn.elapsed.as_secs_f64());
        self.server_cpu_ns.push(turn.server_cpu.as_nanos() as f64 / requests);
    }

    /// The server's processor time a request, over all rounds: a round's is known to a tick only.
    fn cpu_ns(&self) -> f64 {
        self.server_cpu_ns.iter().sum::<f64>() / self.server_cpu_ns.len() as f64
    }

    /// How many times as fast `self` is as `other`.
    fn times(&self, other: &Self) -> f64 {
        let quotients = self.requests_per_s.iter().zip(&other.requests_per_s).map(|(own, other)| own / other);
        median(&quotients.collect::<Vec<_>>())
    }
}

/// Times as fast, by work and depth, as Redis's command one by one.
const RATE_MARKS: [(&str, usize, f64); 4] =
    [("GET", 64, 1.6), ("GET", 256, 3.0), ("GET", 1024, 8.0), ("ordered look-up", 64, 5.0)];
/// Of Redis's processor time a GET, Farsight's server takes one part in so many, at this depth.
const CPU_MARK: (&str, usize, f64) = ("GET", 256, 3.0);

/// The whole comparison.
pub(super) fn markdown(comparison: &NetworkComparison) -> String {
    let NetworkComparison { date, command, machine, redis_version, keys, seconds, rounds, contests } =
        comparison;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} uniform keys of 8 B, values of 8 B, over TCP on loopback; Redis {redis_version}; both servers on one \
         core, one client on another; {rounds} rounds, turns of {seconds} s; {}, {} cores; {date}.\n\n    \
         {command}\n",
        thousands(*keys),
        machine.cpu,
        machine.cores,
    );
    let _ = writeln!(text, "| work | in flight | M requests/s | server's ns a request | times as fast |");
    let _ = writeln!(text, "|---|--:|--:|--:|--:|");
    for Contest { work, depth, series } in contests {
        for (index, own) in series.iter().enumerate() {
            let (rate, cpu_ns) = (median(&own.requests_per_s) / 1e6, own.cpu_ns());
            let times = if index == 0 { String::new() } else { format!("{:.2}", series[0].times(own)) };
            let name = if index == 0 { format!("{work}, **{}**", own.name) } else { own.name.clone() };
            let _ = writeln!(text, "| {name} | {depth} | {rate:.3} | {cpu_ns:.0} | {times} |");
        }
    }
    text.push_str(
        "\nMedians over the rounds; *times as fast*: Farsight's rate by the other's, round by round.\n\n",
    );
    text.push_str("| | mark | seen | |\n|---|--:|--:|---|\n");
    for contest in contests {
        marks(&mut text, contest);
    }
    text.push('\n');
    text
}

fn marks(text: &mut String, contest: &Contest) {
    let Contest { work, depth, series } = contest;
    let [own, theirs, ..] = &series[..] else { return };
    let mut row = |what: &str, mark: f64, seen: f64| {
        let verdict = if seen >= mark { "reached" } else { "missed" };
        let _ = writeln!(text, "| {work}, {depth} in flight, {what} | {mark} | {seen:.2} | {verdict} |");
    };
    if let Some((.., mark)) = RATE_MARKS.iter().find(|(of, at, _)| of == work && at == depth) {
        row(&format!("times as fast as {}", theirs.name), *mark, own.times(theirs));
    }
    if (CPU_MARK.0, CPU_MARK.1) == (work, *depth) {
        row("the server's processor time: times as little", CPU_MARK.2, theirs.cpu_ns() / own.cpu_ns());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn contest(work: &str, depth: usize, times: u64) -> Contest {
        let series = [("Farsight", times), ("Redis", 1)].map(|(name, requests)| {
            let mut series = Series::new(name);
            for round in 1..=3 {
                let requests = requests * round * 1_000_000;
                let (elapsed, server_cpu) = (Duration::from_secs(1), Duration::from_secs(round));
                series.add(Turn { requests, elapsed, server_cpu });
            }
            series
        });
        Contest { work: work.into(), depth, series: series.into() }
    }

    #[test]
    fn rates_quotients_and_marks_are_shown() {
        let text = markdown(&NetworkComparison {
            date: "2026-01-02".into(),
            command: "cargo run".into(),
            machine: Machine::default(),
            redis_version: "7.0".into(),
            keys: 1_000,
            seconds: 0.2,
            rounds: 3,
            contests: vec![contest("GET", 16, 2), contest("GET", 256, 4), contest("ordered look-up", 64, 2)],
        });
        assert!(
            text.contains(
                "| GET, **Farsight** | 16 | 4.000 | 500 |  |\n| Redis | 16 | 2.000 | 1000 | 2.00 |"
            )
        );
        assert!(
            text.contains("| GET, 256 in flight, times as fast as Redis | 3 | 4.00 | reached |"),
            "{text}"
        );
        let processor =
            "| GET, 256 in flight, the server's processor time: times as little | 3 | 4.00 | reached |";
        assert!(text.contains(processor), "{text}");
        assert!(
            text.contains("| ordered look-up, 64 in flight, times as fast as Redis | 5 | 2.00 | missed |")
        );
        assert!(!text.contains("16 in flight"), "no mark there: {text}");
    }
}
