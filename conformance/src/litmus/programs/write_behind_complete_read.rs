//! A WRITE sent when a READ of the same word is complete and not yet taken.

use crate::litmus::Step::{Complete, ReadWord, WriteWord};
use crate::litmus::{Program, READ_BEFORE_COMPLETION, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "READ complete, WRITE, READ taken",
    clients: &[&[ReadWord(0), Complete, WriteWord(0, 1)]],
    finals: &[],
    registers: &["read"],
    outcomes: &[always(&[0]), unless(READ_BEFORE_COMPLETION, &[1])],
};
