//! The record of a comparison: several stores, the same keys and operations, measured in turns.
//!
//! Invariant: run `i` of every rate of one work was measured in the same round, so quotients are taken round
//! by round and their median is what a comparison quotes.

use serde::{Deserialize, Serialize};

use super::median;
use crate::machine::Machine;

/// What stores are asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// GETs in batches, every key alike. YCSB C with that distribution.
    GetUniform,
    /// GETs in batches, Zipfian .99: YCSB C.
    GetZipfian,
    /// GETs one by one, every key alike.
    SingleUniform,
    /// GETs one by one, Zipfian .99.
    SingleZipfian,
    /// Scans of 1 to 100 pairs from any key.
    Scan,
    /// 95 % GETs, 5 % inserts, every key alike.
    InsertFivePercent,
    /// YCSB A, Zipfian .99.
    A,
    /// YCSB B as in XStore's Table 1, 90:10, Zipfian .99.
    B,
    /// YCSB D, the latest the most read.
    D,
    /// YCSB E, Zipfian .99.
    E,
    /// YCSB F, Zipfian .99.
    F,
}

/// How fast a store did a work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The work.
    pub work: Work,
    /// Operations a second, the median of the runs: of the reader's processor time where nothing is written,
    /// else of wall time.
    pub ops_per_s: f64,
    /// Operations a second of each round.
    pub runs: Vec<f64>,
}

/// A store and what it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedStore {
    /// Its name.
    pub name: String,
    /// What it is and how it was used.
    pub note: String,
    /// Whether it takes GETs in batches.
    pub is_batched: bool,
    /// Bytes a key that a client keeps in its own memory to find pairs in the store's.
    pub client_bytes_per_key: Option<f64>,
    /// Its rates, works that it cannot do left out.
    pub rates: Vec<Rate>,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The day, as year-month-day, in UTC.
    pub date: String,
    /// The command.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Name of the dataset.
    pub dataset: String,
    /// Keys loaded.
    pub keys: u64,
    /// Operations of a batch.
    pub batch: usize,
    /// Time of one store's turn, in s.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// Independent 64 B reads a second in a region of the table's size.
    pub random_read_limit_per_s: f64,
    /// Unchecked GETs in XStore's layout a second.
    pub shape_limit_per_s: f64,
    /// The stores; the first is the one that the others are compared with.
    pub stores: Vec<ComparedStore>,
}

impl Work {
    /// Every work, in the order in which a comparison does them: what inserts comes last.
    pub const ALL: [Self; 11] = [
        Self::GetUniform,
        Self::GetZipfian,
        Self::SingleUniform,
        Self::SingleZipfian,
        Self::Scan,
        Self::A,
        Self::B,
        Self::F,
        Self::InsertFivePercent,
        Self::D,
        Self::E,
    ];

    /// Whether nothing is written.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        let reads =
            [Self::GetUniform, Self::GetZipfian, Self::SingleUniform, Self::SingleZipfian, Self::Scan];
        reads.contains(&self)
    }

    /// What it is called in tables.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::GetUniform => "get u",
            Self::GetZipfian => "get z (C)",
            Self::SingleUniform => "single u",
            Self::SingleZipfian => "single z",
            Self::Scan => "scan",
            Self::InsertFivePercent => "95/5",
            Self::A => "A",
            Self::B => "B",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }
}

impl Rate {
    /// The rate of these runs; at least one.
    ///
    /// # Panics
    /// Without a run.
    #[must_use]
    pub fn of_runs(work: Work, runs: Vec<f64>) -> Self {
        Self { work, ops_per_s: median(&runs), runs }
    }
}

impl ComparedStore {
    /// Its rate of `work`, if it can do that.
    #[must_use]
    pub fn rate(&self, work: Work) -> Option<&Rate> {
        self.rates.iter().find(|rate| rate.work == work)
    }

    /// How many times as fast it is at `work` as `other` at `other_work`: the median over the rounds.
    #[must_use]
    pub fn times(&self, work: Work, other: &Self, other_work: Work) -> Option<f64> {
        let runs = self.rate(work)?.runs.iter().zip(&other.rate(other_work)?.runs);
        let quotients: Vec<f64> = runs.map(|(ours, theirs)| ours / theirs).collect();
        (!quotients.is_empty()).then(|| median(&quotients))
    }
}

impl Comparison {
    /// The store of this name.
    #[must_use]
    pub fn store(&self, name: &str) -> Option<&ComparedStore> {
        self.stores.iter().find(|store| store.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(work: Work, runs: &[f64]) -> ComparedStore {
        ComparedStore {
            name: "s".into(),
            note: String::new(),
            is_batched: false,
            client_bytes_per_key: None,
            rates: vec![Rate::of_runs(work, runs.to_vec())],
        }
    }

    #[test]
    fn quotients_are_taken_round_by_round() {
        let (ours, theirs) = (store(Work::A, &[10.0, 40.0, 90.0]), store(Work::B, &[1.0, 20.0, 30.0]));
        assert_eq!(ours.times(Work::A, &theirs, Work::B), Some(3.0));
        assert_eq!(ours.times(Work::B, &theirs, Work::B), None);
    }

    #[test]
    fn works_are_named_and_none_is_forgotten() {
        for work in Work::ALL {
            let json = serde_json::to_string(&work).expect("plain data");
            assert_eq!(serde_json::from_str::<Work>(&json).expect("its own name"), work);
        }
        assert_eq!(serde_json::to_string(&Work::InsertFivePercent).unwrap(), "\"insert-five-percent\"");
    }
}
