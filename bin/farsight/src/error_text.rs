//! Errors as one line.

use std::error::Error;
use std::io;

/// The messages of an error and its causes, joined; a cause that its effect repeats already is left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

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
    fn a_repeated_cause_is_said_once() {
        let error =
            anyhow::anyhow!("no such file").context("cannot read x: no such file").context("cannot load");
        assert_eq!(chain(&error), "cannot load: cannot read x: no such file");
    }

    #[test]
    fn a_closed_pipe_is_known_below_context() {
        let closed =
            Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing").unwrap_err();
        assert!(is_broken_pipe(&closed));
        assert!(!is_broken_pipe(&anyhow::anyhow!("printing")));
    }
}
