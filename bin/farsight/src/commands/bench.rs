//! `farsight bench`.

mod cache;
mod change;
mod flexkv;
mod help;
mod inserts;
mod mixes;
mod model;
mod pooled;
mod recovery;
mod simulated;
mod twitter;
mod values;

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use farsight::{
    Access, Addresses, Endpoint, EngineKind, POOL_NODES_MAX, ServerUrl, VALUE_BYTES_MAX, VALUE_BYTES_MIN,
};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{
    Age, Cancellation, DriverError, LoadReport, Outcome, Placement, Plan, ServerCommand, ServerSource,
    Values, remove_directory_of, table_names,
};
use farsight_bench::machine;
use farsight_bench::report::{Record, table, thousands};
use farsight_bench::workload::{Distribution, Workload};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::serve::{AckName, Serve, Settings};
use crate::commands::create::engine;
use crate::connection::Way;
use crate::ending;
use crate::error_text;
use crate::key_set;
use crate::output::output;
use crate::results;
use crate::size;
use crate::trusted_servers::TrustedServers;
use help::YCSB_HELP;

/// The exit code of a benchmark that a signal ended: 128 and SIGINT's number, as shells count.
const EXIT_INTERRUPTED: u8 = 130;
/// The seed of synthetic keys and samples.
const SEED: u64 = 1;
/// Bytes of values in blocks, unless said otherwise.
const BLOCK_BYTES_DEFAULT: usize = 128;
/// What fits any machine on which this is asked in earnest.
const THREADS_MAX: u64 = 4096;
/// Operations of the largest batch.
const BATCH_MAX: u64 = 1 << 16;
/// A run, unless said otherwise, and runs of each workload.
const SECONDS_DEFAULT: f64 = 2.0;
const RUNS_DEFAULT: u64 = 5;
/// A run of a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Measure the store, beside what this machine allows
///
/// Without more, the same as `farsight bench ycsb`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = YCSB_HELP)]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    ycsb: Ycsb,
}

/// A server that runs already.
#[derive(Debug, Args)]
struct Running {
    /// A running server, or a pool's memory nodes with commas between, instead of a server started and
    /// stopped here
    #[arg(long, value_name = "URL[,URL...]")]
    connect: Option<Addresses>,
    #[command(flatten)]
    way: Way,
}

impl Running {
    /// Options that nothing makes use of are mistakes, told before any work.
    fn check(&self) -> Result<()> {
        if let (None, Some(option)) = (&self.connect, self.way.given()) {
            bail!("{option} has no meaning without --connect: the server started here is this host's");
        }
        Ok(())
    }

    /// The server, if one is named, for tables of this engine.
    fn source(&self, engine: Option<&'static EngineKind>) -> Result<Option<ServerSource>> {
        let Some(addresses) = &self.connect else { return Ok(None) };
        let options = self.way.options()?;
        let addresses = addresses.resolve(&options)?;
        Ok(Some(ServerSource::Connect(engine, addresses, options)))
    }

    /// Which tables are made there.
    fn remains(&self) -> String {
        self.connect.as_ref().map_or_else(String::new, |addresses| {
            format!("its tables at {addresses}, {}-1 and so on, are dropped at the end\n", table_names())
        })
    }

    /// Says that a signal ended the benchmark.
    fn interrupted(&self) -> ExitCode {
        interrupted(if self.connect.is_some() { "its tables are dropped" } else { "the server is stopped" })
    }
}

/// Says that a signal ended a benchmark, and what became of its servers.
fn interrupted(servers: &str) -> ExitCode {
    farsight::say(format_args!("interrupted; {servers}"));
    ExitCode::from(EXIT_INTERRUPTED)
}

#[derive(Debug, Subcommand)]
enum Action {
    Ycsb(Box<Ycsb>),
    Inserts(inserts::Inserts),
    Change(change::Change),
    Model(model::Model),
    Mixes(mixes::Mixes),
    Values(values::ValueLengths),
    Recovery(recovery::Recovery),
    Cache(cache::CacheBudgets),
    Twitter(Box<twitter::Twitter>),
    #[command(name = "flexkv")]
    FlexKv(Box<flexkv::FlexKv>),
    /// Run `serve` on one core, as long as the process lives that started it
    #[command(hide = true)]
    Server(PinnedServer),
    /// Fill a cache, and print by how many bytes this process grew
    #[command(hide = true)]
    FillCache(change::FillCache),
}

