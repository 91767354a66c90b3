//! `farsight snapshot`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::connection::Connection;
use crate::output::output;

/// Make a snapshot of each table in the server's directory of data, now
///
/// A server makes them by itself as its log grows. Made before a restart, they make it short: recovery begins
/// with them. Writers and readers go on meanwhile.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    #[command(flatten)]
    connection: Connection,
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let begun = Instant::now();
        client.snapshot()?;
        let segments: u64 =
            client.node_stats()?.into_iter().filter_map(|node| node.data).map(|data| data.segments).sum();
        let took = begun.elapsed().as_secs_f64();
        writeln!(output(), "made in {took:.2} s; segments left of the log: {segments}")?;
        Ok(ExitCode::SUCCESS)
    }
}
