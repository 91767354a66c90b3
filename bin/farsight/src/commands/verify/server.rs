//! The tables of a running server, or of a pool's nodes: every pair, in key order, as the server finds it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use farsight::{Access, Client, Options, Table, with_causes};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};

use crate::key_text::{KeyText, TextKey};
use crate::listing::listing;
use crate::output::output;
use crate::typed_table::{OrderedCommand, TableCommand, on_table};

/// Pairs between two steps of the progress bar.
const BAR_STEP_PAIRS: u64 = 8192;

pub(super) fn verify(client: &Client, is_json: bool) -> Result<ExitCode> {
    let repaired_before = repaired(client)?;
    let mut tables = Vec::new();
    for table in client.tables()? {
        let name = table.definition.name;
        // A table that cannot be opened says nothing about the others.
        let unread = |error: anyhow::Error| Found { pairs: None, failure: Some(with_causes(&*error)) };
        let found = on_table(client, &name, Reading).unwrap_or_else(unread);
        tables.push((name, table.engine.name, found));
    }
    let repaired_leaves = repaired(client)?.saturating_sub(repaired_before);
    let mut out = output();
    if is_json {
        let table = |(name, engine, found): &(String, String, Found)| {
            let Found { pairs, failure } = found;
            json!({ "name": name, "engine": engine, "pairs": pairs, "failure": failure })
        };
        let tables: Vec<Json> = tables.iter().map(table).collect();
        let document = json!({ "tables": tables, "repaired_leaves": repaired_leaves });
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
    } else {
        print(&mut out, &tables, repaired_leaves)?;
    }
    let is_right = tables.iter().all(|(_, _, found)| found.failure.is_none());
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(out: &mut impl Write, tables: &[(String, String, Found)], repaired_leaves: u64) -> Result<()> {
    let mut listing = listing(["table", "engine", "pairs read", "found"]);
    for (name, engine, found) in tables {
        let text = match (found.pairs, &found.failure) {
            (None, None) => "not read: it keeps no order",
            (None, Some(_)) => "not read",
            (_, Some(_)) => "ended early",
            _ => "all right",
        };
        let pairs = found.pairs.map_or_else(|| "-".to_owned(), |pairs| pairs.to_string());
        listing.add_row([name.clone(), engine.clone(), pairs, text.to_owned()]);
    }
    writeln!(out, "{listing}")?;
    if repaired_leaves > 0 {
        writeln!(
            out,
            "leaves whose stamps were repaired: {repaired_leaves}. Memory that loses bits should be replaced"
        )?;
    }
    for (_, _, Found { pairs, failure }) in tables {
        let unread =
            if pairs.is_some() { "what stands behind was not read" } else { "nothing of it was read" };
        if let Some(failure) = failure {
            writeln!(out, "{failure}; {unread}")?;
        }
    }
    Ok(())
}

/// Leaves that the nodes have repaired so far.
fn repaired(client: &Client) -> Result<u64> {
    let nodes = client.node_stats()?;
    let parts = nodes.iter().flat_map(|node| &node.tables).filter_map(|table| table.part);
    Ok(parts.map(|part| part.tree.scrubbed).sum())
}

/// What there is of a table.
struct Found {
    /// Pairs that were read; `None` of a table without an order, or that cannot be opened.
    pairs: Option<u64>,
    /// What ended that.
    failure: Option<String>,
}

/// Reads a table from end to end.
struct Reading;

impl TableCommand for Reading {
    type Output = Found;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<Found> {
        let found = if table.engine().is_ordered { K::in_order(table, self)? } else { None };
        Ok(found.unwrap_or(Found { pairs: None, failure: None }))
    }
}

impl OrderedCommand for Reading {
    type Output = Found;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<Found> {
        let engine = table.engine();
        let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} pairs, {per_sec}");
        let bar = ProgressBar::no_length().with_style(style.expect("the template is well-formed"));
        bar.set_message(table.name().to_owned());
        let access = if engine.answers_reads { Access::Rpc } else { Access::OneSided };
        let mut session = table.session(Options { access })?;
        let (mut pairs, mut failure) = (0, None);
        for pair in session.scan(..) {
            if let Err(error) = pair {
                failure = Some(with_causes(&error));
                break;
            }
            pairs += 1;
            if pairs % BAR_STEP_PAIRS == 0 {
                bar.set_position(pairs);
            }
        }
        bar.finish_and_clear();
        Ok(Found { pairs: Some(pairs), failure })
    }
}
