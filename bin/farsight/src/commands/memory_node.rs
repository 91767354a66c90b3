//! `farsight memory-node`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farsight::{Addresses, PoolTraining, report};

use super::serve::{Settings, await_refusals, counted, hear_signals, print_ready};
use crate::duration;
use crate::trusted_servers::TrustedServers;

/// Run a memory node of a pool until SIGINT, SIGTERM or a hangup
///
/// A memory node gives its memory to compute nodes, which read and write it one-sided; its processor does
/// next to nothing. Prints one line, "ready url=URL pid=PID", when they can connect. Clients name all memory
/// nodes of a pool with commas between, always in the same order; the first is home. One that meets a bug of
/// its own says so and ends with exit code 1.
/// Its part of every table ends with it, as it says on stderr, and the pool with that.
///
/// A compute node that holds a lock for longer than the lease, while others wait for it, is fenced. Over
/// networks that ends its connections, which it makes anew. Over shared memory it is told to end them. If it
/// does not within a second, because it is stopped, its process is killed, and the report on standard error
/// names it. Processes that serve memory themselves are never killed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  export FARSIGHT_URL=tcp://10.0.0.1:7474,tcp://10.0.0.2:7474
  farsight memory-node --listen tcp://10.0.0.1:7474 --memory 16G --allow-plaintext \\
      --train $FARSIGHT_URL
  farsight memory-node --listen tcp://10.0.0.2:7474 --memory 16G --allow-plaintext
  farsight create prices --allow-plaintext
  farsight put prices 100 '8 bytes.' --allow-plaintext")]
pub(crate) struct MemoryNode {
    #[command(flatten)]
    settings: Settings,
    /// Train the tables of a pool: the addresses of all its memory nodes, as clients name them. One of a
    /// pool's nodes should; several may
    #[arg(long, value_name = "URL[,URL...]")]
    train: Option<Addresses>,
    #[command(flatten)]
    trusted: TrustedServers,
    /// How long a compute node may hold a lock that others wait for, before it is fenced: 10ms to 60s
    /// [default: 5s with shared memory, else 500ms]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<Duration>,
}

impl MemoryNode {
    /// A memory node with these settings that trains the tables of a pool, if one is given.
    pub(crate) fn new(settings: Settings, train: Option<Addresses>) -> Self {
        Self { settings, train, trusted: TrustedServers::default(), lease: None }
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        self.serve(|| Ok(()))
    }

    /// Serves; calls `guarded` once signals are heard, before it begins.
    pub(crate) fn serve(self, guarded: impl FnOnce() -> Result<()>) -> Result<ExitCode> {
        let mut signals = hear_signals()?;
        guarded()?;
        let mut connect = self.settings.connect_options()?;
        connect.server_uids = self.trusted.uids;
        let mut builder = self.settings.builder()?;
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        let node = builder.start_memory_node()?;
        let training = self.train.map(|pool| PoolTraining::start(pool, connect)).transpose()?;
        let waiting = signals.handle();
        node.on_failure(move || waiting.close());
        report("each table of its pool ends when this process does: a part of it lives in its memory");
        print_ready(node.urls())?;
        signals.forever().next();
        let tables = counted(node.stats().tables.len() as u64, "table");
        report(format_args!("its part of {tables} ends with this process, and with that the pool"));
        let failure = node.failure().map(await_refusals);
        drop(training);
        node.shutdown()?;
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}
