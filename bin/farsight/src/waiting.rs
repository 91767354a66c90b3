//! How a side waits for the other, from the command line.

use clap::ValueEnum;
use farsight::Waiting;

/// For TCP and RDMA; over shared memory sides sleep by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitingName {
    /// Look for some tens of microseconds, then sleep
    Briefly,
    /// Sleep at once: the least processor time, the slowest answers
    Asleep,
    /// Never sleep: the quickest answers, for a whole core
    Spinning,
}

impl From<WaitingName> for Waiting {
    fn from(name: WaitingName) -> Self {
        match name {
            WaitingName::Briefly => Self::Briefly,
            WaitingName::Asleep => Self::Asleep,
            WaitingName::Spinning => Self::Spinning,
        }
    }
}

/// The way that was given, or the usual one.
pub(crate) fn waiting(given: Option<WaitingName>) -> Waiting {
    given.map_or(Waiting::default(), Waiting::from)
}
