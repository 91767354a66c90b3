//! `farsight import`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{EngineKind, ImportOptions, import_tables};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::archive::archive;
use crate::commands::create::engine;
use crate::connection::Connection;
use crate::output::output;
use crate::size;

/// Make tables of a copy that `farsight export` made, in any server or pool
///
/// No table of such a name may be there. A table shows its pairs all at once, when all of them were checked
/// and are there. Until then it is called importing-TABLE, and an import that fails drops it. Pairs that end
/// do so at the instant at which they would have ended. Tables may get another engine, if that has such
/// tables. A limit of values that is above its own is lowered, if all values have room.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight import /backups/monday
  farsight import /backups/monday prices --as prices-of-monday
  farsight import /backups/monday --engine flexkv --replicas 3 \\
      --connect tcp://10.0.0.1:7474,tcp://10.0.0.2:7474,tcp://10.0.0.3:7474")]
pub(crate) struct Import {
    #[command(flatten)]
    connection: Connection,
    /// Where the copy is, as `farsight export` was told
    #[arg(value_name = "PLACE")]
    place: String,
    /// The tables [default: all of the copy]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// What the table is called then; of one table alone
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Who does what with them [default: as before; xstore in a pool is xstore-d, which at a server is
    /// xstore]
    #[arg(long, value_name = "NAME", value_parser = engine())]
    engine: Option<&'static EngineKind>,
    /// Memory for the leaves of each, and as much for its blocks, on each node [default: what
    /// `serve --memory` says]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// How many nodes have each pair [default: as many as had, where the engine has replicas]
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u8).range(1..))]
    replicas: Option<u8>,
}

impl Import {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let style = "{wide_bar} {msg}: {human_pos} of {human_len} pairs, {per_sec}, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is well-formed");
        let bar = ProgressBar::new(0).with_style(style);
        let options = ImportOptions {
            tables: self.tables,
            name: self.name,
            engine: self.engine,
            memory_bytes: self.memory,
            replicas: self.replicas,
        };
        let made = import_tables(&client, &*archive(&self.place)?, &options, &mut |table, pairs, all| {
            bar.set_message(table.to_owned());
            bar.set_length(all);
            bar.set_position(pairs);
        })?;
        bar.finish_and_clear();
        let mut out = output();
        for table in &made {
            writeln!(out, "table {}: {} pairs", table.name, HumanCount(table.pairs))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
