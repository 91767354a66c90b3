//! A directory of data, while no server uses it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use farsight::read_data;

use crate::listing::listing;

pub(super) fn verify(directory: &Path) -> Result<ExitCode> {
    let report = read_data(directory, |_| ())?;
    let mut out = std::io::stdout().lock();
    let mut listing = listing(["table", "number", "pairs of the snapshot", "records of the log"]);
    for table in &report.tables {
        let pairs = table.snapshot_pairs.map_or_else(|| "none made".to_owned(), |pairs| pairs.to_string());
        listing.add_row([table.name.clone(), table.id.to_string(), pairs, table.records.to_string()]);
    }
    writeln!(out, "{listing}")?;
    writeln!(out, "segments of the log: {}", report.segments)?;
    if let Some((index, nodes)) = report.place.filter(|(_, nodes)| *nodes > 1) {
        writeln!(out, "node number {} of {nodes} in its pool, after {} lives", index + 1, report.lives)?;
    }
    if let Some((file, offset)) = &report.cut {
        writeln!(out, "{file} ends at byte {offset}: what stands behind was not durable at a crash")?;
    }
    Ok(ExitCode::SUCCESS)
}
