//! A WRITE posted behind a READ of the same word.

use crate::litmus::Step::{ReadWord, WriteWord};
use crate::litmus::{Program, WRITE_AFTER_READ, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "READ, WRITE behind it",
    clients: &[&[ReadWord(0), WriteWord(0, 1)]],
    finals: &[],
    registers: &["read"],
    outcomes: &[always(&[0]), unless(WRITE_AFTER_READ, &[1])],
};
