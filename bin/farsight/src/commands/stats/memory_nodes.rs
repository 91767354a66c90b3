//! What the memory nodes of a pool say of themselves.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use farsight::{MemoryNodeStats, PoolTableStats, ServerUrl, SpaceStats};
use indicatif::HumanCount;

use super::{duration, facts};
use crate::listing::listing;
use crate::size;

/// Prints the statistics of all nodes, or their parts of one table. Nodes are called by the addresses that
/// the user gave, in that order.
pub(super) fn print(
    urls: &[ServerUrl],
    mut nodes: Vec<MemoryNodeStats>,
    table: Option<&str>,
    json: bool,
) -> Result<ExitCode> {
    if let Some(name) = table {
        let mut names: Vec<&str> = nodes.iter().flat_map(|node| &node.tables).map(name_of).collect();
        names.sort_unstable();
        names.dedup();
        ensure!(
            names.contains(&name),
            "the pool has no table {name:?}; it has {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
        for node in &mut nodes {
            node.tables.retain(|table| name_of(table) == name);
        }
    }
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &nodes)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (url, node) in urls.iter().zip(&nodes) {
        writeln!(out, "{}", node_text(url, node))?;
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
    for (url, node) in urls.iter().zip(&nodes) {
        for table in &node.tables {
            tables.add_row([
                name_of(table).to_owned(),
                table.info.definition.engine.to_string(),
                url.to_string(),
                used_text(&table.leaves),
                table.leaves.owned.to_string(),
                table.leaves.orphaned.to_string(),
                models_text(table),
                size::text(table.huge_page_bytes),
            ]);
        }
    }
    writeln!(out, "{tables}")?;
    Ok(ExitCode::SUCCESS)
}

fn node_text(url: &ServerUrl, node: &MemoryNodeStats) -> comfy_table::Table {
    let addresses: Vec<&str> = node.listeners.iter().map(|listener| listener.address.as_str()).collect();
    let place = node.place.as_ref().map_or("no pool yet".to_owned(), |place| {
        let is_home = if place.index == 0 { ", home" } else { "" };
        format!("{place}{is_home}")
    });
    facts(
        &format!("memory node {url}, farsight {}", node.version),
        [
            ("listens at", addresses.join("\n")),
            ("place", place),
            ("process", node.process_id.to_string()),
            ("up", duration(node.uptime_s)),
            ("processor time", duration(node.cpu_s)),
            ("compute nodes", format!("{}, {} fenced", node.compute_nodes, node.fenced)),
            ("calls", HumanCount(node.calls).to_string()),
        ],
    )
}

/// What a ROLEX table's home keeps for compute nodes; what an XStore-D part's clients cache of it, and how
/// far its training lags.
fn models_text(table: &PoolTableStats) -> String {
    match &table.part {
        Some(part) => format!(
            "{} of {} pairs, {} sub-models wait",
            size::text(part.model.cache_bytes),
            part.tree.pairs,
            part.model.pending
        ),
        None if table.info.place.index == 0 => used_text(&table.meta),
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
