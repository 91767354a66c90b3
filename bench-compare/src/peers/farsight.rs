//! Farsight: a server in another process, and a session on its one table.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use farsight::{
    Ack, Addresses, Answers, Client, ConnectOptions, Options, ServerUrl, Session, TableOptions, ValueKind,
    WriteOutcome,
};
use tempfile::TempDir;

use super::{Pair, Peer, See, first_pair};
use crate::process::{self, Process};

const TABLE: &str = "compared";
/// The file that takes what a server says.
const LOG: &str = "server.log";
/// The most that the training of the model may take after a load.
const TRAINING_TIMEOUT: Duration = Duration::from_secs(300);
const TRAINING_WINDOW: Duration = Duration::from_millis(20);

/// When a server with a directory of data acknowledges a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Acknowledged {
    /// When it is on the disk.
    Durable,
    /// When it is in memory and the system has it.
    Memory,
}

impl Acknowledged {
    fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Memory => "memory",
        }
    }
}

impl From<Acknowledged> for Ack {
    fn from(acknowledged: Acknowledged) -> Self {
        match acknowledged {
            Acknowledged::Durable => Self::Durable,
            Acknowledged::Memory => Self::Memory,
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct FarsightSettings {
    pub(crate) core: Option<usize>,
    /// Its directory of data, if it keeps its tables, and when it acknowledges writes.
    pub(crate) data: Option<(PathBuf, Acknowledged)>,
}

/// By which fabric a session reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    SharedMemory,
    Tcp,
}

/// A running server, reached both ways.
pub(crate) struct FarsightServer {
    process: Process,
    tcp: SocketAddr,
    settings: FarsightSettings,
    directory: TempDir,
}

impl FarsightServer {
    /// Starts it and waits until it answers.
    pub(crate) fn start(settings: FarsightSettings) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("farsight-compare-").tempdir()?;
        let tcp = process::free_address()?;
        let process = spawn(&settings, &directory, tcp)?;
        let mut server = Self { process, tcp, settings, directory };
        server.await_ready()?;
        Ok(server)
    }

    fn await_ready(&mut self) -> Result<()> {
        let urls = [self.url(Way::SharedMemory), self.url(Way::Tcp)];
        self.process.await_answer("Farsight", || urls.iter().try_for_each(|url| connect(url).map(drop)))
    }

    /// Kills it, as a crash would, and starts it again on what it has kept.
    fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = spawn(&self.settings, &self.directory, self.tcp)?;
        self.await_ready()
    }

    fn url(&self, way: Way) -> ServerUrl {
        match way {
            Way::SharedMemory => ServerUrl::shm(self.directory.path().join("server.sock")),
            Way::Tcp => format!("tcp://{}", self.tcp).parse().expect("an address with a port"),
        }
    }

    /// Makes the table and loads `keys`, ascending, each with its first value.
    pub(crate) fn load(&self, values: ValueKind, value_bytes: usize, keys: &[u64]) -> Result<()> {
        let client = connect(&self.url(Way::SharedMemory))?;
        let table = client.create_table_of::<u64>(TABLE, values, &TableOptions::default())?;
        let mut load = table.bulk_load()?;
        for key in keys {
            load.push(*key, &first_pair(*key, value_bytes).1)?;
        }
        load.finish()?;
        let begun = Instant::now();
        loop {
            let pending = client.pending_training()?;
            let tables = client.stats()?.tables;
            let generation =
                tables.iter().find_map(|table| table.part).map_or(0, |part| part.model.generation);
            if pending == 0 && generation > 0 {
                return Ok(());
            }
            let elapsed = begun.elapsed();
            ensure!(
                elapsed < TRAINING_TIMEOUT,
                "the model is not trained after {elapsed:?}: generation {generation}, {pending} sub-models wait"
            );
            std::thread::sleep(TRAINING_WINDOW);
        }
    }
}

fn spawn(settings: &FarsightSettings, directory: &TempDir, tcp: SocketAddr) -> Result<Process> {
    let mut command = process::own(&["server", "--listen", &format!("tcp://{tcp}")])?;
    command.arg("--socket").arg(directory.path().join("server.sock"));
    command.args(settings.core.iter().flat_map(|core| ["--core".to_owned(), core.to_string()]));
    if let Some((data, acknowledged)) = &settings.data {
        command.arg("--data").arg(data).args(["--ack", acknowledged.name()]);
    }
    Process::start(command, directory.path().join(LOG))
}

fn connect(url: &ServerUrl) -> Result<Client> {
    // A server that was started again is another one here.
    let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
    let client = Client::connect_with(Addresses::new(vec![url.clone()]), &options);
    client.with_context(|| format!("connecting to {url}"))
}

/// A session on a server's table.
pub(crate) struct FarsightPeer {
    /// `None` while the server is started again.
    session: Option<Session<u64>>,
    answers: Answers,
    outcomes: Vec<WriteOutcome>,
    way: Way,
    // Behind the session, whose calls it answers.
    server: Rc<RefCell<FarsightServer>>,
}

impl FarsightPeer {
    /// A session with the whole model in its cache.
    pub(crate) fn open(server: Rc<RefCell<FarsightServer>>, way: Way) -> Result<Self> {
        let session = Some(session(&server.borrow(), way)?);
        Ok(Self { session, answers: Answers::default(), outcomes: Vec::new(), way, server })
    }

    fn session(&mut self) -> Result<&mut Session<u64>> {
        self.session.as_mut().context("the server did not come back")
    }
}

fn session(server: &FarsightServer, way: Way) -> Result<Session<u64>> {
    let client = connect(&server.url(way))?;
    let mut session = client.table(TABLE)?.session(Options::default())?;
    session.prefill()?;
    let _ = client.collapse_to_huge_pages();
    Ok(session)
}

impl Peer for FarsightPeer {
    fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        if let [(key, value)] = pairs {
            let outcome = self.session()?.put(*key, value)?;
            ensure!(!matches!(outcome, WriteOutcome::Failed(_)), "a put failed: {outcome:?}");
            return Ok(());
        }
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let put = self.session()?.put_many(pairs, &mut outcomes);
        self.outcomes = outcomes;
        put?;
        let failed = self.outcomes.iter().find(|outcome| matches!(outcome, WriteOutcome::Failed(_)));
        ensure!(failed.is_none() && self.outcomes.len() == pairs.len(), "a put failed: {failed:?}");
        Ok(())
    }

    fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()> {
        let mut answers = std::mem::take(&mut self.answers);
        let got = self.session()?.multi_get(keys, &mut answers);
        self.answers = answers;
        got?;
        for index in 0..keys.len() {
            see(index, self.answers.get(index).map(|(value, _)| value));
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.session = None;
        self.server.borrow_mut().restart()?;
        self.session = Some(session(&self.server.borrow(), self.way)?);
        Ok(())
    }

    fn server_process_id(&self) -> Option<u32> {
        Some(self.server.borrow().process.id())
    }
}
