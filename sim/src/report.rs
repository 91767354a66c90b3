//! What comes of a scenario: what it met, or what is wrong.

use std::fmt;
use std::time::Duration;

use crate::classes::Coverage;
use crate::journal::{Action, Entry};
use crate::trace::Trace;

/// What came of a scenario that passed.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Entries of its journal.
    pub entries: usize,
    /// Writes that nobody knows the outcome of.
    pub unknown_writes: usize,
    /// Reads that found their key, and that did not.
    pub found: usize,
    /// Reads that did not find their key.
    pub absent: usize,
    /// Leaves that the server split.
    pub splits: u64,
    /// Leaves that a server by itself merged with neighbours.
    pub merges: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// The number of all that happened.
    pub trace_hash: u64,
    /// What it met.
    pub coverage: Coverage,
    /// What happened, if it was kept.
    pub trace: Trace,
}

impl Report {
    /// With the counts of a journal's entries.
    pub(crate) fn with_entries(self, entries: &[Entry]) -> Self {
        let count =
            |wanted: fn(&Action) -> bool| entries.iter().filter(|entry| wanted(&entry.action)).count();
        Self {
            entries: entries.len(),
            unknown_writes: count(|action| matches!(action.written(), Some((_, _, None)))),
            found: count(|action| matches!(action, Action::Read(Some(_)))),
            absent: count(|action| matches!(action, Action::Read(None))),
            ..self
        }
    }
}

/// Why a scenario failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub what: String,
    /// The entries that contradict each other.
    pub entries: Vec<Entry>,
    /// What happened, if it was kept.
    pub trace: Trace,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scenario {} seed {}: {}", self.scenario, self.seed, self.what)?;
        for Entry { key, life, process, begin, end, action } in &self.entries {
            write!(f, "\n  life {life:04x} process {process} key {key} [{begin}, {end}] {action:?}")?;
        }
        Ok(())
    }
}
