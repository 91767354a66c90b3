//! How fast time goes for what is decided about compute nodes that serve.

use std::time::Duration;

/// The fastest: what is said in whole milliseconds is some yet.
const FASTEST: u32 = 1_000;

/// How many times shorter than usual the times are by which partitions go to compute nodes that serve, and by
/// which clients hear of it.
///
/// It is for simulations, in which a second has more operations than anybody has time for. All who have to do
/// with a table need the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyPace(u32);

impl Default for ProxyPace {
    fn default() -> Self {
        Self(1)
    }
}

impl ProxyPace {
    /// So many times shorter; from 1 to 1,000.
    #[must_use]
    pub fn new(times: u32) -> Option<Self> {
        (1..=FASTEST).contains(&times).then_some(Self(times))
    }

    /// How many times shorter.
    #[must_use]
    pub fn times(self) -> u32 {
        self.0
    }

    /// What becomes of a usual time.
    #[must_use]
    pub fn of(self, usual: Duration) -> Duration {
        usual / self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shorter_within_bounds() {
        let usual = Duration::from_millis(500);
        assert_eq!(ProxyPace::default().of(usual), usual);
        assert_eq!(ProxyPace::new(500).map(|pace| pace.of(usual)), Some(Duration::from_millis(1)));
        assert_eq!([0, 1_001].map(ProxyPace::new), [None, None]);
    }
}
