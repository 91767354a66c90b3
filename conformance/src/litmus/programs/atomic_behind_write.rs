//! A payload WRITTEN and published by an atomic of the same batch.

use crate::litmus::Step::{FetchAdd, ReadWord, Take, WriteWord};
use crate::litmus::{ATOMIC_AFTER_WRITE, Program, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "WRITE, FAA behind it; READs in turn",
    clients: &[&[WriteWord(2, 1), FetchAdd(0, 1)], &[ReadWord(0), Take, ReadWord(2)]],
    finals: &[],
    registers: &["add", "flag", "payload"],
    outcomes: &[
        always(&[0, 0, 0]),
        always(&[0, 0, 1]),
        unless(ATOMIC_AFTER_WRITE, &[0, 1, 0]),
        always(&[0, 1, 1]),
    ],
};
