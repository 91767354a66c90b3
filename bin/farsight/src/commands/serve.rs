//! `farsight serve`.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, value_parser};
use farsight::{
    Ack, Addresses, ClusterUrl, ConnectOptions, NodeStats, PoolTraining, Server, ServerBuilder, ServerUrl,
    report,
};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use signal_hook::iterator::Signals;

use crate::duration;
use crate::ending;
use crate::output::output;
use crate::size;
use crate::tls_files::TlsFiles;
use crate::trusted_servers::TrustedServers;
use crate::waiting::{WaitingName, waiting};

/// How long a server that met a bug goes on refusing calls before it ends: those under way get their answer.
/// A call that comes later finds the connection lost, as it does when a server dies.
const REFUSALS_MAX: Duration = Duration::from_millis(500);

/// Run a server, alone or a node of a pool, until SIGINT, SIGTERM or a hangup
///
/// Prints one line, "ready url=URL pid=PID", when clients can connect, with a "url=" an address.
/// Tables live in this process's memory and end with it, as it says on stderr; so does what ends with it, at
/// its end. With --data they are kept in a directory, too: a server that is started there later has them.
/// A hangup that was ignored at the start, as by nohup, does not end it. A server that meets a bug of its
/// own, or an error of its disk, says so, refuses the calls under way, and ends with exit code 1.
///
/// Several servers are a pool. The client that makes the first table names all of them, with commas between,
/// or --pool does. From then on clients name some of them, in any order. The first is the coordinator. Each
/// has a part of every table, and the pool ends with the first of them that ends. With --data DIR, a
/// directory of its own for each, it goes on when that one is back; its tables are of xstore-d then.
///
/// A client that holds the lock of a ROLEX table's leaf for longer than the lease, while others wait for it,
/// is fenced. That ends its connections, which it makes anew. Over shared memory the kernel holds up what a
/// stopped process writes. Where a sandbox gives that process no userfaultfd, it is killed instead, and the
/// report on standard error names it. Processes that serve memory themselves are never killed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight serve
  farsight serve --socket /run/farsight/main.sock --workers 2 --memory 16G
  farsight serve --listen shm:///run/farsight/main.sock --listen tcp://127.0.0.1:7474
  farsight serve --memory 16G --prefault 16G      one table with all its memory from the start

A pool of two nodes:
  export FARSIGHT_URL=tcp://10.0.0.1:7474,tcp://10.0.0.2:7474
  farsight serve --listen tcp://10.0.0.1:7474 --memory 16G --allow-plaintext --train $FARSIGHT_URL
  farsight serve --listen tcp://10.0.0.2:7474 --memory 16G --allow-plaintext
  farsight create prices --allow-plaintext
  farsight put prices 100 '8 bytes.' --allow-plaintext
  farsight get prices 100 --allow-plaintext --connect tcp://10.0.0.2:7474     one of them is enough now

The same by a name, under which etcd keeps where the nodes are:
  export FARSIGHT_URL=etcd://127.0.0.1:2379/prices
  farsight serve --listen tcp://10.0.0.1:7474 --allow-plaintext --cluster $FARSIGHT_URL --nodes 2
  farsight serve --listen tcp://10.0.0.2:7474 --allow-plaintext --cluster $FARSIGHT_URL --nodes 2
  farsight create prices --allow-plaintext --wait 5s")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Memory to take at the start, on huge pages, for the table made first, instead of when it is first
    /// written: then no write waits for the system. At most --memory of it is; repeatable, for the tables
    /// made after it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) prefault: Vec<u64>,
    /// Train the ROLEX tables of a pool of several nodes: the addresses of all, as clients name them. One of
    /// them should; several may. A server that is alone trains its own tables without this
    #[arg(long, value_name = "URL[,URL...]")]
    pub(crate) train: Option<Addresses>,
    /// The addresses by which clients reach the nodes of this one's pool, itself among them. All nodes are
    /// given one order. A client that knows one of them learns the others. Repeatable, once a fabric
    /// [default: what the client says that makes the first table]
    #[arg(long, value_name = "URL[,URL...]")]
    pub(crate) pool: Vec<Addresses>,
    /// Register under the pool's name in an etcd, so that clients find the pool by that name:
    /// etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...]/NAME. The pool goes on while etcd is away
    #[arg(long, value_name = "URL", conflicts_with = "pool")]
    pub(crate) cluster: Option<ClusterUrl>,
    /// How many nodes the pool has, with --cluster: the first table is made when so many are registered, of
    /// those that came first. The others may take the place of a lost one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "cluster",
        value_parser = value_parser!(u8).range(1..=16))]
    pub(crate) nodes: u8,
    /// Keep the tables in this directory: a server started there later has them. It belongs to one server
    /// at a time; its tables are of xstore and of this node alone
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// When writes are acknowledged, with --data
    #[arg(long, value_enum, value_name = "WHEN", default_value = "durable", requires = "data")]
    pub(crate) ack: AckName,
    /// Bytes of log after which snapshots are made, in benchmarks.
    #[arg(skip)]
    pub(crate) snapshot_bytes: Option<u64>,
    #[command(flatten)]
    pub(crate) trusted: TrustedServers,
    /// How long a client may hold a lock that others wait for, before it is fenced: 10ms to 60s [default: 5s
    /// with shared memory, else 500ms]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,
}

