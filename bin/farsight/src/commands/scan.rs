//! `farsight scan`.

use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use farsight::{Options, Table};
use serde_json::json;

use crate::connection::Connection;
use crate::key_text::TextKey;
use crate::output::output;
use crate::typed_table::{OrderedCommand, on_ordered_table};
use crate::value_text::ValueFormat;

/// Print pairs in key order
///
/// One line a pair, key and value between a tab. Pairs are fetched in pages, so a scan of any length takes
/// little memory and holds up nobody.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight scan prices
  farsight scan prices --from 100 --to 200
  farsight scan prices --from 100 --limit 10 --json
  farsight scan prices --reverse --limit 1
  farsight scan temperatures --from -40 --to 0
  farsight scan texts --print keys
  farsight scan texts --from 100 --to 200 --print count")]
pub(crate) struct Scan {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The first key [default: the least]
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    from: Option<String>,
    /// The last key, itself included [default: the greatest]
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    to: Option<String>,
    /// From the last key down to the first
    #[arg(long)]
    reverse: bool,
    /// Pairs at most [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What to print
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    print: Print,
    /// How to print values
    #[arg(long, value_enum, default_value_t)]
    format: ValueFormat,
    /// Print one JSON object a pair: key (always a string), value, version
    #[arg(long)]
    json: bool,
}

/// What is printed of pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Print {
    /// Keys and values
    #[default]
    Pairs,
    /// Keys alone: values stay where they are
    Keys,
    /// How many there are
    Count,
}

impl Scan {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_ordered_table(&client, &table, self)
    }
}

impl OrderedCommand for Scan {
    type Output = ExitCode;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<ExitCode> {
        let from = bound::<K>(self.from.as_deref())?;
        let to = bound::<K>(self.to.as_deref())?;
        let mut session = table.session(Options::default())?;
        let mut out = BufWriter::new(output());
        let range = (from, to);
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.print != Print::Pairs {
            ensure!(!self.json, "--json prints pairs: leave out --print");
        }
        if self.print == Print::Count {
            ensure!(self.limit.is_none() && !self.reverse, "a count has no limit and no direction");
            writeln!(out, "{}", session.count(range)?)?;
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.print == Print::Keys {
            let keys = if self.reverse { session.keys_descending(range) } else { session.keys(range) };
            for key in keys.take(limit) {
                writeln!(out, "{}", key?.text())?;
            }
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        let scan = if self.reverse { session.scan_descending(range) } else { session.scan(range) };
        for pair in scan.take(limit) {
            let (key, entry) = pair?;
            let text = self.format.text(&entry.value, table.values());
            if self.json {
                writeln!(out, "{}", json!({ "key": key.text(), "value": text, "version": entry.version }))?;
            } else {
                writeln!(out, "{}\t{text}", key.text())?;
            }
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn bound<K: TextKey>(text: Option<&str>) -> Result<Bound<K>> {
    Ok(match text {
        Some(text) => Bound::Included(K::parse(text)?),
        None => Bound::Unbounded,
    })
}
