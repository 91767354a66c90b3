//! The document that adds up runs: what the simulator has survived, commit by commit.
//!
//! Invariant: the record beside the document (same name, `.jsonl`, a run a line) is what was run. Between the
//! two marks of the document stands what follows from it, written anew each time. All else is people's. Both
//! files are replaced as wholes, so a run that is killed leaves what was written last.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use farsight_bench::whole_file::write_whole;
use farsight_sim::{CLASSES, Cover};
use indicatif::HumanCount;

use super::age::{Age, age_of, newest};
use super::record::Record;
use super::summary::time;

const BEGINS: &str = "<!-- runs: written by farsight simulate --document -->";
const ENDS: &str = "<!-- end of runs -->";
/// Where there is no document yet.
const EMPTY: &str = "# What the simulator has survived\n\n";

/// A document that can be added to.
pub(super) struct Document {
    path: PathBuf,
    before: String,
    after: String,
    runs: Vec<Record>,
    /// What was run before is that many of them.
    earlier: usize,
}

impl Document {
    /// Reads it and its record, or begins both: before hours of simulation, not after them.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        ensure!(path.extension().is_some_and(|extension| extension == "md"), "{name} does not end in .md");
        let (before, after) = if path.exists() {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            let parts = text.split_once(BEGINS).and_then(|(before, rest)| {
                let (_, after) = rest.split_once(ENDS)?;
                Some((before.to_owned(), after.to_owned()))
            });
            parts.with_context(|| format!("{name} has no place for runs: {BEGINS} ... {ENDS}"))?
        } else {
            (EMPTY.to_owned(), "\n".to_owned())
        };
        let record = path.with_extension("jsonl");
        let name = record.display();
        let lines = if record.exists() {
            std::fs::read_to_string(&record).with_context(|| format!("cannot read {name}"))?
        } else {
            String::new()
        };
        let runs = lines.lines().enumerate().map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{name} line {}: no run", index + 1))
        });
        let runs: Vec<Record> = runs.collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), before, after, earlier: runs.len(), runs })
    }

    /// The first seed of a scenario from `first` on that no run of today's code had.
    pub(super) fn next_seed(&self, scenario: &str, first: u64) -> u64 {
        let age = |run: &Record| age_of(self.directory(), &run.commit);
        let mut runs: Vec<&Record> = self
            .runs
            .iter()
            .filter(|run| run.scenario == scenario && run.end() > first && age(run).is_current())
            .collect();
        runs.sort_unstable_by_key(|run| run.first_seed);
        runs.iter().fold(first, |next, run| if run.first_seed <= next { next.max(run.end()) } else { next })
    }

    /// Adds the run, as far as it came, in the place of what it was before, and writes both files.
    pub(super) fn put(&mut self, run: &Record) -> Result<()> {
        self.runs.truncate(self.earlier);
        self.runs.push(run.clone());
        self.write()
    }

    /// Writes both files.
    pub(super) fn write(&self) -> Result<()> {
        let mut lines = String::new();
        for run in &self.runs {
            lines.push_str(&serde_json::to_string(run)?);
            lines.push('\n');
        }
        let report = report(&self.runs, newest(self.directory()).as_deref(), |run| {
            age_of(self.directory(), &run.commit)
        });
        let text = format!("{}{BEGINS}\n\n{report}\n{ENDS}{}", self.before, self.after);
        let record = self.path.with_extension("jsonl");
        for (path, contents) in [(&record, lines), (&self.path, text)] {
            write_whole(path, contents.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// What follows from the runs, told at the commit `newest`.
fn report(runs: &[Record], newest: Option<&str>, age: impl Fn(&Record) -> Age) -> String {
    let ages: Vec<Age> = runs.iter().map(age).collect();
    let count = |number: u64| HumanCount(number).to_string();
    let sum = |what: fn(&Record) -> u64| count(runs.iter().map(what).sum());
    let mut text = format!(
        "**{} seeds, {} answers judged, {} faults, {} failures** in {} of virtual time.\n\n",
        sum(|run| run.seeds),
        sum(|run| run.operations),
        sum(|run| run.faults),
        sum(|run| run.failures.len() as u64),
        time(runs.iter().map(|run| run.virtual_s).sum()),
    );
    let of_today = runs.iter().zip(&ages).filter(|(_, age)| age.is_current());
    let _ = writeln!(
        text,
        "Ages are told at commit {}. Of these seeds {} were run on the code as it is there; all others on \
         code that no longer stands.\n",
        newest.unwrap_or("unknown"),
        count(of_today.map(|(run, _)| run.seeds).sum()),
    );
    text.push_str("| commit | age | scenario | seeds | answers judged | of unknown outcome | splits | ");
    text.push_str("faults | failed |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for (run, age) in runs.iter().zip(&ages) {
        let last = run.first_seed.saturating_add(run.seeds.saturating_sub(1));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}: {} to {last} | {} | {} | {} | {} | {} |",
            run.commit,
            age.text(),
            run.scenario,
            count(run.seeds),
            run.first_seed,
            count(run.operations),
            count(run.unknown_writes),
            count(run.splits),
            count(run.faults),
            failed(run),
        );
    }
    text.push_str("\n| class | | met |\n|---|---|---|\n");
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, times) in runs.iter().flat_map(|run| &run.classes) {
        *met.entry(id).or_default() += times;
    }
    for class in CLASSES {
        let how = match class.cover {
            Cover::By(_) | Cover::Counted(_) => count(met.get(class.id).copied().unwrap_or_default()),
            Cover::Elsewhere(tests) => format!("elsewhere: {tests}"),
            Cover::Nothing(why) => format!("cannot be: {why}"),
        };
        let _ = writeln!(text, "| {} | {} | {how} |", class.id, class.name);
    }
    text
}

