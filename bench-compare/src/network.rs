//! Farsight over TCP beside a Redis on this machine: GETs and ordered look-ups, at equal requests in flight.
//!
//! Invariants: every answer is checked, for both; a wrong one ends the run. Both servers have the same core,
//! this client another; who is not asked sleeps. At each depth all take turns within a round, and what is
//! quoted is the median over the rounds of quotients within a round.
//!
//! Protocol: `depth` requests go out together and their answers are taken before the next: one `multi_get` or
//! `scan_batch` of Farsight's, one pipeline of Redis's on one connection. Redis has its own command for many
//! keys, too, MGET, shown beside.

mod farsight;
mod redis;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farsight_base::prng::SplitMix64;
use farsight_bench::dataset::{Dataset, FileOptions};
use farsight_bench::driver::{Cancellation, Load, Placement, ServerCommand, ServerSource, identities};
use farsight_bench::machine::{Machine, process_cpu_time};
use farsight_bench::report::write_json;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{self, Network};
use crate::children;
use crate::document;
use crate::redis::{Server as RedisServer, Settings as RedisSettings};
use crate::tally::value_of;

use report::{Contest, NetworkComparison, Series};

/// The seed of keys and of requests.
const SEED: u64 = 1;
/// Requests in flight.
const DEPTHS: [usize; 5] = [1, 16, 64, 256, 1024];
/// The depth at which ordered look-ups are compared.
const LOOKUP_DEPTH: usize = 64;
/// Questions drawn before, with their answers: more than any cache holds the leaves of.
const QUESTIONS: usize = 1 << 20;
/// The part of a turn that warms up before the rounds.
const WARM_UP_PART: f64 = 0.3;

/// A key to ask for, and what must be answered.
#[derive(Clone, Copy)]
struct Question {
    asked: u64,
    /// The key found: the one requested, or the first from it on.
    key: u64,
    value: u64,
}

/// Something that answers questions, so many at a time.
trait Contestant {
    /// Asks all of them together and checks what is answered.
    fn ask(&mut self, questions: &[Question]) -> Result<()>;
}

/// What both are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Get,
    Lookup,
}

/// A contestant with its server.
struct Entrant {
    name: &'static str,
    process_id: u32,
    contestant: Box<dyn Contestant>,
}

pub(crate) fn run(asked: &Network) -> Result<ExitCode> {
    let keys = Dataset::Uniform.generate(
        Some(asked.keys as usize),
        SEED,
        "".as_ref(),
        FileOptions { sort: false },
    )?;
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}")?;
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    let comparison = NetworkBench { asked, keys: keys.keys.into(), bar: &bar }.run()?;
    bar.finish_and_clear();
    let text = report::markdown(&comparison);
    print!("{text}");
    if let Some(path) = &asked.document {
        document::put(path, &format!("redis {}", asked.keys), &text)?;
    }
    if let Some(path) = &asked.json {
        write_json(path, &[comparison])?;
    }
    Ok(ExitCode::SUCCESS)
}

struct NetworkBench<'a> {
    asked: &'a Network,
    keys: Arc<[u64]>,
    bar: &'a ProgressBar,
}

