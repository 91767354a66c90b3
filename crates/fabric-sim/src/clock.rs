//! The clocks of programs and servers: each its own, none of them the simulation's.
//!
//! Invariant: a clock never goes back, whatever its rate and however far it leaps.

/// Parts of a rate that make it true.
const TRUE_RATE: u64 = 1_000_000;
/// A rate is wrong by so many parts at most: a tenth.
const DRIFT_MAX: u64 = TRUE_RATE / 10;

/// A node's clock: what it read at some true time, and how fast it has gone since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    set_at_ns: u64,
    read_ns: u64,
    rate: u64,
}

impl Default for NodeClock {
    fn default() -> Self {
        Self { set_at_ns: 0, read_ns: 0, rate: TRUE_RATE }
    }
}

/// `duration_ns * by / of`, rounded down.
fn scaled(duration_ns: u64, by: u64, of: u64) -> u64 {
    if by == of {
        return duration_ns;
    }
    let scaled = u128::from(duration_ns) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl NodeClock {
    /// What it reads at `now_ns`.
    pub(crate) fn reads_ns(&self, now_ns: u64) -> u64 {
        self.read_ns + scaled(now_ns - self.set_at_ns, self.rate, TRUE_RATE)
    }

    /// When it will read `reads_ns`; a past time if it has.
    pub(crate) fn when_ns(&self, reads_ns: u64) -> u64 {
        self.set_at_ns.saturating_add(self.lasts_ns(reads_ns.saturating_sub(self.read_ns)))
    }

    /// How long `duration_ns` by this clock lasts: rounded up, or a process that waits for a time would be
    /// woken before it, again and again.
    pub(crate) fn lasts_ns(&self, duration_ns: u64) -> u64 {
        let lasts_ns = scaled(duration_ns, TRUE_RATE, self.rate);
        lasts_ns.saturating_add(u64::from(scaled(lasts_ns, self.rate, TRUE_RATE) < duration_ns))
    }

    /// Drifts from now on; `choice` says how much.
    pub(crate) fn drift(&mut self, now_ns: u64, choice: u64) {
        let rate = TRUE_RATE - DRIFT_MAX + choice % (2 * DRIFT_MAX + 1);
        *self = Self { set_at_ns: now_ns, read_ns: self.reads_ns(now_ns), rate };
    }

    /// Leaps forward.
    pub(crate) fn leap(&mut self, by_ns: u64) {
        self.read_ns += by_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on_from_where_it_was() {
        let mut clock = NodeClock::default();
        assert_eq!((clock.reads_ns(70), clock.lasts_ns(u64::MAX), clock.when_ns(90)), (70, u64::MAX, 90));
        clock.drift(1_000, 0);
        assert_eq!([clock.reads_ns(1_000), clock.reads_ns(2_000)], [1_000, 1_900]);
        assert_eq!((clock.when_ns(1_900), clock.lasts_ns(900)), (2_000, 1_000));
        clock.leap(50);
        clock.drift(2_000, 2 * DRIFT_MAX);
        assert_eq!([clock.reads_ns(2_000), clock.reads_ns(3_000)], [1_950, 3_050]);
        assert_eq!(clock.when_ns(7), 2_000, "it has read that");
        for reads_ns in 1_950..2_100 {
            assert!(clock.reads_ns(clock.when_ns(reads_ns)) >= reads_ns, "{reads_ns}");
            // Before 2,000 it was another clock.
            assert!(reads_ns == 1_950 || clock.reads_ns(clock.when_ns(reads_ns) - 1) < reads_ns);
        }
    }
}
