//! `farsight stats`.

mod parts;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::{BlockSpaceStats, MemoryStats, ModelStats, NodeStats, PartStats, SnapshotStats, TableStats};
use indicatif::HumanCount;

use crate::connection::Connection;
use crate::listing::{listing, value_text};
use crate::output::output;
use crate::{ages, size};

/// Show what the server, or a pool's nodes, and their tables are doing
///
/// Tree, model error, the cache that a client of the whole table holds, memory, huge pages, and how far
/// training lags behind writes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight stats
  farsight stats prices
  farsight stats --json | jq '.tables[0].part.model'")]
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
        let mut nodes = client.node_stats()?;
        if let Some(name) = &self.table {
            keep(client.peer(), &mut nodes, name)?;
        }
        let mut out = output();
        if self.json {
            match &nodes[..] {
                [server] => serde_json::to_writer_pretty(&mut out, server)?,
                pool => serde_json::to_writer_pretty(&mut out, pool)?,
            }
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let addresses = client.addresses();
        for (url, node) in of_addresses(&addresses, &nodes) {
            writeln!(out, "{}", node_text(url, node))?;
        }
        if let [server] = &nodes[..]
            && server.tables.iter().all(|table| table.part.is_some())
        {
            for table in &server.tables {
                writeln!(out, "{}", table_text(table, table.part()))?;
            }
        } else {
            writeln!(out, "{}", parts::listed(&addresses, &nodes))?;
        }
        if let Some(proxies) = parts::proxies(&client, &nodes[0])? {
            writeln!(out, "{proxies}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Each node and its address: a pool that goes on without some has fewer nodes than addresses.
fn of_addresses<'a>(
    addresses: &'a [String],
    nodes: &'a [NodeStats],
) -> impl Iterator<Item = (&'a str, &'a NodeStats)> {
    nodes.iter().enumerate().filter_map(|(index, node)| {
        let place = node.place.as_ref().filter(|place| place.epochs.len() == addresses.len());
        Some((addresses.get(place.map_or(index, |place| place.index.into()))?.as_str(), node))
    })
}

/// Keeps the parts of the table of this name.
fn keep(peer: &str, nodes: &mut [NodeStats], name: &str) -> Result<()> {
    let mut names: Vec<&str> = nodes.iter().flat_map(|node| &node.tables).map(parts::name_of).collect();
    names.sort_unstable();
    names.dedup();
    ensure!(
        names.contains(&name),
        "{peer} has no table {name:?}; it has {}",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    );
    for node in nodes {
        node.tables.retain(|table| parts::name_of(table) == name);
    }
    Ok(())
}

/// Nodes are called by the addresses at which this client has reached them.
fn node_text(url: &str, node: &NodeStats) -> comfy_table::Table {
    let place = node.place.as_ref().filter(|place| place.epochs.len() > 1);
    let place = place.map_or("alone".to_owned(), |place| {
        let nodes = place.epochs.len();
        let is_coordinator = node.lost.coordinator(nodes) == Some(place.index.into());
        let is_coordinator = if is_coordinator { ", coordinator" } else { "" };
        let lost: Vec<String> = (0..nodes)
            .filter(|place| node.lost.contains(*place))
            .map(|place| (place + 1).to_string())
            .collect();
        let without = if lost.is_empty() { String::new() } else { format!(", without {}", lost.join(", ")) };
        format!("{place}{is_coordinator}{without}")
    });
    facts(
        &format!("{url}, farsight {}", node.version),
        [
            ("process", node.process_id.to_string()),
            ("up", duration(node.uptime_s)),
            ("processor time", duration(node.cpu_s)),
            ("memory", memory_text(node)),
            ("directory of data", data_text(node)),
            ("place in its pool", place),
            ("clients", clients_text(node)),
            ("compute nodes", format!("{}, {} fenced", node.compute_nodes, node.fenced)),
            ("calls", HumanCount(node.calls).to_string()),
            ("operations in calls", HumanCount(node.operations).to_string()),
            ("damage found", damage(node.damage_found)),
        ],
    )
}

/// What the process has of what it may have, as far as that is known.
fn memory_text(node: &NodeStats) -> String {
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), size::text);
    let limit = node.memory_limit_bytes.map(|limit| format!(" of at most {}", bytes(Some(limit))));
    let MemoryStats { regions_bytes, queues_bytes, values_bytes, replies_bytes } = node.memory;
    let [regions, queues, values, replies] =
        [regions_bytes, queues_bytes, values_bytes, replies_bytes].map(size::text);
    format!(
        "{}{}\ntables up to {regions}, clients' queues up to {queues}, values on their way {values}, replies kept {replies}",
        bytes(node.memory_bytes),
        limit.unwrap_or_default()
    )
}

