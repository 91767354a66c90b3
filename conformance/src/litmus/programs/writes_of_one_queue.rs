//! Message passing by WRITEs of one queue pair, payload first.

use crate::litmus::Step::{ReadWord, Take, WriteWord};
use crate::litmus::{Program, WRITES_IN_ORDER, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two WRITEs of one queue pair",
    clients: &[&[WriteWord(2, 1), WriteWord(0, 1)], &[ReadWord(0), Take, ReadWord(2)]],
    finals: &[],
    registers: &["flag", "payload"],
    outcomes: &[always(&[0, 0]), always(&[0, 1]), always(&[1, 1]), unless(WRITES_IN_ORDER, &[1, 0])],
};
