//! Results of workloads as Twitter's caches have them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::simulated::table;
use super::thousands;
use crate::histogram::LatencyNs;
use crate::report::Measured;
use crate::workload::{Cluster, Distribution};

/// What systems reach on the workload of one cluster. Names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The cluster's number.
    pub cluster: u8,
    /// The testbed and what all clusters have in common, for the eye.
    pub setting: String,
    /// Mean bytes of a key, as published; here keys are integers of 8 B.
    pub key_bytes_published: u32,
    /// Mean bytes of a value, as published.
    pub value_bytes_published: u32,
    /// Of a hundred operations, those that read.
    pub reads_percent: u8,
    /// Those that replace a value.
    pub updates_percent: u8,
    /// Those that insert a new key.
    pub inserts_percent: u8,
    /// The published Zipfian skew; none if there is none.
    pub zipf_alpha_published: Option<f64>,
    /// The skew that was drawn.
    pub zipf_alpha: f64,
    /// Lifetimes of pairs and their shares, as published. Here pairs stay.
    pub ttl_published: String,
    /// One a system.
    pub runs: Vec<ClusterRun>,
}

/// What one system reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterRun {
    /// What is compared: an engine, or a way to use it.
    pub system: String,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Operations a second.
    pub throughput_ops_per_s: f64,
    /// Latency of an operation's batch.
    pub latency_ns: LatencyNs,
    /// READs an operation.
    pub reads_per_op: f64,
    /// Bytes that those carried, an operation.
    pub bytes_read_per_op: f64,
    /// The part that limits the run, if the fabric tells and one does.
    pub bottleneck: Option<String>,
}

impl ClusterRun {
    /// What a system reached on so many keys with such values, and the part that limited it.
    #[must_use]
    pub fn new(
        system: &str,
        (keys, value_bytes): (u64, u32),
        measured: &Measured,
        bottleneck: Option<String>,
    ) -> Self {
        Self {
            system: system.to_owned(),
            keys,
            value_bytes,
            throughput_ops_per_s: measured.throughput_ops_per_s,
            latency_ns: measured.latency_ns,
            reads_per_op: measured.reads_per_op,
            bytes_read_per_op: measured.bytes_read_per_op,
            bottleneck,
        }
    }
}

impl ClusterRecord {
    /// A record without runs.
    #[must_use]
    pub fn new(cluster: Cluster, setting: &str) -> Self {
        let mix = cluster.mix();
        let (Distribution::Zipfian { theta } | Distribution::Latest { theta }) = cluster.distribution()
        else {
            unreachable!("a cluster's keys have a skew")
        };
        Self {
            cluster: cluster.number(),
            setting: setting.to_owned(),
            key_bytes_published: cluster.key_bytes(),
            value_bytes_published: cluster.value_bytes(),
            reads_percent: mix.read,
            updates_percent: mix.update,
            inserts_percent: mix.insert,
            zipf_alpha_published: cluster.zipf_alpha(),
            zipf_alpha: theta,
            ttl_published: cluster.ttl().to_owned(),
            runs: Vec::new(),
        }
    }

    fn run_of(&self, system: &str) -> Option<&ClusterRun> {
        self.runs.iter().find(|run| run.system == system)
    }
}

/// The systems of some records, in the order of their first coming.
pub(crate) fn systems_of(records: &[ClusterRecord]) -> Vec<&str> {
    let mut systems = Vec::new();
    for run in records.iter().flat_map(|record| &record.runs) {
        if !systems.contains(&run.system.as_str()) {
            systems.push(run.system.as_str());
        }
    }
    systems
}

