//! `farsight get`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{Answers, Options, Table, say};
use serde_json::json;

use crate::EXIT_ABSENT;
use crate::connection::Connection;
use crate::key_text::KeyText;
use crate::output::output;
use crate::typed_table::{TableCommand, on_table};
use crate::value_text::ValueFormat;

/// Print the values of keys
///
/// One key prints its value; several print one line each, key and value between a tab. An absent key is named
/// on stderr and makes the exit code 3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight get prices 100
  farsight get prices 100 0xff --json
  farsight get temperatures -17.5 --format decimal")]
pub(crate) struct Get {
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
    /// Print one JSON object a key: key (always a string), value (null if absent), version
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_table(&client, &table, self)
    }
}

impl TableCommand for Get {
    type Output = ExitCode;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<ExitCode> {
        let typed: Vec<K::Typed> = self.keys.iter().map(|text| K::typed(text)).collect::<Result<_>>()?;
        let keys: Vec<K::Ref<'_>> = typed.iter().map(K::borrowed).collect();
        let mut answers = Answers::default();
        table.session(Options::default())?.multi_get(&keys, &mut answers)?;
        let mut out = BufWriter::new(output());
        let mut code = ExitCode::SUCCESS;
        for (key, answer) in typed.iter().zip(answers.iter()) {
            let text = answer.map(|(value, _)| self.format.text(value, table.values()));
            if self.json {
                let version = answer.map(|(_, version)| version);
                writeln!(out, "{}", json!({ "key": K::shown(key), "value": text, "version": version }))?;
            } else if let Some(text) = &text {
                if keys.len() > 1 {
                    write!(out, "{}\t", K::shown(key))?;
                }
                writeln!(out, "{text}")?;
            }
            if text.is_none() {
                say(format_args!("absent: key {} in table {:?}", K::shown(key), table.name()));
                code = ExitCode::from(EXIT_ABSENT);
            }
        }
        out.flush()?;
        Ok(code)
    }
}
