//! A payload WRITTEN, then published by an atomic, each complete before the next is sent.

use crate::litmus::Step::{FetchAdd, ReadWord, Take, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "WRITE complete, FAA; READs in turn",
    clients: &[&[WriteWord(2, 1), Take, FetchAdd(0, 1)], &[ReadWord(0), Take, ReadWord(2)]],
    finals: &[],
    registers: &["add", "flag", "payload"],
    outcomes: &[always(&[0, 0, 0]), always(&[0, 0, 1]), always(&[0, 1, 1])],
};
