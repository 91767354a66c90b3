//! The farsight program: a server, a client for people, the benchmarks and a doctor.
//!
//! Invariant: results go to stdout, everything else to stderr. The exit code is 0 for success, and 1 for an
//! error, with one line, `error: what: why`. It is 2 for a command line that is none, 3 when a requested key
//! is absent, and 4 when it has another version or value than a write expects.

#![forbid(unsafe_code)]

mod ages;
mod archive;
mod arguments;
mod commands;
mod connection;
mod duration;
mod ending;
mod error_text;
mod key_set;
mod key_text;
mod listing;
mod outcome;
mod output;
mod results;
mod size;
#[cfg(test)]
mod text_properties;
mod tls_files;
mod trusted_servers;
mod typed_table;
mod value_text;
mod waiting;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use farsight::{say, without_password};

/// The exit code of a command line that is none.
const EXIT_USAGE: u8 = 2;
/// The exit code of a `get` or `delete` whose key is absent.
const EXIT_ABSENT: u8 = 3;
/// The exit code of a write that found another version or value than it expects.
const EXIT_DIFFERS: u8 = 4;

fn main() -> ExitCode {
    let done = match arguments::Arguments::try_parse() {
        Ok(arguments) => run(arguments),
        Err(error) => tell(error),
    };
    match done {
        Ok(code) => code,
        // The reader of our output has enough, as in `farsight scan t | head`.
        Err(error) if error_text::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {}", farsight::with_causes(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: arguments::Arguments) -> anyhow::Result<ExitCode> {
    farsight::Vectors::chosen()?;
    arguments.command.run()
}

/// Prints what there is instead of a command: help, the version, or what is wrong with the command line.
fn tell(mut error: clap::Error) -> anyhow::Result<ExitCode> {
    hide_passwords(&mut error);
    let printed = error.print().and_then(|()| std::io::stdout().flush()).map_err(output::of_output);
    if error.use_stderr() {
        // A user who cannot be told what is wrong sees that something is.
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// Takes passwords out of what the error quotes of the command line, or of a variable.
fn hide_passwords(error: &mut clap::Error) {
    let quoted = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(without_password(text)))),
        _ => None,
    };
    let shown: Vec<_> = error.context().filter_map(quoted).collect();
    for (kind, value) in shown {
        error.insert(kind, value);
    }
}
