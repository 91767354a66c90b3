//! `farsight lower`, `floor`, `ceiling` and `higher`: the pair next to a key.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{Neighbour, Options, Pairs, Table, say};
use serde_json::json;

use crate::EXIT_ABSENT;
use crate::connection::Connection;
use crate::key_text::TextKey;
use crate::output::output;
use crate::typed_table::{OrderedCommand, on_ordered_table};
use crate::value_text::ValueFormat;

/// What stands below the help of each of the commands.
pub(crate) const EXAMPLES: &str = "\
Examples:
  farsight floor prices 4711           the price that holds at 4711: at it, or the last one before
  farsight ceiling prices 4711 5000    the next ones from there on
  farsight lower temperatures -17.5    the greatest key below
  farsight higher prices 4711 --json   the least key above

One line a key: the neighbour's key and its value with a tab between, and of several keys the key before
them. A key without such a neighbour is named on stderr and makes the exit code 3.
`farsight scan --limit 1` prints the first pair of a table, with `--reverse` the last.";

/// Keys whose neighbours are looked up.
#[derive(Debug, Args)]
pub(crate) struct Neighbours {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The keys: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    /// How to print values
    #[arg(long, value_enum, default_value_t)]
    format: ValueFormat,
    /// Print one JSON object a key: of (always a string), key (null without such a neighbour), value, version
    #[arg(long)]
    json: bool,
}

impl Neighbours {
    pub(crate) fn run(self, which: Neighbour) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_ordered_table(&client, &table, Which { which, neighbours: self })
    }
}

struct Which {
    which: Neighbour,
    neighbours: Neighbours,
}

impl OrderedCommand for Which {
    type Output = ExitCode;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<ExitCode> {
        let Self { which, neighbours: Neighbours { keys, format, json, .. } } = self;
        let keys: Vec<K> = keys.iter().map(|text| K::parse(text)).collect::<Result<_>>()?;
        let mut pairs = Pairs::default();
        table.session(Options::default())?.neighbours(which, &keys, &mut pairs)?;
        let mut out = BufWriter::new(output());
        let mut code = ExitCode::SUCCESS;
        for (index, of) in keys.iter().enumerate() {
            let found = pairs.scan(index).next();
            let text =
                found.map(|pair| (pair.key.text(), format.text(pair.value, table.values()), pair.version));
            if json {
                let (key, value, version) =
                    text.clone().map_or((None, None, None), |(k, v, n)| (Some(k), Some(v), Some(n)));
                let line = json!({ "of": of.text(), "key": key, "value": value, "version": version });
                writeln!(out, "{line}")?;
            } else if let Some((key, value, _)) = &text {
                if keys.len() > 1 {
                    write!(out, "{}\t", of.text())?;
                }
                writeln!(out, "{key}\t{value}")?;
            }
            if text.is_none() {
                let name = format!("{which:?}").to_lowercase();
                say(format_args!("absent: {name} of key {} in table {:?}", of.text(), table.name()));
                code = ExitCode::from(EXIT_ABSENT);
            }
        }
        out.flush()?;
        Ok(code)
    }
}
