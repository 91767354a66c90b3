//! A loaded table, ready to be measured: its model trained, its server idle, the client's cache full.

use std::time::{Duration, Instant};

use farsight::{
    Access, Addresses, Client, ConnectOptions, EngineKind, NodeStats, Options, ServerUrl, Table,
    TableOptions, TableStats, ValueCache, say, with_causes,
};
use farsight_oracles::{Embedding as _, Identity};

use super::server_process::{self, ServerProcess};
use super::store::PLAIN;
use super::{Age, Cancellation, DriverError, ServerSource, Values};
use crate::machine::process_cpu_time;

/// The most that training and collapsing pages may take after a load.
const REST_TIMEOUT: Duration = Duration::from_secs(300);
/// A server that uses at most [`REST_CPU_MAX`] in this time is idle.
const REST_WINDOW: Duration = Duration::from_millis(60);
/// Keys of the sample by which a table's ranges are cut.
const SAMPLE_KEYS: usize = 1 << 16;
/// One tick of the kernel's accounting: answering the question costs as much.
const REST_CPU_MAX: Duration = Duration::from_millis(10);

/// What to load.
#[derive(Debug, Clone, Copy)]
pub struct Loading {
    /// What the table's values are.
    pub values: Values,
    /// Whose clients it is for.
    pub access: Access,
    /// How the table comes to hold its keys.
    pub age: Age,
    /// What the client's cache may take of memory, if not as much as it needs.
    pub cache_bytes: Option<u64>,
    /// Bytes of values that the client may keep, if any.
    pub value_cache_bytes: Option<u64>,
}

/// What a load took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// Pairs loaded.
    pub pairs: u64,
    /// How the table came to hold them.
    pub age: Age,
    /// Time of that, in s.
    pub load_s: f64,
    /// Processor time of training the whole model, in s.
    pub training_s: f64,
    /// Time until the client's cache held the whole model, in s.
    pub cache_fill_s: f64,
    /// Bytes of the client's cache.
    pub cache_bytes: u64,
    /// Bytes of the table's leaves.
    pub table_bytes: u64,
    /// Bytes of those that the client has mapped with huge pages.
    pub huge_page_bytes: u64,
    /// Whose table it is.
    pub engine: &'static EngineKind,
    /// Memory nodes that have it; of a server none.
    pub memory_nodes: usize,
}

/// A loaded table with its client, and its server if that was started for it.
pub struct Load {
    /// A client of the server.
    pub client: Client,
    /// The table.
    pub table: Table<u64>,
    /// What its values are.
    pub values: Values,
    /// How sessions on it are opened.
    pub options: Options,
    /// The processes that have the table: the server, or the memory nodes.
    pub server_process_ids: Vec<u32>,
    /// True if they are this host's.
    is_here: bool,
    report: LoadReport,
    /// Of a server that goes on.
    _made: Option<Made>,
    // Behind the table, whose calls they answer.
    servers: Vec<ServerProcess>,
}

/// A table that was made on a server that goes on, with those named after it; dropped with this.
struct Made {
    client: Client,
    name: String,
}

impl Drop for Made {
    fn drop(&mut self) {
        let Self { client, name } = self;
        let beside = format!("{name}-");
        let dropped = client.tables().and_then(|tables| {
            let mut names = tables.into_iter().map(|table| table.definition.name);
            names
                .by_ref()
                .filter(|other| other == name || other.starts_with(&beside))
                .try_for_each(|name| client.drop_table(&name))
        });
        if let Err(error) = dropped {
            say(format_args!("table {name:?} stays at {}: {}", client.peer(), with_causes(&error)));
        }
    }
}

