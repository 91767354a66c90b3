//! Store buffering: each of two clients WRITEs its word and READs the other's, in one batch.

use crate::litmus::Step::{ReadWord, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "store buffering, one batch",
    clients: &[&[WriteWord(0, 1), ReadWord(1)], &[WriteWord(1, 1), ReadWord(0)]],
    finals: &[],
    registers: &["one", "other"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 0]), always(&[1, 1])],
};