/// YCSB A to F on real keys, in a few minutes
#[derive(Debug, Args)]
#[command(after_help = YCSB_HELP)]
struct Ycsb {
    /// The workload: a, b, b-standard, c, d, e, f or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = workloads)]
    workload: Workloads,
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "boundaries")]
    dataset: String,
    /// Which keys are popular: uniform, zipfian or latest [default: latest in d, else uniform]
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// The skew of zipfian or latest: 0 or more, also 1 and above [default: .99]
    #[arg(long, visible_alias = "alpha", value_name = "THETA", requires = "distribution")]
    theta: Option<f64>,
    /// Keys to load [default: all of a real set, 10 million of a synthetic one, simulated 1 million]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// What values are
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    values: ValuesName,
    /// Bytes of a value; with --values blocks also from..to, equally frequent [default: 8, of blocks 128]
    #[arg(long, value_name = "B[..B]", value_parser = lengths)]
    value_size: Option<(usize, usize)>,
    /// Keep the tables of the servers started here in directories below this one, which are removed at the
    /// end: what durable writes cost
    #[arg(long, value_name = "DIR", conflicts_with = "connect")]
    data: Option<PathBuf>,
    /// When writes are acknowledged, with --data
    #[arg(long, value_enum, value_name = "WHEN", default_value = "durable", requires = "data")]
    ack: AckName,
    /// Client threads [default: 1]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,
    /// Operations of a batch; 1: single operations, one after the other
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    batch: u64,
    /// Who searches the table: the client by reading the server's memory, or the server when called
    #[arg(long, value_enum, default_value_t)]
    access: AccessName,
    /// What the client's cache may take of memory [default: as much as it needs]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,
    /// Bytes of values that the client, or each simulated machine, may keep of a FlexKV table [default: none]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    value_cache: Option<u64>,
    /// Measured time of a run [default: 2, simulated 0.002]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Runs of each workload; their medians are shown [default: 5]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: Option<u64>,
    /// Run each workload also on an aged table, in turns: half of its keys came by inserts, in random order
    #[arg(long)]
    aged: bool,
    /// A file for the results, as a JSON array of one object a workload, and table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
    /// What carries the verbs: this host's memory, TCP on loopback, or a simulated network whose cards have
    /// prices
    #[arg(long, value_enum, default_value_t)]
    fabric: FabricName,
    /// Whose tables; several with commas between are run in turns [default: xstore, or what a server that
    /// runs makes]
    #[arg(long, value_parser = engine(), value_name = "NAME[,NAME...]", value_delimiter = ',')]
    engine: Vec<&'static EngineKind>,
    /// Memory nodes of a pool that is started here
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "connect",
        value_parser = clap::value_parser!(u64).range(1..=POOL_NODES_MAX as u64))]
    memory_nodes: u64,
    #[command(flatten)]
    testbed: simulated::Testbed,
}

/// A server for [`Ycsb`].
#[derive(Debug, Args)]
struct PinnedServer {
    /// The core, by its number
    #[arg(long)]
    core: Option<usize>,
    /// The process whose end it follows, its parent
    #[arg(long)]
    parent: i32,
    /// The server's socket
    #[arg(long)]
    socket: PathBuf,
    /// An address besides
    #[arg(long)]
    listen: Option<ServerUrl>,
    /// Memory to take at the start, for the first table and those after it
    #[arg(long)]
    prefault: Vec<u64>,
    /// The pool whose tables it trains
    #[arg(long)]
    train: Option<Addresses>,
    /// The directory in which it keeps its tables
    #[arg(long)]
    data: Option<PathBuf>,
    /// When it acknowledges writes then
    #[arg(long, value_enum, default_value = "durable")]
    ack: AckName,
    /// Bytes of log after which it makes snapshots then
    #[arg(long)]
    snapshot_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, ValueEnum)]
enum ValuesName {
    /// All of one size, in the leaves
    #[default]
    Fixed,
    /// Of any length, each in a block
    Blocks,
    /// The same, of pairs that end after a day
    Expiring,
}

/// Reads a length, or two with dots between.
fn lengths(text: &str) -> Result<(usize, usize), String> {
    let length = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number of bytes"));
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (length(least)?, length(most)?);
    if least <= most { Ok((least, most)) } else { Err(format!("{least} is more than {most}")) }
}

