//! Two WRITEs of one word and a READ behind them, all of one batch: which one lasts?

use crate::litmus::Step::{ReadWord, WriteWord};
use crate::litmus::{Program, WRITES_IN_ORDER, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "two WRITEs of a word, READ behind them",
    clients: &[&[WriteWord(0, 1), WriteWord(0, 2), ReadWord(0)]],
    finals: &[0],
    registers: &["read", "last"],
    outcomes: &[
        always(&[0, 2]),
        always(&[1, 2]),
        always(&[2, 2]),
        unless(WRITES_IN_ORDER, &[0, 1]),
        unless(WRITES_IN_ORDER, &[1, 1]),
        unless(WRITES_IN_ORDER, &[2, 1]),
    ],
};
