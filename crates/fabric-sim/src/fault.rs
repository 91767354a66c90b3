//! Faults as rules, and the count of how often each kind struck.
//!
//! Rules compose: every rule that applies to an occasion draws by itself, and the first that strikes decides.
//! A kind that never struck in a run was not tested by it; a runner of many seeds adds up the counts.

use std::ops::Range;

use farsight_base::Line;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What can go wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];
        }
    };
}

faults! {
    /// A verb's execution comes late.
    SlowVerb,
    /// The lines of one READ are taken far apart, as by a READ that was executed twice, in part each time.
    SpreadRead,
    /// A completion comes late, though the verb was executed.
    LateCompletion,
    /// A WRITE completes before all of it is in memory. Only a card that is configured so does that.
    EarlyCompletion,
    /// A queue breaks in the middle of a batch; none of its verbs completes. Those behind the break execute
    /// or not; where WRITEs keep their order, not.
    BrokenQueue,
    /// The server's processor is taken away between two stores.
    SlowWriter,
    /// A request comes late.
    SlowCall,
    /// A request is lost, and the connection with it.
    LostCall,
    /// A request comes twice. Only where calls are not reliable. Writes of XStore act once then, too.
    DoubledCall,
    /// A request arrives without its end.
    TruncatedRequest,
    /// A reply comes late.
    SlowReply,
    /// A call was executed, its reply is lost, and the connection with it.
    LostReply,
    /// A reply arrives without its end.
    TruncatedReply,
    /// A bit of a READ's lines is another one than in memory: of those that [`crate::Simulation::set_flips`]
    /// names.
    FlippedBit,
    /// A bit of a server's memory becomes another one, and stays so: of those that
    /// [`crate::Simulation::set_flips`] names, in a line that somebody READs.
    DecayedBit,
    /// A program stops for a while, between any two verbs.
    PausedClient,
    /// A program dies, between any two verbs, also of one batch.
    KilledClient,
    /// A server stops for a while, between any two calls; its card goes on.
    PausedServer,
    /// A server dies, between any two calls, and its memory with it.
    CrashedServer,
    /// A server's processor dies; its card answers READs for a while, from memory as it was at that moment.
    FrozenServer,
    /// A server's card and processor take a hundred times as long for everything, for a while.
    GrayServer,
    /// Nobody reaches a server for a while, and it nobody.
    CutServer,
    /// One program does not reach its server for a while, nor the server it; others do.
    CutProgram,
    /// What a program sends does not arrive for a while; what is sent to it does.
    CutToServer,
    /// What is sent to a program does not arrive for a while; what it sends does.
    CutToProgram,
    /// Several cuts between a program and its server, one behind the other.
    FlappingLink,
    /// A node's clock goes up to a tenth too fast or too slow from now on.
    DriftingClock,
    /// A node's clock leaps forward.
    LeapingClock,
    /// Follows by itself: a line's words were taken at moments between which the line changed.
    TornLine,
    /// Follows by itself: a READ completed behind one that was posted later.
    OvertakenRead,
    /// Follows by itself: of a WRITE some words never reached memory, because its queue broke, or its client
    /// was fenced or ended meanwhile.
    TornWrite,
    /// Follows by itself: a READ begins before a WRITE that was posted before it is in memory.
    OvertakenWrite,
    /// Follows by itself: a WRITE begins before a READ that was posted before it has ended.
    EarlyWrite,
    /// Follows by itself: a completion or reply came for a slot that something else was posted to meanwhile.
    StaleReply,
}

impl Fault {
    /// Its bit in a set of faults.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u64
    }

    /// True if it keeps a verb that was sent from its execution or completion: what memory held must be known
    /// for as much longer.
    pub(crate) fn delays_verbs(self) -> bool {
        use Fault::{
            CutProgram, CutServer, CutToProgram, CutToServer, FlappingLink, LateCompletion, SlowWriter,
            SpreadRead,
        };
        // Not SlowVerb: what comes late begins late, and nobody asks for anything before it begins.
        matches!(
            self,
            SpreadRead
                | LateCompletion
                | SlowWriter
                | CutServer
                | CutProgram
                | CutToServer
                | CutToProgram
                | FlappingLink
        )
    }
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

/// A READ that brought a flipped bit ([`Fault::FlippedBit`]).
#[derive(Clone, Debug)]
pub struct FlippedRead {
    /// Its lines as the reader got them.
    pub lines: Vec<Line>,
    /// Of these, the one with the bit.
    pub line: usize,
    /// The bit's word in the line.
    pub word: usize,
    /// The bit.
    pub bit: u64,
}

impl FlippedRead {
    /// The lines as they were taken from memory.
    #[must_use]
    pub fn taken(&self) -> Vec<Line> {
        let mut lines = self.lines.clone();
        lines[self.line].0[self.word] ^= self.bit;
        lines
    }
}

/// How often each kind of fault struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strikes([u64; Fault::ALL.len()]);

impl Default for Strikes {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

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
        self.count_many(fault, 1);
    }

    pub(crate) fn count_many(&mut self, fault: Fault, times: u64) {
        self.0[fault as usize] += times;
    }
}
