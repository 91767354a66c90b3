//! A READ posted behind a compare-and-swap of the same word.

use crate::litmus::Step::{CompareSwap, ReadWord};
use crate::litmus::{Program, READ_AFTER_ATOMIC, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "CAS, READ behind it",
    clients: &[&[CompareSwap { line: 0, expected: 0, new: 1 }, ReadWord(0)]],
    finals: &[],
    registers: &["swap", "read"],
    outcomes: &[always(&[0, 1]), unless(READ_AFTER_ATOMIC, &[0, 0])],
};
