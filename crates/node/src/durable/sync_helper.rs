//! What syncs the log while the sequencer decides.

use std::sync::Arc;
use std::time::Duration;

use farsight_durability::Syncs;

use super::Durable;
use crate::Stop;

/// The longest sleep with nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Does the sequencer's syncs. Without it the sequencer does them itself.
pub(crate) struct SyncHelper {
    durable: Arc<Durable>,
    syncs: Arc<Syncs>,
}

impl SyncHelper {
    pub(super) fn new(durable: Arc<Durable>, syncs: Arc<Syncs>) -> Self {
        Self { durable, syncs }
    }

    /// Works until `stop`.
    pub(crate) fn run(&self, stop: &Stop) {
        while !stop.is_raised() {
            if self.syncs.help(SLEEP_MAX) {
                self.durable.queue.wake();
            }
        }
    }

    /// What wakes it.
    pub(crate) fn syncs(&self) -> Arc<Syncs> {
        Arc::clone(&self.syncs)
    }
}
