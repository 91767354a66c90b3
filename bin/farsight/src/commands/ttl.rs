//! `farsight ttl`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farsight::{Lifetime, Options, Table, say};

use crate::connection::Connection;
use crate::key_text::KeyText;
use crate::output::output;
use crate::typed_table::{TableCommand, on_table};
use crate::{EXIT_ABSENT, duration};

/// Print how long a pair stays, or change that
///
/// Prints the time that is left, or "endless" for a pair that stays until it is removed. An absent key makes
/// the exit code 3; so does a pair whose time has come.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight create tokens --values blocks --ttl 1d     # pairs stay a day, unless their writer says otherwise
  farsight put tokens 7 secret --ttl 30s
  farsight ttl tokens 7
  farsight ttl tokens 7 --set 10m                     # ten minutes from now on
  farsight ttl tokens 7 --endless")]
pub(crate) struct Ttl {
    #[command(flatten)]
    connection: Connection,
    /// The table, made with `farsight create --ttl`
    table: String,
    /// The key: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// Let the pair stay so long from now on
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    set: Option<Duration>,
    /// Let the pair stay until it is removed
    #[arg(long, conflicts_with = "set")]
    endless: bool,
}

impl Ttl {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_table(&client, &table, self)
    }
}

impl TableCommand for Ttl {
    type Output = ExitCode;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<ExitCode> {
        let typed = K::typed(&self.key)?;
        let key = K::borrowed(&typed);
        let mut session = table.session(Options::default())?;
        let set = self.set.map(Lifetime::For).or(self.endless.then_some(Lifetime::Endless));
        let stays = match set {
            Some(lifetime) => session.set_time_to_live(key, lifetime)?.then_some(lifetime),
            None => session.time_to_live(key)?,
        };
        let text = match stays {
            Some(Lifetime::For(left)) => duration::text(left),
            Some(_) => "endless".to_owned(),
            None => {
                say(format_args!("absent: key {} in table {:?}", K::shown(&typed), table.name()));
                return Ok(ExitCode::from(EXIT_ABSENT));
            }
        };
        writeln!(output(), "{text}")?;
        Ok(ExitCode::SUCCESS)
    }
}
