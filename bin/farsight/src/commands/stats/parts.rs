//! The parts of tables on several nodes, or of engines whose nodes count no pairs.

use farsight::{CatalogueError, Client, EngineKind, HashIndexStats, NodeStats, SpaceStats, TableStats};

use crate::listing::listing;
use crate::size;

/// Leaves that a first node has given out of a table that somebody should have trained by now: more than
/// sessions take ahead.
const TRAINED_LEAVES_MIN: u64 = 128;

/// A row a table and node.
pub(super) fn listed(addresses: &[String], nodes: &[NodeStats]) -> comfy_table::Table {
    let mut tables = listing([
        "table",
        "engine",
        "node",
        "leaves",
        "with a compute node",
        "orphaned",
        "models, or hash index",
        "huge pages",
    ]);
    for (address, node) in super::of_addresses(addresses, nodes) {
        for table in &node.tables {
            tables.add_row([
                name_of(table).to_owned(),
                table.info.engine.to_string(),
                address.to_owned(),
                used_text(&table.leaves),
                table.leaves.owned.to_string(),
                table.leaves.orphaned.to_string(),
                models_text(table),
                size::text(table.huge_page_bytes),
            ]);
        }
    }
    tables
}

/// A row for each compute node that writes for others in a table; `None` without any.
pub(super) fn proxies(
    client: &Client,
    coordinator: &NodeStats,
) -> Result<Option<comfy_table::Table>, CatalogueError> {
    let mut proxies = listing([
        "table",
        "writes for others",
        "at",
        "partitions",
        "of those offloaded",
        "writes",
        "combined with others",
        "keys found",
    ]);
    let of_hashes = coordinator.tables.iter().filter(|table| table.hash_index.is_some());
    for table in of_hashes {
        for proxy in client.proxies(table.info.id)? {
            proxies.add_row([
                name_of(table).to_owned(),
                format!("compute node {}", proxy.compute_node.0),
                proxy.address.clone(),
                proxy.has.to_string(),
                proxy.partitions().to_string(),
                proxy.work.writes.to_string(),
                proxy.work.combined.to_string(),
                proxy.work.found.to_string(),
            ]);
        }
    }
    Ok((!proxies.is_empty()).then_some(proxies))
}

/// What a ROLEX table the coordinator keeps for compute nodes; what an XStore part's clients cache of it,
/// and how far its training lags. Of a FlexKV table how its index has grown.
fn models_text(table: &TableStats) -> String {
    if let Some(index) = &table.hash_index {
        return index_text(index);
    }
    match &table.part {
        Some(part) => format!(
            "{} of {} pairs, {} sub-models wait",
            size::text(part.model.cache_bytes),
            part.tree.pairs,
            part.model.pending
        ),
        None if table.info.place.index == 0 => {
            let advice = if is_untrained(table) { "\nnobody trains it: serve --train" } else { "" };
            format!("{}{advice}", used_text(&table.meta))
        }
        None => String::new(),
    }
}

/// True if compute nodes have to train the table, it has grown, and has no models.
fn is_untrained(table: &TableStats) -> bool {
    let engine = EngineKind::named(&table.info.engine.name);
    // The root line is there from the beginning.
    let has_models = table.meta.used > 1;
    engine.is_ok_and(|engine| !engine.nodes_train) && !has_models && table.leaves.used > TRAINED_LEAVES_MIN
}

fn index_text(index: &HashIndexStats) -> String {
    format!(
        "{} partitions, {} subtables after {} splits, depth at most {}\n{:.0} % of {} slots used; {} of {} units, {} rest{}",
        index.partitions,
        index.subtables,
        index.splits,
        index.depth_max,
        100.0 * index.load_factor(),
        index.slots,
        index.used_units,
        index.units,
        index.resting_units,
        recalls_text(index)
    )
}

/// What became of values that compute nodes keep, if any do or did.
fn recalls_text(index: &HashIndexStats) -> String {
    if index.keepers == 0 && index.recalls == 0 {
        return String::new();
    }
    let heard = index.recalls.saturating_sub(index.unheard_recalls);
    format!(
        "\n{} compute nodes keep values; {} recalls, of {} us on average, and {} that waited for leases",
        index.keepers,
        index.recalls,
        index.recalls_waited_us / heard.max(1),
        index.unheard_recalls
    )
}

fn used_text(space: &SpaceStats) -> String {
    let bytes = |blocks: u64| size::text(blocks * space.block_bytes);
    format!("{} of {}", bytes(space.used), bytes(space.capacity))
}

pub(super) fn name_of(table: &TableStats) -> &str {
    &table.info.definition.name
}
