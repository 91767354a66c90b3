//! Faults as rules, and the count of how often each kind struck.
//!
//! Rules compose: every rule that applies to an occasion draws by itself, and the first that strikes decides.
//! A kind that never struck in a run was not tested by it; whoever runs many seeds adds up the counts.

use std::ops::Range;

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A verb's execution comes late.
    SlowVerb,
    /// The lines of one READ are taken far apart.
    SpreadRead,
    /// A completion comes late, though the verb was executed.
    LateCompletion,
    /// A queue breaks in the middle of a batch; verbs behind the break execute or not, none completes.
    BrokenQueue,
    /// The server's processor is taken away between two stores.
    SlowWriter,
    /// A request comes late.
    SlowCall,
    /// A request is lost, and the connection with it.
    LostCall,
    /// A request comes twice. Only where calls are not reliable: no engine of today is built for it.
    DoubledCall,
    /// A reply comes late.
    SlowReply,
    /// A call was executed, its reply is lost, and the connection with it.
    LostReply,
    /// A client stops for a while, between any two verbs.
    PausedClient,
    /// A client dies, between any two verbs.
    KilledClient,
    /// A server stops for a while, between any two calls; its card goes on.
    PausedServer,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::SlowVerb,
        Self::SpreadRead,
        Self::LateCompletion,
        Self::BrokenQueue,
        Self::SlowWriter,
        Self::SlowCall,
        Self::LostCall,
        Self::DoubledCall,
        Self::SlowReply,
        Self::LostReply,
        Self::PausedClient,
        Self::KilledClient,
        Self::PausedServer,
    ];
}

/// When a fault strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// One occasion in so many, on average.
    pub one_in: u64,
    /// How long it lasts at most, for faults that last; the time is drawn.
    pub duration_ns_max: u64,
    /// The virtual time in which it strikes.
    pub during_ns: Range<u64>,
}

impl Rule {
    /// A rule that holds all the time.
    #[must_use]
    pub fn always(fault: Fault, one_in: u64, duration_ns_max: u64) -> Self {
        Self { fault, one_in, duration_ns_max, during_ns: 0..u64::MAX }
    }
}

/// How often each kind of fault struck.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Strikes([u64; Fault::ALL.len()]);

impl Strikes {
    /// How often this one struck.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_number() {
        assert!(Fault::ALL.iter().enumerate().all(|(number, fault)| *fault as usize == number));
    }
}