impl Load {
    /// Loads `keys`, each with its first value. `number` tells the loads of one driver apart.
    ///
    /// # Errors
    /// [`DriverError`]; a server that was started has ended then.
    pub fn new(
        source: &ServerSource,
        Loading { values, access, age, cache_bytes, value_cache_bytes }: Loading,
        keys: &[Identity],
        number: usize,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let servers = match source {
            ServerSource::Start(command) => vec![ServerProcess::start(command, None)?],
            ServerSource::StartPool(_, command, nodes) => server_process::start_pool(command, *nodes)?,
            ServerSource::Connect(..) => Vec::new(),
        };
        let (url, options, name) = if let ServerSource::Connect(_, url, options) = source {
            (url.clone(), options.clone(), format!("{}-{number}", table_names()))
        } else {
            let urls = servers.iter().map(|server| server.url().clone()).collect();
            (Addresses::new(urls), ConnectOptions::default(), "ycsb".to_owned())
        };
        // Nothing that was measured before would belong to a server that was started again.
        let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..options };
        let client = Client::connect_with(&url, &options)?;
        let options = table_options(source, keys);
        let table = client.create_table_of::<u64>(&name, values.kind(), &options)?;
        let engine = table.engine();
        if access == Access::Rpc && !engine.answers_reads {
            return Err(DriverError::NobodySearches { peer: client.peer().to_owned() });
        }
        let is_foreign = matches!(source, ServerSource::Connect(..));
        let made = is_foreign.then(|| Made { client: client.clone(), name: name.clone() });
        let options = Options { access };
        let begun = Instant::now();
        age.fill((&table, values), options, keys, cancellation)?;
        let load_s = begun.elapsed().as_secs_f64();

        let rested = if engine.is_alone() {
            // Only of its own server the driver knows that nobody else keeps it busy.
            Rested::wait(&client, &name, !servers.is_empty(), cancellation)?
        } else {
            Rested::of_pool(&client, &name, cancellation)?
        };
        if let Some(cache_bytes) = cache_bytes
            && !table.set_cache_bytes(cache_bytes)?
        {
            return Err(DriverError::NoBudget { engine });
        }
        if let Some(bytes) = value_cache_bytes
            && !table.set_value_cache(ValueCache::of_bytes(bytes))?
        {
            return Err(DriverError::NoValuesKept { engine });
        }
        let begun = Instant::now();
        if access == Access::OneSided {
            table.session(options)?.prefill()?;
        }
        let cache_fill_s = begun.elapsed().as_secs_f64();
        let cache = table.cache_stats();
        let report = LoadReport {
            pairs: keys.len() as u64,
            age,
            load_s,
            training_s: rested.training_s,
            cache_fill_s,
            cache_bytes: cache.model_bytes + cache.table_bytes,
            table_bytes: rested.table_bytes,
            // What the table has not used yet may be on some, too.
            huge_page_bytes: client
                .collapse_to_huge_pages()
                .min(rested.table_bytes.next_multiple_of(2 << 20)),
            engine,
            memory_nodes: if engine.is_alone() { 0 } else { rested.process_ids.len() },
        };
        let server_process_ids = rested.process_ids;
        let is_here = !servers.is_empty() || url.urls().iter().all(|url| matches!(url, ServerUrl::Shm(_)));
        Ok(Self { client, table, values, options, server_process_ids, is_here, report, _made: made, servers })
    }

    /// Processor time so far of the processes that have the table, as this host's kernel counts it. Those
    /// that may be elsewhere say it themselves, which costs a call.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn server_cpu_time(&self) -> Result<Duration, DriverError> {
        if self.is_here {
            let times = self.server_process_ids.iter().map(|process_id| process_cpu_time(*process_id));
            return Ok(times.sum::<Result<Duration, _>>()?);
        }
        Ok(Duration::from_secs_f64(self.client.node_stats()?.iter().map(|node| node.cpu_s).sum()))
    }

    /// Another table of the same server, with the same `keys`, when the server is idle.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn another(&self, keys: &[Identity], cancellation: &Cancellation) -> Result<Table<u64>, DriverError> {
        let name = format!("{}-beside", self.table.name());
        let table =
            self.client.create_table_of::<u64>(&name, self.values.kind(), &TableOptions::default())?;
        Age::Fresh.fill((&table, self.values), self.options, keys, cancellation)?;
        self.rest(&table, cancellation)?;
        Ok(table)
    }

    /// Waits until the model of `table`, of a server, is trained.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn rest(&self, table: &Table<u64>, cancellation: &Cancellation) -> Result<(), DriverError> {
        // Only its own server nobody else keeps busy.
        let own_process_id = self.servers.first().map(|_| self.server_process_ids[0]);
        rest(&self.client, table.name(), own_process_id, cancellation).map(drop)
    }

    /// What the load took.
    #[must_use]
    pub fn report(&self) -> LoadReport {
        self.report
    }
}