/// What it keeps on a disk.
fn data_text(node: &NodeStats) -> String {
    let Some(data) = &node.data else { return "none: a restart loses all tables".to_owned() };
    let when = if data.acknowledges_durable { "durable" } else { "in memory" };
    format!(
        "writes are acknowledged when {when}\n{} of log since the start, segments kept {} with {} that a restart reads, {} wait for it\nrounds of snapshots {}, pieces {}, of that written since the start {} with {}, left for damage {}\ndamaged pairs repaired {}, found in no file {}",
        size::text(data.log_bytes),
        data.segments,
        size::text(data.replay_bytes),
        size::text(data.waiting_bytes),
        data.snapshot_rounds,
        data.pieces,
        data.pieces_written,
        size::text(data.piece_bytes_written),
        data.pieces_left,
        data.repaired,
        data.unrepaired
    )
}

/// How many there are, and at which address where there are several.
fn clients_text(stats: &NodeStats) -> String {
    let [_, _, ..] = stats.listeners[..] else { return stats.clients.to_string() };
    let at = stats.listeners.iter().map(|listener| format!("{} at {}", listener.clients, listener.address));
    at.collect::<Vec<_>>().join("\n")
}

fn table_text(table: &TableStats, part: &PartStats) -> comfy_table::Table {
    let PartStats { tree, model } = part;
    let used_bytes = table.used_bytes();
    let definition = &table.info.definition;
    let count = |number| HumanCount(number).to_string();
    let mut listing = facts(
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
            (
                "splits, merges, compactions",
                [tree.splits, tree.merges, tree.compactions].map(count).join(", "),
            ),
            ("leaves scrubbed", count(tree.scrubbed)),
            ("pairs ended at deadlines", count(tree.expired)),
            (
                "writes by hint",
                format!("{} of {}", count(tree.hint_hits), count(tree.hint_hits + tree.descents)),
            ),
            (
                "model",
                format!(
                    "{} sub-models, {} of them below branches, generation {}",
                    count(model.sub_models),
                    count(model.sub_models_below),
                    model.generation
                ),
            ),
            (
                "leaves predicted",
                format!("{:.2} mean, {} most", model.window_leaves_mean, model.window_leaves_max),
            ),
            ("training", training_text(model)),
            (
                "client cache",
                format!(
                    "{} ({:.2} B a pair), top model {}",
                    size::text(model.cache_bytes),
                    ratio(model.cache_bytes, tree.pairs),
                    size::text(model.top_bytes)
                ),
            ),
            ("memory", format!("{} of {}", size::text(used_bytes), size::text(table.length_bytes()))),
            (
                "on huge pages",
                format!(
                    "{} ({:.0} %)",
                    size::text(table.huge_page_bytes),
                    100.0 * ratio(table.huge_page_bytes, used_bytes).min(1.0)
                ),
            ),
        ],
    );
    if let Some(snapshot) = &table.snapshot {
        listing.add_row(["snapshot", &snapshot_text(snapshot)]);
    }
    if let Some(blocks) = table.blocks {
        let BlockSpaceStats { live_bytes, free_bytes, quarantined_bytes, lost_bytes, .. } = blocks;
        let [live, free, quarantined, lost] =
            [live_bytes, free_bytes, quarantined_bytes, lost_bytes].map(size::text);
        let text = format!("{live} live, {free} free, {quarantined} quarantined, {lost} lost");
        listing.add_row(["blocks of values", &text]);
    }
    listing
}

fn snapshot_text(snapshot: &SnapshotStats) -> String {
    format!("pieces {}: {}", snapshot.pieces, ages::text(snapshot.oldest_ms, snapshot.median_ms))
}

fn training_text(model: &ModelStats) -> String {
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

/// What passes over the tables have met.
fn damage(found: u64) -> String {
    match found {
        0 => "none".to_owned(),
        times => format!("{} times: the server's stderr says where", HumanCount(times)),
    }
}

fn duration(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}
