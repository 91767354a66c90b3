//! A part of a machine that does one thing after the other: a card's engine, a link, a server's cores.
//!
//! Invariant: work begins when it comes or when a unit is free, whichever is later, in the order of coming;
//! a unit that has work is never idle.
//!
//! Times are in picoseconds: a card takes fewer nanoseconds for a message than whole numbers can tell apart.

/// A part with one or more equal units.
#[derive(Clone, Debug)]
pub struct Station {
    /// By unit: when it has done all that came so far.
    free_ps: Vec<u64>,
    /// Work that came so far, done or not.
    work_ps: u64,
}

impl Station {
    /// An idle part.
    ///
    /// # Panics
    /// If it has no unit.
    #[must_use]
    pub fn new(units: usize) -> Self {
        assert!(units > 0, "a part has units");
        Self { free_ps: vec![0; units], work_ps: 0 }
    }

    /// Takes work that comes at `now_ps`; returns when it is done. Callers ask in the order of their times.
    ///
    /// # Panics
    /// Never: a part has units.
    pub fn serve(&mut self, now_ps: u64, work_ps: u64) -> u64 {
        let unit = (0..self.free_ps.len()).min_by_key(|unit| self.free_ps[*unit]).expect("a part has units");
        self.serve_by(unit, now_ps, work_ps)
    }

    /// [`Station::serve`] of work that one unit alone can do.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn serve_by(&mut self, unit: usize, now_ps: u64, work_ps: u64) -> u64 {
        let free_ps = &mut self.free_ps[unit];
        *free_ps = now_ps.max(*free_ps) + work_ps;
        self.work_ps += work_ps;
        *free_ps
    }

    /// [`Station::serve`] for a link's far end: the packet whose last bit comes at `last_bit_ps` began to
    /// come one packet's time earlier.
    pub fn pass(&mut self, last_bit_ps: u64, work_ps: u64) -> u64 {
        self.serve(last_bit_ps.saturating_sub(work_ps), work_ps)
    }

    /// Its units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.free_ps.len()
    }

    /// Units that had work.
    #[must_use]
    pub fn used_units(&self) -> usize {
        self.free_ps.iter().filter(|free_ps| **free_ps > 0).count()
    }

    /// Work done until `now_ps`, by all units. What is left of what came is done without a pause.
    #[must_use]
    pub fn done_ps(&self, now_ps: u64) -> u64 {
        let left: u64 = self.free_ps.iter().map(|free_ps| free_ps.saturating_sub(now_ps)).sum();
        self.work_ps.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    #[test]
    fn work_waits_for_a_unit_and_no_longer() {
        let mut station = Station::new(2);
        assert_eq!([station.serve(0, 10), station.serve(0, 30), station.serve(5, 10)], [10, 30, 20]);
        assert_eq!(station.done_ps(15), 15 + 15, "both units were busy all the time");
        assert_eq!(station.serve(100, 1), 101, "idle in between");
        assert_eq!(station.done_ps(200), 51);
    }

    #[test]
    fn work_for_one_unit_waits_for_that() {
        let mut station = Station::new(3);
        assert_eq!([(2, 0), (2, 4), (0, 4)].map(|(unit, now)| station.serve_by(unit, now, 10)), [10, 20, 14]);
        assert_eq!((station.used_units(), station.done_ps(12)), (2, 12 + 8));
    }

    #[test]
    fn a_link_passes_a_packet_on_without_a_second_delay() {
        let mut link = Station::new(1);
        assert_eq!(link.pass(100, 20), 100, "alone it is through with its last bit");
        assert_eq!(link.pass(100, 20), 120, "behind another of the same moment it waits");
    }

    /// M/D/1: Poisson arrivals, one unit, equal work. The mean wait is rho / (2 (1 - rho)) works.
    #[test]
    fn the_wait_is_that_of_the_closed_form() {
        const WORK_PS: f64 = 10_000.0;
        const JOBS: u32 = 2_000_000;
        for load in [0.3, 0.6, 0.9] {
            let (mut station, mut random) = (Station::new(1), SplitMix64::new(7));
            let (mut now_ps, mut waited_ps) = (0.0, 0.0);
            for _ in 0..JOBS {
                let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                now_ps += -(1.0 - uniform).ln() * WORK_PS / load;
                let done_ps = station.serve(now_ps as u64, WORK_PS as u64);
                waited_ps += done_ps as f64 - WORK_PS - now_ps.floor();
            }
            let (mean, expected) = (waited_ps / f64::from(JOBS) / WORK_PS, load / (2.0 * (1.0 - load)));
            assert!((mean / expected - 1.0).abs() < 0.05, "load {load}: {mean} works, expected {expected}");
        }
    }
}
