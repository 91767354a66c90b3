//! A compare-and-swap and a fetch-and-add of two clients: each is atomic for the other.

use crate::litmus::Step::{CompareSwap, FetchAdd};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "CAS against FAA",
    clients: &[&[CompareSwap { line: 0, expected: 0, new: 10 }], &[FetchAdd(0, 1)]],
    finals: &[0],
    registers: &["swap", "add", "last"],
    outcomes: &[always(&[0, 10, 11]), always(&[1, 0, 1])],
};
