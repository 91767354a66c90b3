//! Latencies of batches.
//!
//! An operation's latency is that of the batch that carried it: from before the batch was posted until its
//! last result was there. Hence a batch counts as many times as it has operations. Values are kept to three
//! significant digits, from 1 ns to [`LATENCY_NS_MAX`]; longer ones are counted as that.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency kept apart: a minute.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Quantiles of a latency, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// The median.
    pub p50: u64,
    /// 90 % of the operations took at most this; zero in results from before it was told.
    #[serde(default)]
    pub p90: u64,
    /// 99 % of the operations took at most this.
    pub p99: u64,
    /// 99.9 % of the operations took at most this.
    pub p999: u64,
}

/// Latencies recorded by one thread; threads' histograms are merged at the end.
#[derive(Debug, Clone)]
pub struct LatencyHistogram {
    latencies_ns: Histogram<u64>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// Without a latency.
    #[must_use]
    pub fn new() -> Self {
        let latencies_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("1 < a minute, 3 digits");
        Self { latencies_ns }
    }

    /// Records a batch of `operations` that took `elapsed`. Takes a few ns; allocates nothing.
    #[inline]
    pub fn record(&mut self, elapsed: Duration, operations: u64) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let within = elapsed_ns.clamp(1, LATENCY_NS_MAX);
        self.latencies_ns.record_n(within, operations).expect("clamped to the bounds");
    }

    /// Forgets all latencies; the memory stays.
    pub fn clear(&mut self) {
        self.latencies_ns.reset();
    }

    /// Adds another thread's latencies.
    pub fn merge(&mut self, other: &Self) {
        self.latencies_ns.add(&other.latencies_ns).expect("equal bounds");
    }

    /// Operations recorded.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.latencies_ns.len()
    }

    /// The quantiles; zeros when nothing was recorded.
    #[must_use]
    pub fn quantiles(&self) -> LatencyNs {
        let at = |quantile| self.latencies_ns.value_at_quantile(quantile);
        LatencyNs { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_count_operations_not_batches() {
        let mut first = LatencyHistogram::new();
        first.record(Duration::from_micros(1), 900);
        let mut second = LatencyHistogram::new();
        for _ in 0..10 {
            second.record(Duration::from_micros(500), 10);
        }
        first.merge(&second);
        assert_eq!(first.operations(), 1_000);
        let LatencyNs { p50, p90, p99, p999 } = first.quantiles();
        assert_eq!((p50, p90), (1_000, 1_000));
        assert!(p99.abs_diff(500_000) <= 500 && p999.abs_diff(500_000) <= 500, "{p99} {p999}");
        first.clear();
        assert_eq!((first.operations(), first.quantiles()), (0, LatencyNs::default()));
    }

    #[test]
    fn extremes_are_kept_within_bounds() {
        let mut histogram = LatencyHistogram::new();
        assert_eq!(histogram.quantiles(), LatencyNs::default());
        histogram.record(Duration::ZERO, 1);
        assert_eq!(histogram.quantiles().p50, 1);
        histogram.record(Duration::from_hours(1), 1_000);
        assert!(histogram.quantiles().p999 >= LATENCY_NS_MAX);
    }
}
