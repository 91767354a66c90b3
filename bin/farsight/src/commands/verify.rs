//! `farsight verify`.

mod directory;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::connection::Connection;

/// Check a directory of data while no server uses it, or what a running server has in memory
///
/// Of a directory it reads all that a server would read: catalogue, snapshots and log. Damage is named by
/// file and byte, and nothing is changed. Of a server it reads every pair of every table as the server finds
/// them: leaves are repaired on the way, blocks are compared with their checksums. The exit code is 1 if a
/// table cannot be read to its end: the last line says why, and which key if a pair is damaged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight verify /var/lib/farsight
  farsight verify --connect shm:///run/farsight/main.sock
  farsight verify --json | jq '.tables[] | select(.failure)'")]
pub(crate) struct Verify {
    /// The directory that `farsight serve --data` was given; without it a running server
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Verify {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match &self.directory {
            Some(path) => directory::verify(path, self.json),
            None => server::verify(&self.connection.open()?, self.json),
        }
    }
}
