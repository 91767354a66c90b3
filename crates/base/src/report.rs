//! What a process says of itself, to its operator: lines on standard error.
//!
//! Invariant: saying something never fails and never panics. Standard error may be closed, full, or a pipe
//! whose reader is gone; `eprintln!` panics then, in the thread that had something to report.

use std::cell::Cell;
use std::fmt::Display;
use std::io::Write;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its thread [reports](report) nothing: simulated servers have no operator.
#[derive(Debug)]
pub struct Quiet {
    was_quiet: bool,
}

impl Quiet {
    /// Begins it.
    #[must_use]
    pub fn begin() -> Self {
        Self { was_quiet: IS_QUIET.replace(true) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(self.was_quiet);
    }
}

/// Writes `farsight: TEXT` as one line to standard error. A line that cannot be written is lost.
pub fn report(text: impl Display) {
    if !IS_QUIET.get() {
        say(format_args!("farsight: {text}"));
    }
}

/// Writes TEXT alone as one line to standard error, for a program that people run. A line that cannot be
/// written is lost.
pub fn say(text: impl Display) {
    // One write, so that lines of several threads and processes do not mix.
    let line = format!("{text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// An error and its causes in one line; a cause that its effect repeats already is left out.
#[must_use]
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl Display for Caused {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn a_repeated_cause_is_said_once() {
        let caused = |words, source: Option<Caused>| Caused(words, source.map(Box::new));
        let file = caused("no such file", None);
        let error = caused("cannot load", Some(caused("cannot read x: no such file", Some(file))));
        assert_eq!(with_causes(&error), "cannot load: cannot read x: no such file");
    }
}
