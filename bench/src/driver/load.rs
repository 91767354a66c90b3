//! A loaded table, ready to be measured: its model trained, its server at rest, the client's cache full.

use std::time::{Duration, Instant};

use farsight::{Access, Addresses, Client, ConnectOptions, MemoryNodeStats, Options, Table, TableStats};
use indicatif::{ProgressBar, ProgressStyle};

use super::server_process::ServerProcess;
use super::{Cancellation, DriverError, ServerSource, checked_value};
use crate::machine::process_cpu_time;

/// Pairs between two steps of the progress bar.
const BAR_STEP_PAIRS: usize = 8192;
/// The most that training and collapsing pages may take after a load.
const REST_TIMEOUT: Duration = Duration::from_secs(300);
/// A server that uses at most [`REST_CPU_MAX`] in this time is at rest.
const REST_WINDOW: Duration = Duration::from_millis(60);
/// One tick of the kernel's accounting: answering the question costs as much.
const REST_CPU_MAX: Duration = Duration::from_millis(10);

/// What a load took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// Pairs loaded.
    pub pairs: u64,
    /// Time of the bulk load, in s.
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
}

/// A loaded table with its client, and its server if that was started for it.
pub struct Load {
    /// A client of the server.
    pub client: Client,
    /// The table.
    pub table: Table<u64>,
    /// How sessions on it are opened.
    pub options: Options,
    /// The server's process.
    pub server_process_id: u32,
    /// That process, if only this driver keeps it busy.
    own_process_id: Option<u32>,
    report: LoadReport,
    // Behind the table, whose calls it answers.
    _server: Option<ServerProcess>,
}

impl Load {
    /// Loads `keys`, each with its first value of `value_bytes`, for clients of `access`. `number` tells the
    /// loads of one driver apart.
    ///
    /// # Errors
    /// [`DriverError`]; a server that was started has ended then.
    pub fn new(
        source: &ServerSource,
        (value_bytes, access): (usize, Access),
        keys: &[u64],
        number: usize,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let (server, url, name) = match source {
            ServerSource::Start(command) => {
                let server = ServerProcess::start(command)?;
                let url = Addresses::from(server.url());
                (Some(server), url, "ycsb".to_owned())
            }
            ServerSource::Connect(url) => {
                (None, url.clone(), format!("ycsb-{}-{number}", std::process::id()))
            }
        };
        // Nothing that was measured before would belong to a server that was started again.
        let client = Client::connect_with(
            &url,
            &ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() },
        )?;
        let table = client.create_table::<u64>(&name, value_bytes)?;
        let begun = Instant::now();
        fill(&table, keys, cancellation)?;
        let load_s = begun.elapsed().as_secs_f64();

        let rested = match client.memory_node_stats()? {
            Some(nodes) => Rested::of_pool(&nodes, &name),
            // Only of its own server the driver knows that nobody else keeps it busy.
            None => Rested::wait(&client, &name, server.is_some(), cancellation)?,
        };
        let options = Options { access };
        let begun = Instant::now();
        if access == Access::OneSided {
            table.session(options)?.prefill()?;
        }
        let cache_fill_s = begun.elapsed().as_secs_f64();
        let cache = table.cache_stats();
        let report = LoadReport {
            pairs: keys.len() as u64,
            load_s,
            training_s: rested.training_s,
            cache_fill_s,
            cache_bytes: cache.model_bytes + cache.table_bytes,
            table_bytes: rested.table_bytes,
            huge_page_bytes: client.collapse_to_huge_pages(),
        };
        let server_process_id = rested.process_id;
        let own_process_id = server.is_some().then_some(server_process_id);
        Ok(Self { client, table, options, server_process_id, own_process_id, report, _server: server })
    }

    /// Another table of the same server, with the same `keys`, at rest.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn another(&self, keys: &[u64], cancellation: &Cancellation) -> Result<Table<u64>, DriverError> {
        let name = format!("{}-beside", self.table.name());
        let table = self.client.create_table::<u64>(&name, self.table.value_bytes())?;
        fill(&table, keys, cancellation)?;
        self.rest(&table, cancellation)?;
        Ok(table)
    }

    /// Waits until the model of `table` is trained.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn rest(&self, table: &Table<u64>, cancellation: &Cancellation) -> Result<(), DriverError> {
        rest(&self.client, table.name(), self.own_process_id, cancellation).map(drop)
    }

    /// What the load took.
    #[must_use]
    pub fn report(&self) -> LoadReport {
        self.report
    }
}

/// What is known of whoever has the table, at rest.
struct Rested {
    /// Of a pool, home's.
    process_id: u32,
    training_s: f64,
    table_bytes: u64,
}

impl Rested {
    /// A pool's load has trained its models itself.
    fn of_pool(nodes: &[MemoryNodeStats], name: &str) -> Self {
        let parts = nodes.iter().flat_map(|node| &node.tables);
        let of_table = parts.filter(|part| part.info.definition.table.name == name);
        let table_bytes = of_table.map(|part| part.leaves.used * part.leaves.block_bytes).sum();
        Self { process_id: nodes[0].process_id, training_s: 0.0, table_bytes }
    }

    fn wait(
        client: &Client,
        name: &str,
        is_own: bool,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let process_id = client.stats()?.process_id;
        let stats = rest(client, name, is_own.then_some(process_id), cancellation)?;
        Ok(Self { process_id, training_s: stats.model.training_s, table_bytes: stats.region.used_bytes })
    }
}

fn fill(table: &Table<u64>, keys: &[u64], cancellation: &Cancellation) -> Result<(), DriverError> {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} pairs, {per_sec}, {eta} left");
    let bar = ProgressBar::new(keys.len() as u64).with_style(style.expect("a well-formed template"));
    let mut load = table.bulk_load()?;
    let mut value = vec![0; table.value_bytes()];
    for (index, &key) in keys.iter().enumerate() {
        checked_value::write(key, 0, &mut value);
        load.push(key, &value)?;
        if index % BAR_STEP_PAIRS == 0 {
            cancellation.check()?;
            bar.set_position(index as u64);
        }
    }
    load.finish()?;
    bar.finish_and_clear();
    Ok(())
}

/// Waits until the table's model is trained and, if the server's process is given, that uses no processor.
fn rest(
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
        let generation = table.as_ref().map_or(0, |table| table.model.generation);
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
