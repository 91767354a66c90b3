//! `farsight tables`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::TableInfo;

use crate::connection::Connection;
use crate::listing::listing;
use crate::size;

/// List the server's tables
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
        if client.memory_node_stats()?.is_some() {
            return self.print_of_pool(&client.tables()?);
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
                format!("{} B", definition.value_bytes),
                table.tree.pairs.to_string(),
                size::text(table.region.used_bytes),
                size::text(table.region.length_bytes),
            ]);
        }
        writeln!(out, "{listing}")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Nobody counts a pool's pairs: its memory nodes do not see them come.
    fn print_of_pool(&self, tables: &[TableInfo]) -> Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, tables)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut listing = listing(["table", "keys", "value"]);
        for TableInfo { definition, .. } in tables {
            listing.add_row([
                definition.name.clone(),
                definition.key_kind.to_string(),
                format!("{} B", definition.value_bytes),
            ]);
        }
        writeln!(out, "{listing}")?;
        Ok(ExitCode::SUCCESS)
    }
}