impl NetworkBench<'_> {
    fn run(&self) -> Result<NetworkComparison> {
        let (placement, machine) = (Placement::new(1, false)?, Machine::detect());
        self.bar.set_message("loading Farsight");
        let load = self.load(&placement)?;
        self.bar.set_message("loading Redis");
        let directory = tempfile::Builder::new().prefix("farsight-redis-").tempdir()?;
        let redis = RedisServer::start(RedisSettings {
            program: self.asked.redis_server.clone(),
            core: placement.server_core(),
            sync: None,
            directory: directory.path().to_owned(),
        })?;
        redis::load(&redis, &self.keys)?;
        // Now, not before: threads that were started keep the other cores.
        placement.pin(0)?;
        let mut contests = Vec::new();
        let questions = self.questions(Work::Get);
        for depth in DEPTHS {
            contests.push(self.contest(Work::Get, depth, &load, &redis, &questions)?);
        }
        let questions = self.questions(Work::Lookup);
        contests.push(self.contest(Work::Lookup, LOOKUP_DEPTH, &load, &redis, &questions)?);
        Ok(NetworkComparison {
            date: document::date(std::time::SystemTime::now()),
            command: arguments::command(),
            machine,
            redis_version: redis.version().to_owned(),
            keys: self.keys.len() as u64,
            seconds: self.asked.seconds,
            rounds: self.asked.rounds as usize,
            contests,
        })
    }

    fn load(&self, placement: &Placement) -> Result<Load> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut arguments = vec!["server".to_owned()];
        if let Some(core) = placement.server_core() {
            arguments.extend(["--core".to_owned(), core.to_string()]);
        }
        let network = Some("tcp://127.0.0.1:0".parse()?);
        let source = ServerSource::Start(ServerCommand { program, arguments, network, data: None });
        let loading = children::loading(::farsight::Access::OneSided);
        Ok(Load::new(&source, loading, &identities(self.keys.to_vec()), 1, &Cancellation::default())?)
    }

    fn questions(&self, work: Work) -> Vec<Question> {
        let mut random = SplitMix64::new(SEED + 1);
        let mut draw = || loop {
            let keys = &self.keys;
            let (asked, at) = match work {
                Work::Get => {
                    let at = random.below(keys.len() as u64) as usize;
                    (keys[at], at)
                }
                Work::Lookup => {
                    let asked = random.next_u64();
                    (asked, keys.partition_point(|key| *key < asked))
                }
            };
            // Beyond the last key there is nothing to find.
            if let Some(&key) = keys.get(at) {
                return Question { asked, key, value: value_of(key, 0) };
            }
        };
        (0..QUESTIONS).map(|_| draw()).collect()
    }

    /// All rounds of one work at one depth.
    fn contest(
        &self,
        work: Work,
        depth: usize,
        load: &Load,
        redis: &RedisServer,
        questions: &[Question],
    ) -> Result<Contest> {
        let own = Entrant {
            name: "Farsight",
            process_id: load.server_process_ids[0],
            contestant: farsight::contestant(work, load)?,
        };
        let theirs = |command: redis::Command| -> Result<Entrant> {
            let contestant = Box::new(redis::Asker::connect(redis, command)?);
            Ok(Entrant { name: command.title(), process_id: redis.process_id(), contestant })
        };
        let mut entrants = vec![own];
        match work {
            Work::Get => entrants.extend([theirs(redis::Command::Get)?, theirs(redis::Command::MultiGet)?]),
            Work::Lookup => entrants.push(theirs(redis::Command::RangeByLex)?),
        }
        let mut series: Vec<Series> = entrants.iter().map(|entrant| Series::new(entrant.name)).collect();
        let mut at = 0;
        for round in 0..=self.asked.rounds as usize {
            for place in 0..entrants.len() {
                // Each round begins with another one; before the first, all warm up.
                let index = (place + round) % entrants.len();
                self.bar.set_message(format!("depth {depth}, round {round}: {}", entrants[index].name));
                let part = if round == 0 { WARM_UP_PART } else { 1.0 };
                let time = Duration::from_secs_f64(self.asked.seconds * part);
                let turn = turn(&mut entrants[index], depth, questions, &mut at, time)?;
                if round > 0 {
                    series[index].add(turn);
                }
            }
        }
        let work = if work == Work::Get { "GET" } else { "ordered look-up" };
        Ok(Contest { work: work.to_owned(), depth, series })
    }
}

/// What one turn took.
#[derive(Clone, Copy)]
struct Turn {
    requests: u64,
    elapsed: Duration,
    server_cpu: Duration,
}

fn turn(
    entrant: &mut Entrant,
    depth: usize,
    questions: &[Question],
    at: &mut usize,
    time: Duration,
) -> Result<Turn> {
    ensure!(depth <= questions.len(), "a batch of {depth} of {} questions", questions.len());
    let server_cpu = process_cpu_time(entrant.process_id)?;
    let begun = Instant::now();
    let mut requests = 0;
    let elapsed = loop {
        if *at + depth > questions.len() {
            *at = 0;
        }
        let batch = &questions[*at..*at + depth];
        *at += depth;
        entrant.contestant.ask(batch).with_context(|| format!("{}, {depth} in flight", entrant.name))?;
        requests += depth as u64;
        let elapsed = begun.elapsed();
        if elapsed >= time {
            break elapsed;
        }
    };
    let server_cpu = process_cpu_time(entrant.process_id)?.saturating_sub(server_cpu);
    Ok(Turn { requests, elapsed, server_cpu })
}

/// An error if the answer is not the one expected.
fn check(question: &Question, key: u64, value: Option<u64>) -> Result<()> {
    let Question { asked, key: expected, value: expected_value } = *question;
    ensure!(
        key == expected && value == Some(expected_value),
        "a wrong answer for key {asked}: {key} with value {value:x?}, not {expected} with {expected_value:x}"
    );
    Ok(())
}