#[derive(Debug, Clone)]
struct Workloads(Vec<Workload>);

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum AccessName {
    #[default]
    OneSided,
    Rpc,
}

impl From<AccessName> for Access {
    fn from(name: AccessName) -> Self {
        match name {
            AccessName::OneSided => Self::OneSided,
            AccessName::Rpc => Self::Rpc,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum FabricName {
    #[default]
    Shm,
    Tcp,
    Sim,
}

impl FabricName {
    /// Where a server listens for it, besides its socket.
    fn network(self) -> Option<ServerUrl> {
        let loopback = |port| Endpoint { host: "127.0.0.1".to_owned(), port };
        (self == Self::Tcp).then(|| ServerUrl::Tcp(loopback(0)))
    }
}

fn workloads(text: &str) -> Result<Workloads, String> {
    if text.eq_ignore_ascii_case("all") {
        let of_table = Workload::ALL.into_iter().filter(|workload| *workload != Workload::BStandard);
        return Ok(Workloads(of_table.collect()));
    }
    let one: Workload = text.parse().map_err(|error| format!("{error}, or all"))?;
    Ok(Workloads(vec![one]))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        Ok(seconds)
    } else {
        Err(format!("{text} is not above 0 and at most {SECONDS_MAX}"))
    }
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            None => self.ycsb.run(),
            Some(Action::Ycsb(ycsb)) => ycsb.run(),
            Some(Action::Inserts(inserts)) => inserts.run(),
            Some(Action::Change(change)) => change.run(),
            Some(Action::Model(model)) => model.run(),
            Some(Action::Cache(cache)) => cache.run(),
            Some(Action::Mixes(mixes)) => mixes.run(),
            Some(Action::Twitter(twitter)) => twitter.run(),
            Some(Action::FlexKv(flexkv)) => flexkv.run(),
            Some(Action::Values(values)) => values.run(),
            Some(Action::Recovery(recovery)) => recovery.run(),
            Some(Action::Server(server)) => server.run(),
            Some(Action::FillCache(fill)) => fill.run(),
        }
    }
}

