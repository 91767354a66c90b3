//! Standard output.
//!
//! Invariant: an error of it says that it is its own. So no other pipe that nobody reads is taken for it, and
//! a user sees that the command had come as far as to print.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

/// Where results go.
pub(crate) struct Output(io::StdoutLock<'static>);

/// What went wrong with it.
#[derive(Debug)]
struct OutputError(io::Error);

/// Standard output, for this thread alone.
pub(crate) fn output() -> Output {
    Output(io::stdout().lock())
}

/// The same error, of standard output.
pub(crate) fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), OutputError(error))
}

/// True if this is an error of standard output because nobody reads it any more.
pub(crate) fn has_no_reader(error: &io::Error) -> bool {
    let is_output = error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<OutputError>);
    is_output && error.kind() == io::ErrorKind::BrokenPipe
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_output)
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("standard output takes no more, what this command has changed stays changed")
    }
}

impl Error for OutputError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
