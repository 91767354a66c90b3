//! The parts of tables on several nodes, or of engines whose nodes count no pairs.

use farsight::{NodeStats, ServerUrl, SpaceStats, TableStats};

use crate::listing::listing;
use crate::size;

/// A row a table and node.
pub(super) fn listed(urls: &[ServerUrl], nodes: &[NodeStats]) -> comfy_table::Table {
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
    for (url, node) in urls.iter().zip(nodes) {
        for table in &node.tables {
            tables.add_row([
                name_of(table).to_owned(),
                table.info.engine.to_string(),
                url.to_string(),
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

/// What a ROLEX table the coordinator keeps for compute nodes; what an XStore part's clients cache of it,
/// and how far its training lags.
fn models_text(table: &TableStats) -> String {
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

pub(super) fn name_of(table: &TableStats) -> &str {
    &table.info.definition.name
}
