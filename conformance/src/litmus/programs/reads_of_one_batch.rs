//! Two READs of one word in one batch: nothing orders them.

use crate::litmus::Step::{ReadWord, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two READs of a word, one batch",
    clients: &[&[WriteWord(0, 1)], &[ReadWord(0), ReadWord(0)]],
    finals: &[],
    registers: &["first", "second"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 0]), always(&[1, 1])],
};
