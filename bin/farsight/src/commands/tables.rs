//! `farsight tables`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{MemoryNodeStats, PoolTableStats, SpaceStats, TableInfo};

use crate::connection::Connection;
use crate::listing::{listing, value_text};
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
        if let Some(nodes) = client.memory_node_stats()? {
            return self.print_of_pool(&client.tables()?, &nodes);
        }
        let stats = client.stats()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let tables: Vec<_> = stats.tables.iter().map(|table| &table.info).collect();
            serde_json::to_writer_pretty(&mut out, &tables)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut listing = listing(["table", "keys", "value", "pairs", "memory used", "memory at most"]);
        for table in &stats.tables {
            let definition = &table.info.definition;
            listing.add_row([
                definition.name.clone(),
                definition.key_kind.to_string(),
                value_text(definition),
                table.tree.pairs.to_string(),
                size::text(table.region.used_bytes),
                size::text(table.region.length_bytes),
            ]);
        }
        writeln!(out, "{listing}")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Nobody counts a ROLEX table's pairs: its memory nodes do not see them come.
    fn print_of_pool(&self, tables: &[TableInfo], nodes: &[MemoryNodeStats]) -> Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, tables)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut listing = listing(["table", "keys", "value", "engine", "memory used", "memory at most"]);
        for TableInfo { definition, .. } in tables {
            let is_part = |part: &&PoolTableStats| part.info.definition.table.name == definition.name;
            let parts: Vec<_> = nodes.iter().flat_map(|node| node.tables.iter().filter(is_part)).collect();
            let sum = |blocks: fn(&SpaceStats) -> u64| {
                let bytes = |space: &SpaceStats| blocks(space) * space.block_bytes;
                size::text(parts.iter().map(|part| bytes(&part.leaves) + bytes(&part.meta)).sum())
            };
            listing.add_row([
                definition.name.clone(),
                definition.key_kind.to_string(),
                value_text(definition),
                parts.first().map_or_else(String::new, |part| part.info.definition.engine.to_string()),
                sum(|space| space.used),
                sum(|space| space.capacity),
            ]);
        }
        writeln!(out, "{listing}")?;
        Ok(ExitCode::SUCCESS)
    }
}
