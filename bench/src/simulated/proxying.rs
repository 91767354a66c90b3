//! How the compute nodes of a simulated FlexKV table share its writes.

use std::time::Duration;

use farsight::ReadsByOthers;
use farsight_compute_node::OFFER_PAUSE;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_protocol::ProxyPace;

/// Virtual time at the usual pace within which the coordinator has all offers, and clients that loaded the
/// table ask it again.
const BEGUN_WITHIN: Duration = Duration::from_millis(600);
/// The same until what each has is about as much.
const LEVEL_WITHIN: Duration = Duration::from_secs(16);

/// Which partitions machines write for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offloaded {
    /// This percentage of them, by their numbers. Each machine has as many as any other.
    Numbered(u8),
    /// This percentage, those that are written most. Machines have about as many writes as others.
    Hottest(u8),
    /// As many as the coordinator finds best, likewise.
    Found,
}

/// How machines write for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxying {
    /// Machines that do.
    pub machines: usize,
    /// Threads of each for that.
    pub threads: usize,
    /// What they write.
    pub offloaded: Offloaded,
    /// How fast it is decided who writes what. In runs of some milliseconds nothing is at the usual pace.
    pub pace: ProxyPace,
    /// What they do for the GETs of others.
    pub reads: ReadsByOthers,
}

impl Proxying {
    /// So many machines, with a thread each, write for others in all partitions.
    #[must_use]
    pub fn by(machines: usize) -> Self {
        let (offloaded, pace) = (Offloaded::Numbered(100), ProxyPace::default());
        Self { machines, threads: 1, offloaded, pace, reads: ReadsByOthers::None }
    }

    /// Partitions for which each machine offers to write.
    pub(super) fn offered(self) -> u16 {
        let partitions = match self.offloaded {
            Offloaded::Numbered(percent) => {
                (HASH_PARTITIONS * usize::from(percent)).div_ceil(100).div_ceil(self.machines)
            }
            Offloaded::Hottest(_) | Offloaded::Found => HASH_PARTITIONS,
        };
        partitions as u16
    }

    /// The percentage that they tell the coordinator, which does not look for a better one then.
    pub(super) fn percent(self) -> Option<u8> {
        match self.offloaded {
            Offloaded::Numbered(_) => Some(100),
            Offloaded::Hottest(percent) => Some(percent),
            Offloaded::Found => None,
        }
    }

    /// From one offer to the next.
    pub(super) fn offer_pause(self) -> Duration {
        self.pace.of(OFFER_PAUSE)
    }

    /// Virtual time until the partitions are given out, and clients know it.
    pub(super) fn begun_within(self) -> Duration {
        match self.offloaded {
            Offloaded::Numbered(_) => BEGUN_WITHIN,
            Offloaded::Hottest(_) | Offloaded::Found => self.pace.of(BEGUN_WITHIN + LEVEL_WITHIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_by_number_leave_no_room_to_move_any() {
        let all = Proxying::by(20);
        assert_eq!((all.offered(), all.percent()), (52, Some(100)));
        let fifth = Proxying { offloaded: Offloaded::Numbered(20), ..all };
        assert_eq!((fifth.offered(), fifth.percent()), (11, Some(100)));
        for (offloaded, percent) in [(Offloaded::Hottest(20), Some(20)), (Offloaded::Found, None)] {
            let by_heat = Proxying { offloaded, ..all };
            assert_eq!((by_heat.offered(), by_heat.percent()), (1_024, percent));
        }
    }
}
