//! Litmus: small programs over the verb contract, and the outcomes that they may have.
//!
//! Invariant: an outcome that a program does not list never happens. One that it lists *unless* some promise
//! is kept never happens where a fabric's guarantees make that promise. Every other one happens on the
//! simulated fabric, under some seed. So whatever a real fabric shows is possible in the simulator with that
//! fabric's guarantees, and an engine that survives there has met it.
//!
//! Protocol: the same steps run beside each other in threads over a real fabric ([`threads`]), thousands of
//! times, each time over fresh lines. They also run under many seeds over the simulated one ([`simulated`]).
//! The test compares the outcomes: a real fabric's with the program's and with the simulator's, the
//! simulator's with the program's in both directions.
//!
//! A fabric joins by one line: [`compare`] with what makes it.

mod client;
mod outcome;
pub mod programs;
pub mod simulated;
pub mod threads;

use farsight_base::WORDS_PER_LINE;
use farsight_fabric::{Connection, Guarantees, QueuePair, ReadMode};

use crate::fabric::FabricUnderTest;

pub use outcome::{
    ATOMIC_AFTER_WRITE, CHANGING, LINES_IN_ORDER, LINES_WHOLE, Outcome, Promise, READ_AFTER_ATOMIC,
    READ_BEFORE_COMPLETION, Seen, TORN, WRITE_AFTER_READ, WRITES_IN_ORDER, always, unless,
};

/// Lines of one run of a program.
pub const LINES: usize = 4;
/// Words of one run of a program.
pub const WORDS: usize = LINES * WORDS_PER_LINE;

/// One step of a client. Lines are counted from the run's first.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Posts a READ of `count` lines; each is a register: the value that all of its words have.
    Read {
        /// The first line.
        line: usize,
        /// How many.
        count: usize,
        /// How they are checked.
        mode: ReadMode,
    },
    /// Posts a READ of a line, of which one word is a register: that of atomics and [`Step::WriteWord`].
    ReadWord(usize),
    /// Posts a WRITE of `count` lines, every word of them.
    Write {
        /// The first line.
        line: usize,
        /// How many.
        count: usize,
        /// What is written.
        value: u64,
    },
    /// Posts a WRITE of one word of a line.
    WriteWord(usize, u64),
    /// Posts a compare-and-swap of that word; what it finds is a register.
    CompareSwap {
        /// The line.
        line: usize,
        /// What is expected.
        expected: u64,
        /// What is stored then.
        new: u64,
    },
    /// Posts a fetch-and-add on that word; what it finds is a register.
    FetchAdd(usize, u64),
    /// Posts a call upon which the server's processor adds one to every word of these lines, one line after
    /// the other, each as a stamped line.
    Rewrite(&'static [usize]),
    /// The same by a call that the server parks: it rewrites the lines later, and then answers.
    RewriteLater(&'static [usize]),
    /// What follows is posted to the client's other queue pair.
    OtherQueue,
    /// Rings and waits until all that is posted is complete.
    Complete,
    /// The same; then takes every READ.
    Take,
}

/// A program: clients that run beside each other over lines of zeros. Each takes what it posted at its end.
#[derive(Debug)]
pub struct Program {
    /// Its name, in words.
    pub name: &'static str,
    /// The steps of each client.
    pub clients: &'static [&'static [Step]],
    /// Lines whose word (that of atomics) is a register once all is over.
    pub finals: &'static [usize],
    /// The registers' names: client by client in the order of posting, then the final words.
    pub registers: &'static [&'static str],
    /// Every outcome that it may have.
    pub outcomes: &'static [Outcome],
}

/// Runs every program on a real fabric and on the simulated one with its guarantees, and compares.
///
/// # Panics
/// If either shows what it must not, or the simulated one too little.
pub fn compare<F: FabricUnderTest + 'static>(subject: impl Fn() -> F) {
    let failures: Vec<String> =
        programs::ALL.iter().filter_map(|program| compare_one(program, &subject())).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn compare_one<F: FabricUnderTest + 'static>(program: &Program, subject: &F) -> Option<String> {
    let guarantees = guarantees_of::<F>();
    let real = threads::observe(program, subject);
    let simulated = simulated::sample::<simulated::Like<F>>(program);
    let (real_text, simulated_text) = (program.text_of(&real), program.text_of(&simulated));
    let seen = format!("{}: {}: {real_text}; simulated: {simulated_text}", program.name, guarantees.name);
    println!("{seen}");
    let verdict = program
        .check_promises(&guarantees, &real)
        .and_then(|()| program.check_within(&real, &simulated))
        .and_then(|()| program.check_simulator(&guarantees, &simulated));
    verdict.err().map(|what| format!("{seen}: {what}"))
}

/// What a fabric promises.
#[must_use]
pub fn guarantees_of<F: FabricUnderTest>() -> Guarantees {
    <F::Connection as Connection>::Queue::GUARANTEES
}
