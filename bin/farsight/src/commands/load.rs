//! `farsight load`.

mod pairs;
mod sink;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use farsight::{
    CatalogueError, Client, EngineKind, ErrorCode, KeyKind, KeyType, Options, Table, TableInfo, TableOptions,
    ValueKind,
};
use indicatif::HumanCount;

use crate::commands::create::{Kind, Values, engine};
use crate::connection::Connection;
use crate::key_text::{KeyText, TextKey};
use crate::output::output;
use crate::typed_table::{KindCommand, OrderedCommand, on_kind};
use crate::value_text::ValueFormat;

/// Fill a table from a file or a named set of keys
///
/// A table that does not exist is made. An empty table is loaded in bulk and shows its pairs all at once, at
/// the end. Into a table with pairs they are put, in batches, and so they are into one that had some.
/// A table of FlexKV is filled by writes, which show as they come.
#[derive(Debug, Args)]
#[command(after_help = "\
Sources, by name or extension:
  the name of a set, see `farsight dataset`
  *.csv   a key in the first column, a value in the second or none; the first
          line is a header with --header, or if its first field is key, keys
          or id; it is printed then. Spaces around texts belong to them
  *.jsonl an object a line, with \"key\" and \"value\" (texts or numbers), as
          `farsight scan --json` prints them; or without values
  *.parquet, *.arrow, *.arrows, *.feather
          columns named key and value, or the only ones; bytes, texts, numbers
          or moments (in programs built with --features arrow)
  *.txt   a key a line
  others  SOSD binary, into u64 tables: a count and as many keys, 64-bit
          little-endian in order (32-bit if the name contains uint32)

Text, CSV and JSON files are sorted here. A SOSD file out of order is an error
unless --sort is given. Of pairs with the same key the last one counts, and
the number of dropped ones is printed.

A key without a value gets its own 64-bit encoding, little-endian, repeated
up to the value's end: in a u64 table of 8 B values each key is its own value.
A key of bytes is repeated so.

Examples:
  farsight load places boundaries
  farsight load osm osm_cellids_200M_uint64 --value-size 16
  farsight load prices prices.csv --format decimal
  farsight load texts texts.csv --values blocks
  farsight scan texts --json >texts.jsonl && farsight load copy texts.jsonl --values blocks
  farsight load places boundaries --engine xstore-d \\
      --connect tcp://127.0.0.1:7474,tcp://127.0.0.1:7475")]
pub(crate) struct Load {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// A file, or the name of a dataset
    source: String,
    /// Bytes of each value if the table is made now, or of the longest of any length [default: 8, or 16 MiB]
    #[arg(long, value_name = "BYTES")]
    value_size: Option<u32>,
    /// What its values are if the table is made now [default: fixed]
    #[arg(long, value_enum)]
    values: Option<Values>,
    /// What its keys are if the table is made now [default: u64]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Who does what with the table if it is made now. In XStore-D each memory node gets a range with as many
    /// of these keys as the others. [default: xstore at a server, rolex in a pool, flexkv for keys of bytes]
    #[arg(long, value_name = "NAME", value_parser = engine())]
    engine: Option<&'static EngineKind>,
    /// How to read the values of a CSV or JSON file
    #[arg(long, value_enum, default_value_t)]
    format: ValueFormat,
    /// Take only so many keys of a named set or SOSD file, a sample
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Take the first line of a CSV file for a header, whatever its first field
    #[arg(long)]
    header: bool,
    /// Sort a SOSD file that is out of order
    #[arg(long)]
    sort: bool,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let kind = self.kind.map(KeyKind::from);
        let (kind, values, is_there) = match client.describe_table(&self.table) {
            Ok(info) => {
                self.check(&info, kind)?;
                (info.definition.key_kind, info.definition.values, true)
            }
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::UnknownTable => {
                let kind = kind.unwrap_or(KeyKind::U64);
                (kind, self.wanted_values(kind, Values::default())?, false)
            }
            Err(error) => return Err(error.into()),
        };
        on_kind(kind, LoadInto { client, values, is_there, load: self })
    }

    /// The values that the command line says, with such keys; those that are not named are `usual`.
    fn wanted_values(&self, keys: KeyKind, usual: Values) -> Result<ValueKind> {
        let longest = if keys == KeyKind::Bytes { <[u8]>::longest_values() } else { ValueKind::BLOCKS };
        self.values.unwrap_or(usual).of(self.value_size, self.engine, longest)
    }

    fn check(&self, info: &TableInfo, kind: Option<KeyKind>) -> Result<()> {
        let (name, definition) = (&self.table, &info.definition);
        if self.values.is_some() || self.value_size.is_some() {
            let has = if definition.values.are_blocks() { Values::Blocks } else { Values::Fixed };
            let asked = self.wanted_values(definition.key_kind, has)?;
            // A limit that nobody names is whatever the table has.
            let is_any_limit = asked.are_blocks() && self.value_size.is_none();
            let limits = |values: ValueKind| (values.are_blocks(), values.bytes_max());
            let is_same = limits(asked) == limits(definition.values);
            let is_as_asked = if is_any_limit { has == Values::Blocks } else { is_same };
            ensure!(is_as_asked, "table {name:?} exists with values of {}, not {asked}", definition.values);
        }
        if let Some(asked) = kind.filter(|asked| *asked != definition.key_kind) {
            bail!("table {name:?} exists with keys of kind {}, not {asked}", definition.key_kind);
        }
        Ok(())
    }
}

