//! `farsight tables`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{TableInfo, TableStats};

use crate::connection::Connection;
use crate::listing::{listing, value_text};
use crate::output::output;
use crate::size;

/// List the tables of the server, or of the pool
#[derive(Debug, Args)]
pub(crate) struct Tables {
    #[command(flatten)]
    connection: Connection,
    /// Print a JSON array of the tables' descriptions
    #[arg(long)]
    json: bool,
}

impl Tables {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let tables = client.tables()?;
        let mut out = output();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &tables)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let nodes = client.node_stats()?;
        let mut listing =
            listing(["table", "keys", "value", "engine", "pairs", "memory used", "memory at most"]);
        for TableInfo { definition, engine, .. } in tables {
            let is_part = |part: &&TableStats| part.info.definition.name == definition.name;
            let parts: Vec<_> = nodes.iter().flat_map(|node| node.tables.iter().filter(is_part)).collect();
            let bytes = |of: fn(&TableStats) -> u64| size::text(parts.iter().map(|part| of(part)).sum());
            // Nobody counts a ROLEX table's pairs: its nodes do not see them come.
            let pairs = parts.iter().map(|part| part.part.map(|part| part.tree.pairs)).sum::<Option<u64>>();
            listing.add_row([
                definition.name.clone(),
                definition.key_kind.to_string(),
                value_text(&definition),
                engine.to_string(),
                pairs.map_or_else(String::new, |pairs| pairs.to_string()),
                bytes(TableStats::used_bytes),
                bytes(TableStats::length_bytes),
            ]);
        }
        writeln!(out, "{listing}")?;
        Ok(ExitCode::SUCCESS)
    }
}
