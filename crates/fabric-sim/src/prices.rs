//! What verbs, packets and calls take: the prices by which a simulation can measure instead of confuse.
//!
//! Invariant: a priced simulation knows no faults and no chance. Each verb passes the same parts in the same
//! order, waits for each in a queue, and takes memory at the moment at which it reaches the server's card.
//!
//! Where the figures come from is a [`crate::Profile`]'s matter; here they are numbers.

/// Prices. Times are in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// Cards of each machine. A queue pair belongs to one card of each of its ends.
    pub nics: usize,
    /// Cores of a server that execute calls.
    pub server_cores: usize,
    /// What a card's engine is busy with.
    pub nic: NicPrices,
    /// The way between two cards.
    pub link: LinkPrices,
    /// What a client's thread is busy with.
    pub thread: ThreadPrices,
    /// READs and atomics of one queue pair that may be under way; further ones wait in its card.
    pub reads_in_flight_max: usize,
}

/// A card's engine, a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicPrices {
    /// A READ, at the client's card.
    pub read_issued_ps: u64,
    /// A READ, at the server's card.
    pub read_served_ps: u64,
    /// A WRITE, at the client's card.
    pub write_issued_ps: u64,
    /// A WRITE, at the server's card.
    pub write_served_ps: u64,
    /// An atomic, at the server's card, one half when it comes and one half when its lock is free again. The
    /// client's takes it for a READ.
    pub atomic_served_ps: u64,
    /// How long an atomic holds its lock, at the server's card.
    pub atomic_held_ps: u64,
    /// Such locks; a word's is the remainder of its number.
    pub atomic_locks: usize,
    /// A message of a call, at either end.
    pub message_ps: u64,
}

/// A link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPrices {
    /// A byte.
    pub byte_ps: u64,
    /// Bytes of a packet besides its payload.
    pub packet_overhead_bytes: u64,
    /// Bytes of the longest payload of a packet.
    pub payload_bytes_max: u64,
    /// One way, besides all that is named here: wires, switch, buses.
    pub way_ps: u64,
}

/// A client's thread, in the fabric's library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPrices {
    /// Building a verb's entry.
    pub post_ps: u64,
    /// Ringing.
    pub doorbell_ps: u64,
    /// Taking a completion.
    pub completion_ps: u64,
}

/// Bytes of a READ's or WRITE's address and length in its request (the RETH of the InfiniBand architecture).
pub const ADDRESS_BYTES: u64 = 16;
/// Bytes of an atomic's address and operands (its AtomicETH).
pub const ATOMIC_BYTES: u64 = 28;
/// Bytes of the word that an atomic brings back.
pub const WORD_BYTES: u64 = 8;

impl LinkPrices {
    /// What `payload_bytes` occupy a link.
    #[must_use]
    pub fn message_ps(&self, payload_bytes: u64) -> u64 {
        let packets = payload_bytes.div_ceil(self.payload_bytes_max).max(1);
        (payload_bytes + packets * self.packet_overhead_bytes) * self.byte_ps
    }
}

/// How much the parts of a kind did until one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    pub(crate) at_ps: u64,
    pub(crate) parts: Vec<PartUsage>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartUsage {
    pub(crate) name: &'static str,
    /// By part: units, work done.
    pub(crate) work: Vec<(usize, u64)>,
}

/// How busy the parts of a kind were.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Utilization {
    /// The kind.
    pub name: &'static str,
    /// Parts of this kind.
    pub parts: usize,
    /// Work by time and unit: 1 is all the time.
    pub mean: f64,
    /// That of the busiest part.
    pub most: f64,
}

impl Usage {
    /// How busy each kind of part was since `earlier`, which is of the same simulation.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<Utilization> {
        let lasted_ps = (self.at_ps - earlier.at_ps).max(1) as f64;
        let of_kind = |(now, before): (&PartUsage, &PartUsage)| {
            // A part that came later has done nothing before.
            let before = before.work.iter().map(|work| work.1).chain(std::iter::repeat(0));
            let busy: Vec<f64> = now
                .work
                .iter()
                .zip(before)
                // What a thread does later than now may begin behind a pause, which counts as undone work.
                .map(|((units, done), before)| done.saturating_sub(before) as f64 / lasted_ps / *units as f64)
                .collect();
            let parts = busy.len();
            let mean = busy.iter().sum::<f64>() / parts.max(1) as f64;
            Utilization { name: now.name, parts, mean, most: busy.iter().copied().fold(0.0, f64::max) }
        };
        self.parts.iter().zip(&earlier.parts).map(of_kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_has_undone_work_behind_a_pause_was_idle() {
        let usage = |at_ps, done| Usage { at_ps, parts: vec![PartUsage { name: "threads", work: done }] };
        let busy = usage(200, vec![(1, 40), (2, 100)]).since(&usage(100, vec![(1, 50), (2, 0)]));
        assert_eq!((busy[0].mean, busy[0].most, busy[0].parts), (0.25, 0.5, 2));
    }
}
