//! What an error is below its words.

use std::error::Error;
use std::io;

/// True if the error is a write to a pipe that nobody reads.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io_error = cause.downcast_ref::<io::Error>();
        io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) || is_broken_json(cause)
    })
}

fn is_broken_json(cause: &(dyn Error + 'static)) -> bool {
    let json = cause.downcast_ref::<serde_json::Error>();
    json.and_then(serde_json::Error::io_error_kind) == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_closed_pipe_is_known_below_context() {
        let closed =
            Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing").unwrap_err();
        assert!(is_broken_pipe(&closed));
        assert!(!is_broken_pipe(&anyhow::anyhow!("printing")));
    }
}