/// Where a server listens, to whom, and with what memory.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    listening: Listening,
    /// Most memory a table takes, 2M or more, as in 512M or 4G [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_table)]
    memory: Option<u64>,
    /// Most memory that the whole process takes, also for sessions: what would grow beyond is refused
    /// [default: nine tenths of what the machine, or its control group, has left]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory_limit: Option<u64>,
}

/// Where a process listens, and to whom.
#[derive(Debug, Args)]
pub(crate) struct Listening {
    /// An address at which clients connect: shm:///PATH on this host, tcp://HOST:PORT or rdma://HOST:PORT
    /// over a network; repeatable
    #[arg(long, value_name = "URL")]
    listen: Vec<ServerUrl>,
    /// The same as --listen shm://PATH [default: the default socket of this user, without --listen]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve other machines unprotected: anyone on the way can read and change everything
    #[arg(long)]
    allow_plaintext: bool,
    #[command(flatten)]
    tls: TlsFiles,
    /// The RDMA device for rdma:// addresses [default: the one with that address]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,
    /// How workers wait for what comes over tcp:// and rdma:// [default: briefly]
    #[arg(long, value_enum, value_name = "HOW")]
    waiting: Option<WaitingName>,
    /// Threads at each address that execute writes and calls; reads over shared memory need none
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// A user, by number, that may connect besides the server's own; repeatable
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AckName {
    /// When it is on the disk: a crash of the machine loses nothing that anybody was told or has read
    Durable,
    /// When it is in memory and the system has it: a crash of the process loses nothing, one of the machine
    /// about the last 50 ms
    Memory,
}

impl AckName {
    /// As it is given.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Memory => "memory",
        }
    }
}

