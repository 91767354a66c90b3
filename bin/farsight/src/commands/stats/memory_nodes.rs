//! What the memory nodes of a pool say of themselves.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use farsight::{MemoryNodeStats, PoolTableStats, SpaceStats};

use super::{duration, facts};
use crate::listing::listing;
use crate::size;

/// Prints the statistics of all nodes, or their parts of one table.
pub(super) fn print(nodes: &[MemoryNodeStats], table: Option<&str>, json: bool) -> Result<ExitCode> {
    let mut nodes = nodes.to_vec();
    if let Some(name) = table {
        for node in &mut nodes {
            node.tables.retain(|table| name_of(table) == name);
        }
        ensure!(nodes.iter().any(|node| !node.tables.is_empty()), "the pool has no table {name:?}");
    }
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &nodes)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (index, node) in nodes.iter().enumerate() {
        writeln!(out, "{}", node_text(index, node))?;
    }
    let mut tables = listing([
        "table",
        "engine",
        "node",
        "leaves",
        "with a compute node",
        "orphaned",
        "models",
        "huge pages",
    ]);
    for (index, node) in nodes.iter().enumerate() {
        for table in &node.tables {
            tables.add_row([
                name_of(table).to_owned(),
                table.info.definition.engine.to_string(),
                index.to_string(),
                used_text(&table.leaves),
                table.leaves.owned.to_string(),
                table.leaves.orphaned.to_string(),
                models_text(index, table),
                size::text(table.huge_page_bytes),
            ]);
        }
    }
    writeln!(out, "{tables}")?;
    Ok(ExitCode::SUCCESS)
}

fn node_text(index: usize, node: &MemoryNodeStats) -> comfy_table::Table {
    let addresses: Vec<&str> = node.listeners.iter().map(|listener| listener.address.as_str()).collect();
    let place = node.place.as_ref().map_or("no pool yet".to_owned(), |place| {
        format!("number {} of {}", place.index, place.epochs.len())
    });
    facts(
        &format!("memory node {index}, farsight {}", node.version),
        [
            ("address", addresses.join("\n")),
            ("place", place),
            ("process", node.process_id.to_string()),
            ("up", duration(node.uptime_s)),
            ("processor time", duration(node.cpu_s)),
            ("compute nodes", format!("{}, {} fenced", node.compute_nodes, node.fenced)),
            ("calls", node.calls.to_string()),
        ],
    )
}

/// What a ROLEX table's home keeps for compute nodes; what an XStore-D part's clients cache of it, and how
/// far its training lags.
fn models_text(node: usize, table: &PoolTableStats) -> String {
    match &table.part {
        Some(part) => format!(
            "{} of {} pairs, {} sub-models wait",
            size::text(part.model.cache_bytes),
            part.tree.pairs,
            part.model.pending
        ),
        None if node == 0 => used_text(&table.meta),
        None => String::new(),
    }
}

fn used_text(space: &SpaceStats) -> String {
    let bytes = |blocks: u64| size::text(blocks * space.block_bytes);
    format!("{} of {}", bytes(space.used), bytes(space.capacity))
}

fn name_of(table: &PoolTableStats) -> &str {
    &table.info.definition.table.name
}
