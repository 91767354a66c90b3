//! The servers' time of day, as a client knows it: by it pairs end that have deadlines.
//!
//! Invariant: the first node's clock differs from what [`ServerTime::now_ms`] says by at most
//! [`ServerTime::error`], and so does each other node's.
//!
//! Protocol:
//! 1. Ask each node for its time. It was that at some instant between question and answer; take the middle.
//! 2. Go on by this process's own clock, which is not set and differs in speed by at most [`DRIFT_PPM`].
//! 3. Ask again after [`AGE_MAX`]. Without an answer the error grows on.

use std::time::{Duration, Instant};

/// How much faster or slower two machines' clocks go, in millionths.
const DRIFT_PPM: u32 = 200;
/// The age at which nodes are asked again: an error of 12 ms from drift by then.
const AGE_MAX: Duration = Duration::from_secs(60);

/// What a node said of its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTime {
    unix_ms: u64,
    /// When it said so, and how much earlier or later that may have been.
    at: Instant,
    error: Duration,
}

impl NodeTime {
    /// What `ask` answers now.
    pub(crate) fn measure<E>(ask: impl FnOnce() -> Result<u64, E>) -> Result<Self, E> {
        let asked = Instant::now();
        let unix_ms = ask()?;
        let half = asked.elapsed() / 2;
        // The answer is in whole milliseconds.
        Ok(Self { unix_ms, at: asked + half, error: half + Duration::from_millis(1) })
    }

    fn unix_ms_at(&self, instant: Instant) -> u64 {
        let later = instant.saturating_duration_since(self.at).as_millis() as u64;
        let earlier = self.at.saturating_duration_since(instant).as_millis() as u64;
        self.unix_ms.saturating_add(later).saturating_sub(earlier)
    }
}

/// The time of all nodes of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerTime {
    first: NodeTime,
    /// How much another node's clock differs from the first's, with the errors of both.
    error: Duration,
    /// When the nodes are asked again.
    ask_at: Instant,
}

impl ServerTime {
    /// Of what the nodes said, at least one.
    pub(crate) fn new(nodes: &[NodeTime]) -> Self {
        let first = nodes[0];
        let differs = |node: &NodeTime| {
            let difference_ms = first.unix_ms_at(node.at).abs_diff(node.unix_ms);
            Duration::from_millis(difference_ms) + node.error
        };
        let error = nodes.iter().map(differs).max().unwrap_or_default().max(first.error);
        Self { first, error, ask_at: first.at + AGE_MAX }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self, now: Instant) -> u64 {
        self.first.unix_ms_at(now)
    }

    /// How wrong that may be.
    pub(crate) fn error(&self, now: Instant) -> Duration {
        self.error + now.saturating_duration_since(self.first.at) * DRIFT_PPM / 1_000_000
    }

    /// True if the nodes have to be asked again.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        now >= self.ask_at
    }

    /// Goes on without an answer for a while.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.ask_at = now + AGE_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_covers_all_nodes_and_grows() {
        let at = Instant::now();
        let node = |unix_ms, error_ms| NodeTime { unix_ms, at, error: Duration::from_millis(error_ms) };
        let time = ServerTime::new(&[node(1_000_000, 1), node(1_000_030, 2), node(999_990, 3)]);
        assert_eq!((time.now_ms(at), time.error(at)), (1_000_000, Duration::from_millis(32)));
        let later = at + Duration::from_secs(100);
        assert_eq!((time.now_ms(later), time.error(later)), (1_100_000, Duration::from_millis(52)));
        assert!(time.is_old(later) && !time.is_old(at + AGE_MAX / 2));
        // An instant before the answer, too.
        assert_eq!(time.now_ms(at), time.now_ms(at + Duration::from_micros(900)));
    }

    #[test]
    fn a_slow_answer_is_uncertain() {
        let slow = NodeTime::measure(|| {
            std::thread::sleep(Duration::from_millis(20));
            Ok::<_, ()>(5)
        });
        assert!(slow.expect("a time").error >= Duration::from_millis(11));
    }
}
