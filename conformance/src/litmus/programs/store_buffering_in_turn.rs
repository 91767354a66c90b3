//! Store buffering with each WRITE complete before the READ is sent: one client sees the other.

use crate::litmus::Step::{ReadWord, Take, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "store buffering, WRITE complete first",
    clients: &[&[WriteWord(0, 1), Take, ReadWord(1)], &[WriteWord(1, 1), Take, ReadWord(0)]],
    finals: &[],
    registers: &["one", "other"],
    outcomes: &[always(&[0, 1]), always(&[1, 0]), always(&[1, 1])],
};
