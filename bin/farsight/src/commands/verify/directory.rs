//! A directory of data, while no server uses it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use farsight::{DataReport, DataTable, read_data};
use serde_json::{Value as Json, json};

use crate::listing::listing;
use crate::output::output;
use crate::{ages, size};

pub(super) fn verify(directory: &Path, is_json: bool) -> Result<ExitCode> {
    let report = read_data(directory, |_| ())?;
    let mut out = output();
    if is_json {
        serde_json::to_writer_pretty(&mut out, &document(&report))?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut listing =
        listing(["table", "number", "pairs of the snapshot", "pieces written", "records of the log"]);
    for table in &report.tables {
        let pairs = table.snapshot_pairs.map_or_else(|| "none made".to_owned(), |pairs| pairs.to_string());
        let ages = ages::text(table.oldest_piece_ms, table.median_piece_ms);
        listing.add_row([table.name.clone(), table.id.to_string(), pairs, ages, table.records.to_string()]);
    }
    writeln!(out, "{listing}")?;
    let bytes = size::text(report.replay_bytes);
    writeln!(out, "segments of the log: {}, of {bytes} that a start reads", report.segments)?;
    if let Some((index, nodes)) = report.place.filter(|(_, nodes)| *nodes > 1) {
        writeln!(out, "node number {} of {nodes} in its pool, after {} lives", index + 1, report.lives)?;
    }
    if let Some((file, offset)) = &report.cut {
        writeln!(out, "{file} ends at byte {offset}: what stands behind was not durable at a crash")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The report as JSON.
fn document(report: &DataReport) -> Json {
    let table = |table: &DataTable| {
        json!({
            "name": table.name,
            "id": table.id,
            "snapshot_pairs": table.snapshot_pairs,
            "oldest_piece_ms": table.oldest_piece_ms,
            "median_piece_ms": table.median_piece_ms,
            "records": table.records,
        })
    };
    json!({
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
        "segments": report.segments,
        "replay_bytes": report.replay_bytes,
        "lives": report.lives,
        "place": report.place.map(|(index, nodes)| json!({ "index": index, "nodes": nodes })),
        "cut": report.cut.as_ref().map(|(file, offset)| json!({ "file": file, "offset": offset })),
    })
}