impl Ycsb {
    fn run(self) -> Result<ExitCode> {
        self.testbed.check(&self)?;
        self.values()?;
        self.distribution()?;
        let is_searched_by_server = Access::from(self.access) == Access::Rpc;
        if let Some(engine) =
            self.engines().iter().find(|engine| is_searched_by_server && !engine.answers_reads)
        {
            bail!("--access rpc has no meaning with --engine {engine}: a memory node searches nothing");
        }
        if let Some(engine) = self.engines().iter().find(|engine| self.aged && !engine.nodes_train) {
            bail!("--aged has no meaning with --engine {engine}: nobody tells when its trainers are done");
        }
        self.running.check()?;
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let dataset = Dataset::parse(&self.dataset)?;
        let is_simulated = self.fabric == FabricName::Sim;
        let fewer = is_simulated && dataset.is_synthetic();
        let keys = self.keys.or(fewer.then_some(simulated::KEYS_DEFAULT));
        let keys = key_set::generate(&dataset, keys.map(|keys| keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        if is_simulated {
            ensure!(self.cache.is_none(), "--cache has no meaning with --fabric sim");
            let is_plain = self.values == ValuesName::Fixed && self.data.is_none();
            ensure!(is_plain, "--values blocks and --data have no meaning with --fabric sim");
            return self.simulate(&dataset, &keys, &cancellation);
        }
        let placement = Placement::new(self.threads(), self.running.connect.is_some())?;
        let mut out = output();
        writeln!(out, "YCSB on {} keys of {}; {placement}", thousands(keys.len() as u64), dataset.name())?;
        writeln!(out, "{}", self.running.remains())?;
        out.flush()?;
        let outcomes = match self.outcomes(&dataset, keys, &placement, &cancellation) {
            Err(error) if matches!(error.downcast_ref(), Some(DriverError::Cancelled)) => {
                return Ok(self.running.interrupted());
            }
            done => done?,
        };
        let mut records: Vec<Record> = outcomes.iter().flat_map(|outcome| outcome.records.clone()).collect();
        let stored = results::store(self.json.as_deref(), &records);
        // A table an engine.
        records.sort_by(|one, other| one.setting.engine.cmp(&other.setting.engine).reverse());
        writeln!(out, "{}", table(&records))?;
        out.write_all(remarks(&dataset, &outcomes).as_bytes())?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs all workloads; each of them on each engine in turn, if there are several.
    fn outcomes(
        &self,
        dataset: &Dataset,
        keys: Vec<u64>,
        placement: &Placement,
        cancellation: &Cancellation,
    ) -> Result<Vec<Outcome>> {
        let plan = self.plan(dataset)?;
        if self.engine.is_empty()
            && let Some(source) = self.running.source(None)?
        {
            return Ok(vec![plan.run(keys, &source, placement, cancellation)?]);
        }
        let engines = self.engines();
        if let [engine] = engines[..] {
            let source = self.source_of(engine, placement)?;
            return Ok(vec![plan.run(keys, &source, placement, cancellation)?]);
        }
        let mut outcomes = Vec::new();
        for &workload in &plan.workloads {
            let plan = Plan { workloads: vec![workload], ..plan.clone() };
            for &engine in &engines {
                let source = self.source_of(engine, placement)?;
                outcomes.push(plan.run(keys.clone(), &source, placement, cancellation)?);
            }
        }
        Ok(outcomes)
    }

    /// The engines that were requested.
    fn engines(&self) -> Vec<&'static EngineKind> {
        match &self.engine[..] {
            [] => vec![EngineKind::XSTORE],
            engines => engines.to_vec(),
        }
    }

    /// What is started for this engine.
    fn source_of(&self, engine: &'static EngineKind, placement: &Placement) -> Result<ServerSource> {
        if let Some(source) = self.running.source(Some(engine))? {
            return Ok(source);
        }
        let mut command = server_command(self.fabric.network(), placement)?;
        if let Some(data) = &self.data {
            command.data.clone_from(&self.data);
            std::fs::create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
            command.arguments.push(format!("--ack={}", self.ack.name()));
        }
        if engine.is_alone() {
            return Ok(ServerSource::Start(command));
        }
        Ok(ServerSource::StartPool(engine, command, self.memory_nodes as usize))
    }

    fn threads(&self) -> usize {
        self.threads.map_or(1, |threads| threads as usize)
    }

    fn plan(&self, dataset: &Dataset) -> Result<Plan> {
        Ok(Plan {
            workloads: self.workload.0.clone(),
            distribution: self.distribution()?,
            dataset: dataset.name(),
            values: self.values()?,
            threads: self.threads(),
            batch: self.batch as usize,
            access: self.access.into(),
            seconds: self.seconds.unwrap_or(SECONDS_DEFAULT),
            runs: self.runs.unwrap_or(RUNS_DEFAULT) as usize,
            ages: if self.aged { vec![Age::Fresh, Age::Aged] } else { vec![Age::Fresh] },
            cache_bytes: self.cache,
            value_cache_bytes: self.value_cache,
            acknowledged: self.data.as_ref().map(|_| self.ack.name()),
        })
    }

    /// Which keys are popular, if that is said.
    fn distribution(&self) -> Result<Option<Distribution>> {
        match (self.distribution, self.theta) {
            (Some(named), Some(theta)) => Ok(Some(named.with_theta(theta)?)),
            (named, _) => Ok(named),
        }
    }

    /// What the tables' values are; each has room for what proves whose it is.
    fn values(&self) -> Result<Values> {
        let (least, most) = self.value_size.unwrap_or(match self.values {
            ValuesName::Fixed => (VALUE_BYTES_MIN, VALUE_BYTES_MIN),
            ValuesName::Blocks | ValuesName::Expiring => (BLOCK_BYTES_DEFAULT, BLOCK_BYTES_DEFAULT),
        });
        ensure!(
            least >= VALUE_BYTES_MIN,
            "--value-size: values of less than {VALUE_BYTES_MIN} B prove nothing"
        );
        match self.values {
            ValuesName::Blocks | ValuesName::Expiring => {
                let longest = u32::try_from(most).is_ok();
                ensure!(longest, "--value-size: {most} B are more than any value has");
                let values = Values::blocks(least, most);
                Ok(if self.values == ValuesName::Expiring { values.with_deadlines() } else { values })
            }
            ValuesName::Fixed if least < most => bail!("--value-size {least}..{most} wants --values blocks"),
            ValuesName::Fixed => {
                let remedy = "longer ones want --values blocks";
                ensure!(most <= VALUE_BYTES_MAX, "--value-size: up to {VALUE_BYTES_MAX} B; {remedy}");
                Ok(Values::fixed(most))
            }
        }
    }
}

/// What stands below the table.
fn remarks(dataset: &Dataset, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut engines = Vec::new();
    for Outcome { loads, notes, .. } in outcomes {
        let engine = loads[0].engine;
        if !engines.contains(&engine) {
            engines.push(engine);
            text.extend(loads.iter().map(load_text));
        }
        for note in notes {
            let _ = writeln!(text, "{engine}, {note}");
        }
    }
    let checked = thousands(outcomes.iter().map(|outcome| outcome.operations_checked).sum());
    let _ = writeln!(text, "wrong answers: 0 in {checked} operations, each of them checked");
    if let Some(credit) = dataset.attribution() {
        let _ = writeln!(text, "{credit}");
    }
    let next = "\nNext: farsight bench ycsb --dataset uniform --keys 10000000 --workload c\n\
                More: farsight bench ycsb --help\n";
    text.push_str(next);
    text
}

/// A flag that the signals set which ask a program to end.
pub(super) fn cancellation() -> Result<Cancellation> {
    let cancellation = Cancellation::default();
    for signal in ending::signals() {
        signal_hook::flag::register(signal, cancellation.flag()).context("cannot handle signals")?;
    }
    Ok(cancellation)
}

/// This program as a server, for clients of this host or over `network`.
fn server_command(network: Option<ServerUrl>, placement: &Placement) -> Result<ServerCommand> {
    command_on(placement.server_core(), network)
}

/// This program as a server on this core, or on all.
fn command_on(core: Option<usize>, network: Option<ServerUrl>) -> Result<ServerCommand> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let own_pid = std::process::id().to_string();
    let mut arguments: Vec<String> = ["bench", "server", "--parent", &own_pid].map(str::to_owned).into();
    if let Some(core) = core {
        arguments.extend(["--core".to_owned(), core.to_string()]);
    }
    Ok(ServerCommand { program, arguments, network, data: None })
}

fn load_text(load: &LoadReport) -> String {
    let age = match load.age {
        Age::Fresh => "",
        Age::Aged => "aged table, half of it inserted in random order: ",
    };
    format!(
        "{age}loaded {} pairs in {:.2} s ({:.2} M/s); model trained in {:.3} s of processor time;\n\
         client cache of {} filled in {:.3} s; leaves {}, of which the client has {} on huge pages\n",
        thousands(load.pairs),
        load.load_s,
        load.pairs as f64 / load.load_s / 1e6,
        load.training_s,
        size::text(load.cache_bytes),
        load.cache_fill_s,
        size::text(load.table_bytes),
        size::text(load.huge_page_bytes),
    )
}

impl PinnedServer {
    /// Does what `serve` does, until the benchmark that started it ends it or dies. After a death nobody else
    /// is left to tidy up; the two are not told apart while threads of the benchmark are still dying.
    fn run(self) -> Result<ExitCode> {
        if let Some(core) = self.core {
            machine::pin_to(&[core], 0)?;
        }
        let is_orphan = || getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(self.parent);
        let guarded = || {
            set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent's end")?;
            // It may have died before.
            ensure!(!is_orphan(), "process {}, for which this server was started, has ended", self.parent);
            Ok(())
        };
        let settings = Settings::at(self.socket.clone(), self.listen);
        let (prefault, train, trusted) = (self.prefault, self.train, TrustedServers::default());
        let Self { data, ack, snapshot_bytes, .. } = self;
        let (pool, cluster, nodes, lease) = (Vec::new(), None, 1, None);
        let served = Serve {
            settings,
            prefault,
            train,
            pool,
            cluster,
            nodes,
            data,
            ack,
            snapshot_bytes,
            trusted,
            lease,
        };
        let served = served.serve(guarded);
        // A failure is told in a file there, to the benchmark if it lives. Where nobody reads that this is
        // ready, its end has begun: the kernel closes what it had open before it leaves its children.
        let is_unread = served.as_ref().is_err_and(error_text::is_broken_pipe);
        if served.is_ok() || is_unread || is_orphan() {
            remove_directory_of(&self.socket);
        }
        served
    }
}
