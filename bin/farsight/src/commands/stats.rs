//! `farsight stats`.

mod memory_nodes;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::{ServerStats, TableStats};
use indicatif::HumanCount;

use crate::connection::Connection;
use crate::listing::{listing, value_text};
use crate::size;

/// Show what the server, or a pool's memory nodes, and their tables are doing
///
/// Tree, model error, the cache that a client of the whole table holds, memory, huge pages, and how far
/// training lags behind writes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight stats
  farsight stats prices
  farsight stats --json | jq '.tables[0].model'")]
pub(crate) struct Stats {
    #[command(flatten)]
    connection: Connection,
    /// Only this table
    table: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        if let Some(nodes) = client.memory_node_stats()? {
            let urls = self.connection.url()?;
            return memory_nodes::print(urls.urls(), nodes, self.table.as_deref(), self.json);
        }
        let mut stats = client.stats()?;
        if let Some(name) = &self.table {
            let names: Vec<_> = stats.tables.iter().map(|table| table.info.definition.name.clone()).collect();
            stats.tables.retain(|table| table.info.definition.name == *name);
            ensure!(
                !stats.tables.is_empty(),
                "the server has no table {name:?}; it has {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            );
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &stats)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(out, "{}", server_text(&stats))?;
        for table in &stats.tables {
            writeln!(out, "{}", table_text(table))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn server_text(stats: &ServerStats) -> comfy_table::Table {
    facts(
        &format!("farsight {}", stats.version),
        [
            ("process", stats.process_id.to_string()),
            ("up", duration(stats.uptime_s)),
            ("processor time", duration(stats.cpu_s)),
            ("clients", clients_text(stats)),
            ("calls", HumanCount(stats.calls).to_string()),
            ("operations in calls", HumanCount(stats.operations).to_string()),
        ],
    )
}

/// How many there are, and at which address where there are several.
fn clients_text(stats: &ServerStats) -> String {
    let [_, _, ..] = stats.listeners[..] else { return stats.clients.to_string() };
    let at = stats.listeners.iter().map(|listener| format!("{} at {}", listener.clients, listener.address));
    at.collect::<Vec<_>>().join("\n")
}

fn table_text(table: &TableStats) -> comfy_table::Table {
    let (tree, model, region) = (&table.tree, &table.model, &table.region);
    let definition = &table.info.definition;
    let count = |number| HumanCount(number).to_string();
    facts(
        &format!(
            "table {} ({} keys, {} values)",
            definition.name,
            definition.key_kind,
            value_text(definition)
        ),
        [
            ("pairs", count(tree.pairs)),
            ("leaves", format!("{}, {:.1} pairs each", count(tree.leaves), ratio(tree.pairs, tree.leaves))),
            ("inner nodes", format!("{} on {} levels", count(tree.inner_nodes), tree.inner_levels)),
            ("splits, compactions", format!("{}, {}", count(tree.splits), count(tree.compactions))),
            ("leaves mended", count(tree.mended)),
            (
                "writes by hint",
                format!("{} of {}", count(tree.hint_hits), count(tree.hint_hits + tree.descents)),
            ),
            ("model", format!("{} sub-models, generation {}", count(model.sub_models), model.generation)),
            (
                "leaves predicted",
                format!("{:.2} mean, {} most", model.window_leaves_mean, model.window_leaves_max),
            ),
            ("training", training_text(table)),
            (
                "client cache",
                format!(
                    "{} ({:.2} B a pair), top model {}",
                    size::text(model.cache_bytes),
                    ratio(model.cache_bytes, tree.pairs),
                    size::text(model.top_bytes)
                ),
            ),
            ("memory", format!("{} of {}", size::text(region.used_bytes), size::text(region.length_bytes))),
            (
                "on huge pages",
                format!(
                    "{} ({:.0} %)",
                    size::text(region.huge_page_bytes),
                    100.0 * ratio(region.huge_page_bytes, region.used_bytes).min(1.0)
                ),
            ),
        ],
    )
}

fn training_text(table: &TableStats) -> String {
    let model = &table.model;
    let lag = match model.pending {
        0 => "no lag".to_owned(),
        pending => format!("{pending} sub-models wait, the oldest {:?}", Duration::from_nanos(model.lag_ns)),
    };
    format!("{lag}; {} retrained, {}", model.retrained, duration(model.training_s))
}

fn facts<const ROWS: usize>(title: &str, rows: [(&str, String); ROWS]) -> comfy_table::Table {
    let mut listing = listing([title, ""]);
    for (what, text) in rows {
        listing.add_row([what, &text]);
    }
    listing
}

fn duration(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}
