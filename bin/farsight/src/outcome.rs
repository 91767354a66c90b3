//! Writes of a batch that the server could not do, as the error that a single write would be.

use farsight::{WriteError, WriteOperation, WriteOutcome};

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