/// Whether a table has no pair. Of one that keeps no order nobody knows.
fn is_empty<K: TextKey>(table: &Table<K>) -> Result<bool> {
    if !table.engine().is_ordered {
        return Ok(false);
    }
    Ok(table.session(Options::default())?.scan(..).next().transpose()?.is_none())
}

/// Loads a table that is empty. False if it is not, or takes puts alone.
struct Bulk<'a> {
    keys: &'a [u64],
    values: &'a pairs::LoadedValues,
}

impl OrderedCommand for Bulk<'_> {
    type Output = bool;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<bool> {
        Ok(is_empty(&table)? && sink::bulk(&table, self.keys, self.values)?)
    }
}

struct LoadInto {
    client: Client,
    values: ValueKind,
    is_there: bool,
    load: Load,
}

impl KindCommand for LoadInto {
    type Output = ExitCode;

    /// Makes the table, unless it is there, when the pairs are known: ranges fit them then.
    fn run<K: KeyText + ?Sized>(self) -> Result<ExitCode> {
        let Load { table: name, source, format, keys, header, sort, engine, .. } = self.load;
        let keys = keys.map(|keys| keys as usize);
        let request = pairs::Request { source: &source, format, keys, header, sort, table: &name };
        let pairs = pairs::read::<K>(&request, self.values)
            .with_context(|| format!("cannot load {source} into table {name:?}, nothing of it is loaded"))?;
        ensure!(!pairs.keys.is_empty(), "{source} has no keys");
        let table = if self.is_there && engine.is_none() {
            self.client.table::<K>(&name)?
        } else {
            let sample = pairs.sample().map(K::owned).collect();
            let options = TableOptions { engine, sample, ..TableOptions::default() };
            self.client.create_table_of::<K>(&name, self.values, &options)?
        };
        let start = Instant::now();
        let integers = K::integers(&pairs.keys);
        let bulk = integers.map(|keys| K::in_order(table.clone(), Bulk { keys, values: &pairs.values }));
        let way = if bulk.transpose()?.flatten() == Some(true) {
            "in bulk"
        } else {
            sink::put(&table, &pairs)?;
            "by puts"
        };
        let seconds = start.elapsed().as_secs_f64();
        writeln!(
            output(),
            "{} pairs into table {} {way} in {seconds:.2} s, {:.2} M/s; {} duplicates dropped",
            HumanCount(pairs.keys.len() as u64),
            table.name(),
            pairs.keys.len() as f64 / seconds / 1e6,
            HumanCount(pairs.duplicates_dropped)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
