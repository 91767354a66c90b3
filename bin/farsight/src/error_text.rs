//! What an error is below its words.

use std::error::Error;
use std::io;

use crate::output::has_no_reader;

/// True if the error is a write to standard output whose reader has enough.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(has_no_reader) || is_broken_json(cause))
}

/// JSON is written to standard output alone; whose error it was, that of the JSON does not give away.
fn is_broken_json(cause: &(dyn Error + 'static)) -> bool {
    let json = cause.downcast_ref::<serde_json::Error>();
    json.and_then(serde_json::Error::io_error_kind) == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;
    use crate::output::of_output;

    #[test]
    fn a_closed_output_is_known_below_context_and_no_other_pipe_is_taken_for_it() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let output = Err::<(), _>(of_output(closed())).context("printing").unwrap_err();
        assert!(is_broken_pipe(&output));
        let other = Err::<(), _>(closed()).context("writing results.json").unwrap_err();
        assert!(!is_broken_pipe(&other));
        assert!(!is_broken_pipe(&anyhow::anyhow!("printing")));
    }
}
