//! Two WRITEs of one word by two queue pairs and a READ behind the second.

use crate::litmus::Step::{OtherQueue, ReadWord, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two WRITEs of a word, two queue pairs, READ",
    clients: &[&[WriteWord(0, 1), OtherQueue, WriteWord(0, 2), ReadWord(0)]],
    finals: &[0],
    registers: &["read", "last"],
    outcomes: &[
        always(&[0, 1]),
        always(&[0, 2]),
        always(&[1, 1]),
        always(&[1, 2]),
        always(&[2, 1]),
        always(&[2, 2]),
    ],
};
