//! How long things take, in virtual time. These are not prices: they only let everything overlap that may.

use std::ops::Range;

/// Durations that a simulation draws from.
#[derive(Clone, Debug)]
pub struct Timing {
    /// One way of a verb, a request or a reply.
    pub way_ns: Range<u64>,
    /// Within this time of a READ's begin its lines are taken.
    pub lines_ns: u64,
    /// Within this time the words of a line are moved, where the card moves words.
    pub words_ns: u64,
    /// Between an atomic's load and its store, where the card is not coherent with the processor.
    pub atomic_ns: u64,
    /// From one store of a processor to the next.
    pub store_ns_max: u64,
    /// A call, besides its stores.
    pub call_ns: Range<u64>,
    /// From a call's arrival until a sleeping worker looks.
    pub wake_ns: Range<u64>,
    /// How long a card repeats what is not acknowledged before it gives the connection up.
    pub repeats_ns: u64,
}

impl Default for Timing {
    /// A card of microseconds, and a processor slow enough to be met in the middle of a write.
    fn default() -> Self {
        Self {
            way_ns: 600..1_600,
            lines_ns: 400,
            words_ns: 120,
            atomic_ns: 150,
            store_ns_max: 60,
            call_ns: 100..900,
            wake_ns: 0..2_000,
            repeats_ns: 4_000_000,
        }
    }
}

impl Timing {
    /// The longest time from the first moment that a READ may ask for to its completion, without faults.
    pub(crate) fn flight_ns_max(&self) -> u64 {
        2 * self.way_ns.end + self.lines_ns + self.words_ns
    }
}
