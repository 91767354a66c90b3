//! The nodes' time of day, of which all sessions of this process have one idea.
//!
//! Invariant: a session that says when a pair ends, and an engine that asks whether it has ended, go by the
//! same time. It goes on while no node answers, for the error of it grows.

use std::sync::PoisonError;
use std::time::Instant;

use farsight_fabric::Connection;
use farsight_protocol::ControlRequest;

use super::Nodes;
use crate::CatalogueError;
use crate::server_time::{NodeTime, ServerTime};

impl<C: Connection> Nodes<C> {
    /// The nodes' time. It is requested once, and again when that is old.
    pub(crate) fn time(&self) -> Result<ServerTime, CatalogueError> {
        let now = Instant::now();
        let known = self.known_time(None);
        if let Some(time) = known.filter(|time| !time.is_old(now)) {
            return Ok(time);
        }
        // No lock is held while an answer is awaited.
        let time = match (self.ask_time(), known) {
            (Ok(time), _) => time,
            (Err(_), Some(mut time)) => {
                time.put_off(now);
                time
            }
            (Err(error), None) => return Err(error),
        };
        self.known_time(Some(time));
        Ok(time)
    }

    /// What is known of it; from now on `newer`, if there is one.
    fn known_time(&self, newer: Option<ServerTime>) -> Option<ServerTime> {
        // Each change is complete.
        let mut known = self.server_time.lock().unwrap_or_else(PoisonError::into_inner);
        *known = newer.or(*known);
        *known
    }

    fn ask_time(&self) -> Result<ServerTime, CatalogueError> {
        let ask = |node| NodeTime::measure(|| self.ask::<u64>(node, &ControlRequest::Time));
        let times = (0..self.count()).map(ask).collect::<Result<Vec<_>, _>>()?;
        Ok(ServerTime::new(&times))
    }
}
