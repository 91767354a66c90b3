//! Writes that did nothing. One that the server could not do is an error. One whose key is absent, or other
//! than expected, is words on stderr and an exit code.

use std::process::ExitCode;

use farsight::{WriteError, WriteOperation, WriteOutcome, say};

use crate::{EXIT_ABSENT, EXIT_DIFFERS};

/// An error for the first of `outcomes` that failed.
pub(crate) fn check(
    table: &str,
    operation: WriteOperation,
    outcomes: &[WriteOutcome],
) -> Result<(), WriteError> {
    let failed = outcomes.iter().find_map(|outcome| match outcome {
        WriteOutcome::Failed(code) => Some(*code),
        _ => None,
    });
    failed.map_or(Ok(()), |code| Err(WriteError::Refused { table: table.to_owned(), operation, code }))
}

/// Says why the write of `key`, in the words of its kind, did nothing; its exit code. `None` if it did
/// something.
pub(crate) fn explain(table: &str, key: &str, outcome: WriteOutcome) -> Option<ExitCode> {
    match outcome {
        WriteOutcome::Absent => {
            say(format_args!("absent: key {key} in table {table:?}"));
            Some(ExitCode::from(EXIT_ABSENT))
        }
        WriteOutcome::Differs(version) => {
            say(format_args!("differs: key {key} in table {table:?} has version {version}"));
            Some(ExitCode::from(EXIT_DIFFERS))
        }
        _ => None,
    }
}