impl From<AckName> for Ack {
    fn from(name: AckName) -> Self {
        match name {
            AckName::Durable => Self::Durable,
            AckName::Memory => Self::Memory,
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.serve(|| Ok(()))
    }

    /// Serves; calls `guarded` once signals are heard, before it begins.
    pub(crate) fn serve(self, guarded: impl FnOnce() -> Result<()>) -> Result<ExitCode> {
        let mut signals = hear_signals()?;
        guarded()?;
        let mut connect = self.settings.listening.connect_options()?;
        connect.server_uids.clone_from(&self.trusted.uids);
        let (pool, data) = (self.train.clone(), self.data.clone());
        let Some(server) = self.start(&mut signals)? else { return Ok(ExitCode::SUCCESS) };
        let training = pool.map(|pool| PoolTraining::start(pool, connect)).transpose()?;
        let waiting = signals.handle();
        server.on_failure(move || waiting.close());
        match &data {
            None => report("tables live in the memory of this process and end with it"),
            Some(data) => report(format_args!("tables are kept in {}", data.display())),
        }
        print_ready(server.urls())?;
        signals.forever().next();
        report(ending_text(&server.stats(), data.as_deref()));
        let failure = server.failure().map(await_refusals);
        drop(training);
        server.shutdown()?;
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Starts the server, with a bar for the memory that it takes first; `None` if a signal ends that.
    fn start(self, signals: &mut Signals) -> Result<Option<Server>> {
        let Self { settings, prefault, pool, cluster, nodes, lease, data, ack, snapshot_bytes, .. } = self;
        let table_bytes = settings.memory.unwrap_or(u64::MAX);
        let total_bytes = prefault.iter().map(|bytes| *bytes.min(&table_bytes)).fold(0, u64::saturating_add);
        let style = ProgressStyle::with_template(
            "{wide_bar} {binary_bytes} of {binary_total_bytes} of memory taken, {eta} left",
        );
        let bar = ProgressBar::new(total_bytes).with_style(style.expect("a well-formed template"));
        let mut builder = settings.builder()?.prefault(prefault);
        if let Some(lease) = lease {
            builder = builder.lease(lease);
        }
        if let Some(data) = data {
            builder = builder.data(data, ack.into());
        }
        if let Some(bytes) = snapshot_bytes {
            builder = builder.snapshot_bytes(bytes);
        }
        builder = pool.into_iter().fold(builder, ServerBuilder::pool);
        if let Some(name) = cluster {
            builder = builder.cluster(name, nodes);
        }
        let mut is_ended = false;
        let started = builder.start_reporting(|taken_bytes| {
            bar.set_position(taken_bytes);
            is_ended = signals.pending().next().is_some();
            if is_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        if is_ended { Ok(None) } else { Ok(Some(started?)) }
    }
}

impl Settings {
    /// Settings like those of `farsight serve --socket PATH`, perhaps with `--listen URL`.
    pub(crate) fn at(socket: PathBuf, listen: Option<ServerUrl>) -> Self {
        let listening = Listening {
            listen: listen.into_iter().collect(),
            socket: Some(socket),
            allow_plaintext: false,
            tls: TlsFiles::default(),
            rdma_device: None,
            waiting: None,
            workers: 1,
            allow_uid: Vec::new(),
        };
        Self { listening, memory: None, memory_limit: None }
    }

    /// The settings that were given.
    fn builder(self) -> Result<ServerBuilder> {
        let mut builder = self.listening.builder()?;
        if let Some(bytes) = self.memory {
            builder = builder.table_memory_bytes(bytes);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit_bytes(bytes);
        }
        Ok(builder)
    }
}

impl Listening {
    /// How this process reaches others that are protected as it is.
    pub(crate) fn connect_options(&self) -> Result<ConnectOptions> {
        Ok(ConnectOptions {
            tls: self.tls.read()?,
            rdma_device: self.rdma_device.clone(),
            allow_plaintext: self.allow_plaintext,
            waiting: waiting(self.waiting),
            ..ConnectOptions::default()
        })
    }

    /// The settings that were given.
    pub(crate) fn builder(self) -> Result<ServerBuilder> {
        let builder = Server::builder().workers(self.workers).allow_plaintext(self.allow_plaintext);
        let mut builder = builder.waiting(waiting(self.waiting));
        if let Some(tls) = self.tls.read()? {
            builder = builder.tls(tls);
        }
        if let Some(name) = &self.rdma_device {
            builder = builder.rdma_device(name);
        }
        for url in self.listen {
            builder = builder.listen(url);
        }
        if let Some(socket) = self.socket {
            builder = builder.socket(socket);
        }
        if !self.allow_uid.is_empty() {
            let own = rustix::process::geteuid().as_raw();
            builder = builder.allowed_uids(self.allow_uid.into_iter().chain([own]));
        }
        Ok(builder)
    }
}

/// What ends with a server. Nobody counts pairs of tables that clients write: its nodes do not see them come.
fn ending_text(stats: &NodeStats, data: Option<&Path>) -> String {
    let tables = counted(stats.tables.len() as u64, "table");
    if let Some(place) = stats.place.as_ref().filter(|place| place.epochs.len() > 1) {
        return match data {
            None => format!("its part ({place}) of {tables} ends with this process, and with that the pool"),
            Some(data) => format!("its part ({place}) of {tables} stays in {}", data.display()),
        };
    }
    let parts: Vec<_> = stats.tables.iter().filter_map(|table| table.part).collect();
    let pairs = counted(parts.iter().map(|part| part.tree.pairs).sum(), "pair");
    let pairs = match stats.tables.len() - parts.len() {
        0 => pairs,
        uncounted => {
            format!("{pairs}, and those of {} that nobody counts,", counted(uncounted as u64, "table"))
        }
    };
    match data {
        None => format!("{tables} and {pairs} end with this process"),
        Some(data) => format!("{tables} and {pairs} stay in {}", data.display()),
    }
}

/// So many of what has this name.
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

/// Hears the signals that end a server. To be called before it starts: a signal that comes early still ends
/// it cleanly.
pub(crate) fn hear_signals() -> Result<Signals> {
    Signals::new(ending::signals()).context("cannot handle the signals that end a server")
}

/// The error that a server ends with which met a bug, once its clients' calls under way are answered.
pub(crate) fn await_refusals(failure: &str) -> anyhow::Error {
    std::thread::sleep(REFUSALS_MAX);
    anyhow::Error::msg(failure.to_owned())
}

/// Says that clients can connect, and where.
pub(crate) fn print_ready(urls: &[ServerUrl]) -> Result<()> {
    let mut out = output();
    let urls: Vec<String> = urls.iter().map(|url| format!("url={url}")).collect();
    writeln!(out, "ready {} pid={}", urls.join(" "), std::process::id())?;
    out.flush()?;
    Ok(())
}
