//! What works for the log while the sequencer decides: one thread syncs, another writes the next segment's
//! zeros.

use std::sync::Arc;
use std::time::Duration;

use farsight_durability::{Spares, Syncs};

use super::Durable;
use crate::Stop;

/// The longest sleep with nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Helps the sequencer, which does without it what it must.
pub(crate) struct LogHelper {
    durable: Arc<Durable>,
    syncs: Arc<Syncs>,
    spares: Arc<Spares>,
}

impl LogHelper {
    pub(super) fn new(durable: Arc<Durable>, syncs: Arc<Syncs>, spares: Arc<Spares>) -> Self {
        Self { durable, syncs, spares }
    }

    /// Does the sequencer's syncs until `stop`. Without this the sequencer does them itself.
    pub(crate) fn sync(&self, stop: &Stop) {
        while !stop.is_raised() {
            if self.syncs.help(SLEEP_MAX) {
                self.durable.end_sync();
            }
        }
    }

    /// Makes the spares of the log until `stop`. Without this the sequencer reserves segments.
    pub(crate) fn make_spares(&self, stop: &Stop) {
        while !stop.is_raised() {
            self.spares.help(SLEEP_MAX, || stop.is_raised());
        }
    }

    /// Wakes both threads.
    pub(crate) fn wake(&self) {
        self.syncs.wake();
        self.spares.wake();
    }
}
