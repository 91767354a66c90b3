//! Two READs of one word, one after the other: no word goes back.

use crate::litmus::Step::{ReadWord, Take, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two READs of a word, in turn",
    clients: &[&[WriteWord(0, 1)], &[ReadWord(0), Take, ReadWord(0)]],
    finals: &[],
    registers: &["first", "second"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 1])],
};
