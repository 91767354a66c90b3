//! Two clients that want one latch: one gets it.

use crate::litmus::Step::CompareSwap;
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "CAS against CAS",
    clients: &[
        &[CompareSwap { line: 0, expected: 0, new: 1 }],
        &[CompareSwap { line: 0, expected: 0, new: 2 }],
    ],
    finals: &[0],
    registers: &["one", "other", "last"],
    outcomes: &[always(&[0, 1, 1]), always(&[2, 0, 2])],
};
