//! Message passing by WRITEs of which the second is sent when the first is complete.

use crate::litmus::Step::{OtherQueue, ReadWord, Take, WriteWord};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two WRITEs in turn",
    clients: &[&[WriteWord(2, 1), Take, OtherQueue, WriteWord(0, 1)], &[ReadWord(0), Take, ReadWord(2)]],
    finals: &[],
    registers: &["flag", "payload"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 1])],
};
