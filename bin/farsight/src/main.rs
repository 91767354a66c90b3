//! The farsight program: a server, a client for people, the benchmarks and a doctor.
//!
//! Invariant: results go to stdout, everything else to stderr. The exit code is 0 for success, 1 for an error
//! (one line, `error: what: why`), 2 for a command line that is none, 3 when a key asked for is absent.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod connection;
mod error_text;
mod key_set;
mod key_text;
mod listing;
mod outcome;
mod size;
#[cfg(test)]
mod text_properties;
mod tls_files;
mod trusted_servers;
mod typed_table;
mod value_text;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

/// The exit code of a `get` or `delete` whose key is absent.
const EXIT_ABSENT: u8 = 3;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    match arguments.command.run() {
        Ok(code) => code,
        // Whoever read our output has enough, as in `farsight scan t | head`.
        Err(error) if error_text::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", farsight::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
