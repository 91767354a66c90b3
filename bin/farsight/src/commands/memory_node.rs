//! `farsight memory-node`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{Addresses, PoolTraining};

use super::serve::{Serve, hear_signals, print_ready};

/// Run a memory node of a pool until SIGINT or SIGTERM
///
/// A memory node gives its memory to compute nodes, which read and write it one-sided; its processor does
/// next to nothing. Prints one line, "ready url=URL pid=PID", when they can connect. Clients name all memory
/// nodes of a pool with commas between, always in the same order; the first is home.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight memory-node --listen tcp://10.0.0.1:7474 --memory 16G \\
      --train tcp://10.0.0.1:7474,tcp://10.0.0.2:7474
  farsight create prices --connect tcp://10.0.0.1:7474,tcp://10.0.0.2:7474
  farsight put prices 100 '8 bytes.' --connect tcp://10.0.0.1:7474,tcp://10.0.0.2:7474")]
pub(crate) struct MemoryNode {
    #[command(flatten)]
    settings: Serve,
    /// Train the tables of a pool: the addresses of all its memory nodes, as clients name them. One of a
    /// pool's nodes should; several may
    #[arg(long, value_name = "URL[,URL...]")]
    train: Option<Addresses>,
}

impl MemoryNode {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut signals = hear_signals()?;
        let connect = self.settings.connect_options()?;
        let node = self.settings.builder()?.start_memory_node()?;
        let training = self.train.map(|pool| PoolTraining::start(pool, connect)).transpose()?;
        print_ready(node.urls())?;
        signals.forever().next();
        drop(training);
        node.shutdown()?;
        Ok(ExitCode::SUCCESS)
    }
}
