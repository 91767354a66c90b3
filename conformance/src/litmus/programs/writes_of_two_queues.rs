//! Message passing by WRITEs of two queue pairs, which nothing orders.

use crate::litmus::Step::{OtherQueue, ReadWord, Take, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two WRITEs of two queue pairs",
    clients: &[&[WriteWord(2, 1), OtherQueue, WriteWord(0, 1)], &[ReadWord(0), Take, ReadWord(2)]],
    finals: &[],
    registers: &["flag", "payload"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 0]), always(&[1, 1])],
};