fn failed(run: &Record) -> String {
    let seeds: Vec<String> = run.failures.iter().map(|failure| failure.seed.to_string()).collect();
    if seeds.is_empty() { "0".to_owned() } else { format!("{}: seeds {}", seeds.len(), seeds.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(commit: &str, first_seed: u64) -> Record {
        Record {
            commit: commit.to_owned(),
            scenario: "any".to_owned(),
            first_seed,
            seeds: 10,
            operations: 100,
            unknown_writes: 1,
            splits: 2,
            events: 3,
            faults: 4,
            virtual_s: 3600.0,
            elapsed_s: 1.0,
            threads: 1,
            classes: BTreeMap::from([("1".to_owned(), 5)]),
            unmet: Vec::new(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn runs_add_up_and_what_people_wrote_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("proof.md");
        Document::open(&path).expect("a new one").put(&run("first", 1)).expect("writable");
        let begun = std::fs::read_to_string(&path).expect("a document");
        assert!(begun.starts_with(EMPTY) && begun.contains("**10 seeds, 100 answers judged"), "{begun}");
        std::fs::write(&path, format!("By hand.\n{begun}More by hand.\n")).expect("writable");
        let mut document = Document::open(&path).expect("it is one");
        // A run that goes on is one run.
        document.put(&Record { seeds: 3, ..run("second", 11) }).expect("writable");
        document.put(&run("second", 11)).expect("writable");
        let text = std::fs::read_to_string(&path).expect("a document");
        assert!(text.starts_with("By hand.\n") && text.ends_with("More by hand.\n"), "{text}");
        assert!(text.contains("**20 seeds, 200 answers judged, 8 faults, 0 failures** in 2.0 h"), "{text}");
        assert!(
            text.contains("| first | unknown | any | 10: 1 to 10 |") && text.contains("| second | unknown |"),
            "{text}"
        );
        let class = CLASSES.iter().find(|class| class.id == "1").expect("there is a first");
        assert!(text.contains(&format!("| 1 | {} | 10 |", class.name)), "{text}");
        assert_eq!(text.matches(BEGINS).count(), 1);
    }

    #[test]
    fn the_report_says_how_old_each_record_is() {
        let age = |run: &Record| match run.commit.as_str() {
            "old" => Age::Known { day: "2026-01-31".to_owned(), changes: 9 },
            _ => Age::Known { day: "2026-02-01".to_owned(), changes: 0 },
        };
        let text = report(&[run("old", 1), run("new", 11)], Some("abc of 2026-02-02"), age);
        assert!(text.contains("| old | 2026-01-31, 9 changes of the code ago | any |"), "{text}");
        assert!(text.contains("| new | 2026-02-01, today's code | any |"), "{text}");
        assert!(text.contains("at commit abc of 2026-02-02. Of these seeds 10 were run"), "{text}");
    }

    #[test]
    fn a_run_goes_on_behind_what_was_run_of_this_code() {
        let commit = env!("FARSIGHT_COMMIT");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("no such document.md");
        let mut document = Document::open(&path).expect("a new one");
        let is_known = age_of(document.directory(), commit).is_current();
        document.runs = vec![run(commit, 11), run(commit, 1), run(commit, 31), run("0123456789ab", 21)];
        let next = |scenario: &str, first| document.next_seed(scenario, first);
        let expected = if is_known { [21, 41, 1] } else { [1, 35, 1] };
        assert_eq!([next("any", 1), next("any", 35), next("pools", 1)], expected);
    }

    #[test]
    fn what_is_no_document_is_refused_before_the_run() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let refused = |path: &Path| Document::open(path).err().expect("refused").to_string();
        assert!(refused(&directory.path().join("proof.txt")).contains("does not end in .md"));
        let path = directory.path().join("proof.md");
        std::fs::write(&path, "Something else.").expect("writable");
        assert!(refused(&path).contains("has no place for runs"));
        std::fs::write(&path, format!("{BEGINS}{ENDS}")).expect("writable");
        std::fs::write(path.with_extension("jsonl"), "nonsense\n").expect("writable");
        assert!(refused(&path).contains("proof.jsonl line 1: no run"));
    }
}