/// What is known of the processes that have the table, once they are idle.
struct Rested {
    process_ids: Vec<u32>,
    training_s: f64,
    table_bytes: u64,
}

impl Rested {
    /// A ROLEX load has trained its models itself; those of XStore-D are waited for.
    fn of_pool(client: &Client, name: &str, cancellation: &Cancellation) -> Result<Self, DriverError> {
        let begun = Instant::now();
        loop {
            cancellation.check()?;
            let pending = client.pending_training()?;
            let nodes = client.node_stats()?;
            let tables = nodes.iter().flat_map(|node| &node.tables);
            let of_table: Vec<&TableStats> =
                tables.filter(|table| table.info.definition.name == name).collect();
            let untrained =
                of_table.iter().filter_map(|table| table.part).filter(|part| part.model.generation == 0);
            let untrained = untrained.count();
            if pending == 0 && untrained == 0 {
                return Ok(Self::of_nodes(&nodes, &of_table));
            }
            if begun.elapsed() > REST_TIMEOUT {
                let evidence = format!("{untrained} parts have no model, {pending} sub-models wait");
                return Err(DriverError::Restless { seconds: REST_TIMEOUT.as_secs(), evidence });
            }
            std::thread::sleep(REST_WINDOW);
        }
    }

    fn of_nodes(nodes: &[NodeStats], of_table: &[&TableStats]) -> Self {
        let parts = || of_table.iter().filter_map(|table| table.part);
        Self {
            process_ids: nodes.iter().map(|node| node.process_id).collect(),
            training_s: parts().map(|part| part.model.training_s).fold(0.0, |sum, part| sum + part),
            table_bytes: of_table.iter().map(|table| table.used_bytes()).sum(),
        }
    }

    fn wait(
        client: &Client,
        name: &str,
        is_own: bool,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let process_id = client.stats()?.process_id;
        let stats = rest(client, name, is_own.then_some(process_id), cancellation)?;
        Ok(Self {
            process_ids: vec![process_id],
            training_s: stats.part().model.training_s,
            table_bytes: stats.used_bytes(),
        })
    }
}

/// What the names of this process's tables on servers that ran before begin with.
#[must_use]
pub fn table_names() -> String {
    format!("farsight-bench-{}", std::process::id())
}

/// What is said of the new table: its engine, if the source is for one, and of XStore-D a sample of its keys.
fn table_options(source: &ServerSource, keys: &[Identity]) -> TableOptions<u64> {
    let (ServerSource::StartPool(engine, ..) | ServerSource::Connect(Some(engine), ..)) = source else {
        return TableOptions::default();
    };
    let step = keys.len().div_ceil(SAMPLE_KEYS).max(1);
    TableOptions {
        engine: Some(*engine),
        sample: keys.iter().step_by(step).map(|key| PLAIN.key(*key)).collect(),
        ..TableOptions::default()
    }
}

/// Waits until the table's model is trained and, if the server's process is given, that uses no processor.
pub(super) fn rest(
    client: &Client,
    name: &str,
    process_id: Option<u32>,
    cancellation: &Cancellation,
) -> Result<TableStats, DriverError> {
    let begun = Instant::now();
    loop {
        cancellation.check()?;
        let before = process_id.map(process_cpu_time).transpose()?;
        std::thread::sleep(REST_WINDOW);
        let after = process_id.map(process_cpu_time).transpose()?;
        let used = after.unwrap_or_default().saturating_sub(before.unwrap_or_default());
        let pending = client.pending_training()?;
        let stats = client.stats()?;
        let table = stats.tables.into_iter().find(|table| table.info.definition.name == name);
        let generation = table.as_ref().and_then(|table| table.part).map_or(0, |part| part.model.generation);
        if let Some(table) = table.filter(|_| generation > 0 && pending == 0 && used <= REST_CPU_MAX) {
            return Ok(table);
        }
        if begun.elapsed() > REST_TIMEOUT {
            let evidence = format!(
                "its model has generation {generation}, {pending} sub-models wait, it used {used:?} in {REST_WINDOW:?}"
            );
            return Err(DriverError::Restless { seconds: REST_TIMEOUT.as_secs(), evidence });
        }
    }
}
