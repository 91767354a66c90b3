//! `farsight simulate`.

mod age;
mod document;
mod record;
mod summary;

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use farsight_sim::{Campaign, Identity, Named, SCENARIOS, Tally, named, run_seed};
use indicatif::{ProgressBar, ProgressStyle};

use super::bench::cancellation;
use crate::output::output;
use document::Document;
use record::{COMMIT, Record};

/// Seeds that are run unless the command line says otherwise.
const SEEDS_DEFAULT: u64 = 1_000;
/// A month.
const MINUTES_MAX: f64 = 43_200.0;
/// What fits any machine.
const THREADS_MAX: u64 = 4_096;

/// Run clusters in virtual time, under faults that a seed decides, and judge every answer
///
/// The real server and the real client on a simulated network card. READs are torn between lines, calls are
/// lost, clients die between two verbs, and whatever else the classes in the table name happens. Judged are
/// each key's answers (is there an order that explains them?), what is left over at the end, and every wait.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Simulate {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What happens: a name from the list below
    #[arg(long, value_name = "NAME", default_value = SCENARIOS[0].name, value_parser = scenario)]
    scenario: &'static Named,
    /// How many seeds, from the first one up [default: 1000, or as many as fit into --minutes]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Begin no seed after so many minutes
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<f64>,
    /// Threads [default: one a core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,
    /// Run one seed and print all that happens: virtual time, who, what, to which lines of which leaf
    #[arg(long, conflicts_with_all = ["seeds", "minutes", "threads", "json", "document"])]
    trace: bool,
    /// Of the trace only what concerns this key, by the number under which clients are told of it
    #[arg(long, value_name = "KEY", requires = "trace")]
    key: Option<u64>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    /// Add the result to a document such as docs/proof.md, and to the record beside it
    #[arg(long, value_name = "FILE.md")]
    document: Option<PathBuf>,
    /// Go on behind the seeds that the document has of the code as it is
    #[arg(long, requires = "document", conflicts_with = "minutes")]
    resume: bool,
}

/// How often a run that goes into a document is written there, so that one that is killed loses little.
const WRITTEN_EVERY: Duration = Duration::from_secs(20);

const HELP: &str = "\
A seed decides everything: its scenario, its faults, who goes first. The same
seed of the same commit does the same again, on any machine; a failure is
printed with the line that repeats it. The exit code is 1 if a seed failed,
or if 2,000 seeds and more of `any` left a class of faults unmet.

A trace shows what clients ask and are told (writes by their numbers, one
each) among what the fabric does for it: verbs when they are sent and when
they are back, with the versions of the lines they bring (* is changing),
stores when others can see them, and faults where they strike. With --key it
is that key's trace: all that clients did while they worked on it, and every
store into a leaf that they looked at.

Seeds are independent. A run that is cut short, by --minutes or an interrupt,
says with which seed to go on. An interrupt drops the seeds that have begun.
With --document and --resume the same line goes on by itself, until all of its
seeds were run with the code as it is; how old each record is stands there.

Examples:
  farsight simulate                                1,000 seeds of everything
  farsight simulate --seeds 1000000 --minutes 60   a million, an hour at most
  farsight simulate --seed 500001 --seeds 500000   the second half of them
  farsight simulate --seed 17 --trace --key 42     what happened to key 42
  farsight simulate --json | jq '.classes'         what was met, how often";

fn scenario(name: &str) -> Result<&'static Named, String> {
    named(name).ok_or_else(|| {
        let names: Vec<String> =
            SCENARIOS.iter().map(|scenario| format!("\n  {:<9} {}", scenario.name, scenario.about)).collect();
        format!("no such scenario; there are{}", names.concat())
    })
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if minutes > 0.0 && minutes <= MINUTES_MAX {
        Ok(minutes)
    } else {
        Err(format!("{text} is not above 0 and at most {MINUTES_MAX}"))
    }
}

impl Simulate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.trace { self.tell() } else { self.campaign_and_report() }
    }

    /// Runs one seed and tells its trace.
    fn tell(&self) -> Result<ExitCode> {
        let (trace, verdict, code) = match run_seed(self.seed, self.scenario, true) {
            Ok(report) => (report.trace, format!("seed {} passed", self.seed), ExitCode::SUCCESS),
            Err(failure) => (failure.trace.clone(), format!("FAILED {failure}"), ExitCode::FAILURE),
        };
        let mut out = output();
        out.write_all(trace.text(self.key.map(Identity)).as_bytes())?;
        writeln!(out, "{verdict}; commit {COMMIT}")?;
        Ok(code)
    }

    fn campaign_and_report(self) -> Result<ExitCode> {
        let cancellation = cancellation()?;
        let mut document = self.document.as_deref().map(Document::open).transpose()?;
        let mut campaign = self.campaign();
        if let Some(document) = document.as_ref().filter(|_| self.resume) {
            let end = campaign.first.saturating_add(campaign.seeds);
            campaign.first = document.next_seed(campaign.scenario.name, campaign.first).min(end);
            campaign.seeds = end - campaign.first;
            if campaign.seeds == 0 {
                document.write()?;
                writeln!(output(), "all of these seeds were run with the code as it is")?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        let bar = bar(&campaign);
        let begun = Instant::now();
        let limit = self.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
        let is_late = || limit.is_some_and(|limit| begun.elapsed() >= limit);
        let written = Mutex::new((document.as_mut(), Instant::now()));
        let seen = |tally: &Tally| {
            show(&bar, tally);
            let (document, at) = &mut *written.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(document) = document.as_mut().filter(|_| at.elapsed() >= WRITTEN_EVERY) {
                // What fails here fails at the end, too, and is told then.
                let _ = document.put(&Record::of(&campaign, tally, begun.elapsed()));
                *at = Instant::now();
            }
        };
        let tally = campaign.run(is_late, &cancellation.flag(), seen);
        bar.finish_and_clear();
        let record = Record::of(&campaign, &tally, begun.elapsed());
        let mut out = output();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &record)?;
            writeln!(out)?;
        } else {
            out.write_all(summary::text(&record, &tally, self.seeds).as_bytes())?;
        }
        if let Some(mut document) = document
            && let Err(error) = document.put(&record)
        {
            // Not lost, whichever of the document's files lacks it.
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
            return Err(error);
        }
        Ok(if record.has_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn campaign(&self) -> Campaign {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let unlimited = if self.minutes.is_some() { u64::MAX } else { SEEDS_DEFAULT };
        Campaign {
            scenario: self.scenario,
            first: self.seed,
            seeds: self.seeds.unwrap_or(unlimited),
            threads: self.threads.map_or_else(cores, |threads| threads as usize),
        }
    }
}

/// On stderr; nothing where that is no terminal.
fn bar(campaign: &Campaign) -> ProgressBar {
    let (bar, template) = match campaign.seeds {
        u64::MAX => (ProgressBar::no_length(), "{spinner} {human_pos} seeds, {per_sec}, {msg}, {elapsed}"),
        seeds => {
            (ProgressBar::new(seeds), "{bar:30} {human_pos}/{human_len} seeds, {per_sec}, {msg}, {eta} left")
        }
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_style(ProgressStyle::with_template(template).expect("a well-formed template"))
}

fn show(bar: &ProgressBar, tally: &Tally) {
    bar.set_position(tally.seeds);
    let failed = tally.failures.len();
    bar.set_message(format!("{} faults, {failed} failed", indicatif::HumanCount(tally.faults())));
}
