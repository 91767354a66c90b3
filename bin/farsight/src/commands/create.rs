//! `farsight create`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use farsight::{Ack, EngineKind, KeyKind, TableOptions, VALUE_BYTES_MAX, VALUE_BYTES_MIN, ValueKind};

use crate::commands::serve::AckName;
use crate::connection::Connection;
use crate::duration;
use crate::key_text::KeyText;
use crate::listing::expiry_text;
use crate::output::output;
use crate::size;
use crate::typed_table::{KindCommand, on_kind};

/// Make a table
///
/// A table of that name with the same definition is left as it is; with another it is an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight create prices
  farsight create temperatures --keys f64 --value-size 32
  farsight create texts --values blocks
  farsight create users --keys bytes --values blocks
  farsight create tokens --values blocks --ttl 1d
  farsight create clicks --ack memory            # at a server with --data
  farsight create sessions --engine flexkv --values blocks --memory 1G
  farsight create prices --engine xstore-d --connect tcp://127.0.0.1:7474,tcp://127.0.0.1:7475")]
pub(crate) struct Create {
    #[command(flatten)]
    connection: Connection,
    /// Its name: letters, digits, _ and -
    name: String,
    /// What its keys are
    #[arg(long, value_enum, default_value_t)]
    keys: Kind,
    /// Bytes of each value, 8 to 256; with `--values blocks` those of the longest [default: 8, or
    /// as many as the engine has, up to 16 MiB]
    #[arg(long, value_name = "BYTES")]
    value_size: Option<u32>,
    /// What its values are
    #[arg(long, value_enum, default_value_t)]
    values: Values,
    /// Give pairs deadlines: they stay so long after their last write, unless that says otherwise
    /// (`put --ttl`); 0s: they stay then. Of values of any length alone
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Memory for its leaves, and as much for its blocks, on each node: 2M to what `serve --memory` says
    /// [default: that]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// When a write is acknowledged, at a server with --data [default: as `serve --ack` says]
    #[arg(long, value_enum)]
    ack: Option<AckName>,
    /// How many nodes of a pool have each of its pairs: 1 to as many as there are. FlexKV alone has more than
    /// one; each node takes the table's memory at once then [default: 1]
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u8).range(1..))]
    replicas: Option<u8>,
    /// Who does what with it. FlexKV keeps no order: no scans. In XStore-D each memory node gets a range of
    /// the kind's whole space of keys, all of one width. `farsight load --engine xstore-d`
    /// makes the table with ranges that fit the keys loaded [default: xstore at a server, rolex in a pool,
    /// flexkv for keys of bytes]
    #[arg(long, value_name = "NAME", value_parser = engine())]
    engine: Option<&'static EngineKind>,
}

/// An engine, by its name.
pub(crate) fn engine() -> impl TypedValueParser<Value = &'static EngineKind> {
    let engines = EngineKind::all().into_iter();
    let values = engines.map(|engine| PossibleValue::new(engine.name).help(engine.about));
    PossibleValuesParser::new(values).try_map(|name| EngineKind::named(&name))
}

/// What values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Values {
    /// All of one size, in the leaves
    #[default]
    Fixed,
    /// Of any length, each in a block
    Blocks,
}

impl Values {
    /// Values of so many bytes, or of so many at most, in a table of `engine` if one is named; else the
    /// `longest` that there are with the table's kind of keys.
    pub(crate) fn of(
        self,
        value_size: Option<u32>,
        engine: Option<&'static EngineKind>,
        longest: ValueKind,
    ) -> Result<ValueKind> {
        Ok(match (self, value_size) {
            (Self::Fixed, size) => {
                let size = size.unwrap_or(8);
                let bytes = u16::try_from(size).ok().filter(|size| SIZES.contains(&usize::from(*size)));
                ValueKind::Fixed(bytes.with_context(|| {
                    let (least, most) = SIZES.into_inner();
                    format!("values of one size have {least} to {most} B, not {size} B; see --values blocks")
                })?)
            }
            (Self::Blocks, None) => engine.map_or(longest, EngineKind::longest_values),
            (Self::Blocks, Some(max_bytes)) => ValueKind::blocks(max_bytes),
        })
    }
}

/// Sizes of values of one size.
const SIZES: std::ops::RangeInclusive<usize> = VALUE_BYTES_MIN..=VALUE_BYTES_MAX;

/// Kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Kind {
    /// Unsigned 64-bit integers
    #[default]
    U64,
    /// Signed 64-bit integers
    I64,
    /// 64-bit floating point numbers, in total order
    F64,
    /// Eight bytes, in lexicographic order
    Bytes8,
    /// Bytes of any length, without order: FlexKV alone has such tables
    Bytes,
}

impl Create {
    pub(crate) fn run(self) -> Result<ExitCode> {
        on_kind(self.keys.into(), self)
    }
}

impl KindCommand for Create {
    type Output = ExitCode;

    fn run<K: KeyText + ?Sized>(self) -> Result<ExitCode> {
        let (engine, memory_bytes, ack) = (self.engine, self.memory, self.ack.map(Ack::from));
        let replicas = self.replicas;
        let options = TableOptions::<K> { engine, memory_bytes, ack, replicas, ..TableOptions::default() };
        let mut values = self.values.of(self.value_size, self.engine, K::longest_values())?;
        if let Some(ttl) = self.ttl {
            ensure!(values.are_blocks(), "values of one size have no deadlines: add --values blocks");
            values = values.expiring(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        self.connection.open()?.create_table_of::<K>(&self.name, values, &options)?;
        let until = expiry_text(values);
        writeln!(output(), "table {} of {} keys with {values} values{until}", self.name, K::KEY_KIND)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl From<Kind> for KeyKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::U64 => Self::U64,
            Kind::I64 => Self::I64,
            Kind::F64 => Self::F64,
            Kind::Bytes8 => Self::Bytes8,
            Kind::Bytes => Self::Bytes,
        }
    }
}
