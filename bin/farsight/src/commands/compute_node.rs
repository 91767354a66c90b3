//! `farsight compute-node`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, value_parser};
use farsight::{Addresses, ComputeNode, ComputeNodeOptions, report};

use super::serve::{Listening, await_refusals, hear_signals, print_ready};
use crate::trusted_servers::TrustedServers;

/// Write for others in a pool's FlexKV tables, until SIGINT, SIGTERM or a hangup
///
/// Clients of FlexKV write keys by themselves, one-sided. Where many of them replace the values of the same
/// few keys, their writes get into each other's way. This process takes partitions of each table, by a hash
/// of the keys, for as long as it runs. Clients send it their puts and updates of keys there, instead of
/// writing them: it writes the newest value of a key once for all that came together. Inserts, removals and
/// conditional writes stay the clients' own, and so do reads.
///
/// Clients find it by themselves, within half a second, and go on one-sided when it ends. It keeps no data:
/// it may be stopped or killed at any time. A put that it was executing then may have happened or not; the
/// client says so, as when a memory node is lost.
///
/// It pays where writers collide on hot keys. A client that knows where a key lies, and has it to itself, is
/// faster without.
///
/// Prints one line, "ready url=URL pid=PID", when it writes for others. `farsight stats` shows for how many
/// partitions, and how many writes it has executed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight compute-node --pool shm:///run/farsight.sock --socket /run/compute-node.sock
  farsight compute-node --pool tcp://10.0.0.1:7474,tcp://10.0.0.2:7474 \\
    --listen tcp://10.0.0.3:7475 --allow-plaintext

Several of them share the partitions of each table, by how much is written in each:
  farsight compute-node --pool $FARSIGHT_URL --listen tcp://10.0.0.3:7475 --allow-plaintext
  farsight compute-node --pool $FARSIGHT_URL --listen tcp://10.0.0.4:7475 --allow-plaintext")]
pub(crate) struct Serving {
    /// The pool's memory nodes, as clients name them, or the pool's name in an etcd
    #[arg(long, value_name = "URL[,URL...]")]
    pool: Addresses,
    /// Of each table's 1024 partitions, for how many to write at most
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// Of the partitions that are served, the part for which clients send writes, the most written first. By
    /// default the pool tries what makes writes cheapest, a tenth at a time
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u8).range(0..=100))]
    offload: Option<u8>,
    #[command(flatten)]
    listening: Listening,
    #[command(flatten)]
    trusted: TrustedServers,
}

impl Serving {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut signals = hear_signals()?;
        let mut connect = self.listening.connect_options()?;
        connect.server_uids.clone_from(&self.trusted.uids);
        let options = ComputeNodeOptions { connect, partitions: self.partitions, percent: self.offload };
        let serving = ComputeNode::start(self.listening.builder()?, &self.pool, &options)?;
        let waiting = signals.handle();
        serving.on_failure(move || waiting.close());
        report(format_args!("writes for others in the FlexKV tables of {}", self.pool));
        print_ready(std::slice::from_ref(serving.url()))?;
        signals.forever().next();
        let failure = serving.failure().map(await_refusals);
        serving.shutdown()?;
        failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}