/// The results for the eye, the fastest of the last system first. They are of one setting.
#[must_use]
pub fn cluster_table(records: &[ClusterRecord]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let systems = systems_of(records);
    let rate = |record: &ClusterRecord, system: &str| {
        record.run_of(system).map_or(0.0, |run| run.throughput_ops_per_s)
    };
    let last = systems.last().copied().unwrap_or_default();
    let mut sorted: Vec<&ClusterRecord> = records.iter().collect();
    sorted.sort_by(|one, other| rate(other, last).total_cmp(&rate(one, last)));
    let mut header: Vec<String> =
        ["cluster", "read\n%", "update\n%", "insert\n%", "alpha", "value\nB"].map(str::to_owned).into();
    header.extend(systems.iter().flat_map(|system| [format!("{system}\nM ops/s"), "p99\nµs".to_owned()]));
    if systems.len() > 1 {
        header.push("last by\nfirst".to_owned());
    }
    header.push("limits\nthe last".to_owned());
    let rows = sorted.into_iter().map(|record| {
        let mut row = vec![
            record.cluster.to_string(),
            record.reads_percent.to_string(),
            record.updates_percent.to_string(),
            record.inserts_percent.to_string(),
            format!("{:.2}", record.zipf_alpha),
            record.value_bytes_published.to_string(),
        ];
        for system in &systems {
            row.extend(match record.run_of(system) {
                Some(run) => [
                    format!("{:.2}", run.throughput_ops_per_s / 1e6),
                    format!("{:.1}", run.latency_ns.p99 as f64 / 1e3),
                ],
                None => ["–".to_owned(), "–".to_owned()],
            });
        }
        if systems.len() > 1 {
            let (begin, end) = (rate(record, systems[0]), rate(record, last));
            let is_both = begin > 0.0 && end > 0.0;
            row.push(if is_both { format!("{:.2}", end / begin) } else { "–".to_owned() });
        }
        let limit = record.run_of(last).and_then(|run| run.bottleneck.clone());
        row.push(limit.unwrap_or_else(|| "waiting".to_owned()));
        row
    });
    let columns = header.len();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut text = format!("{}\n{}\n", first.setting, table(&header, rows, &[columns - 1]));
    for note in records.iter().flat_map(notes) {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Where a workload is not as published.
fn notes(record: &ClusterRecord) -> Vec<String> {
    let mut notes = Vec::new();
    let cluster = record.cluster;
    if record.zipf_alpha_published.is_none() {
        notes.push(format!("cluster {cluster}: no skew is published, {} is assumed", record.zipf_alpha));
    }
    let published = record.value_bytes_published;
    let mut told = Vec::new();
    for ClusterRun { system, value_bytes, keys, .. } in &record.runs {
        let what = (*value_bytes, *keys);
        if *value_bytes != published && !told.contains(&what) {
            let keys = thousands(*keys);
            notes.push(format!(
                "cluster {cluster}, {system}: values of {value_bytes} B, not {published} B; {keys} keys"
            ));
            told.push(what);
        }
    }
    notes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(cluster: u8, rates: [f64; 2]) -> ClusterRecord {
        let mut record = ClusterRecord::new(Cluster::new(cluster).expect("published"), "a testbed");
        let run = |(system, ops_per_s): (&str, f64)| ClusterRun {
            system: system.to_owned(),
            keys: 1_000,
            value_bytes: record.value_bytes_published.min(16_216),
            throughput_ops_per_s: ops_per_s,
            latency_ns: LatencyNs::default(),
            reads_per_op: 2.0,
            bytes_read_per_op: 400.0,
            bottleneck: None,
        };
        record.runs = ["one-sided", "20 proxies"].into_iter().zip(rates).map(run).collect();
        record
    }

    #[test]
    fn clusters_stand_by_their_rate_and_differences_are_told() {
        let text = cluster_table(&[record(50, [1e6, 2e6]), record(1, [3e6, 9e6]), record(43, [2e6, 3e6])]);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
        // The fastest of the last system first, by what they have more than the first.
        assert!(at(" 3.00  waiting") < at(" 1.50  waiting"), "{text}");
        assert!(at(" 1.50  waiting") < at(" 2.00  waiting"), "{text}");
        assert!(text.contains("cluster 50, one-sided: values of 16216 B, not 67485 B; 1,000 keys"), "{text}");
        assert!(text.contains("cluster 43: no skew is published, 0.99 is assumed"), "{text}");
        assert_eq!(text.matches("values of").count(), 1, "both systems have the same: {text}");
    }
}
