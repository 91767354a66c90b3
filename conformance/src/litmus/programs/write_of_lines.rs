//! A WRITE of two lines under a READ of both.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Write};
use crate::litmus::{LINES_WHOLE, Program, TORN, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "READ of two lines that are written by one WRITE",
    clients: &[
        &[Write { line: 0, count: 2, value: 1 }],
        &[Read { line: 0, count: 2, mode: ReadMode::Plain }],
    ],
    finals: &[],
    registers: &["first", "second"],
    outcomes: &[
        always(&[0, 0]),
        always(&[0, 1]),
        always(&[1, 0]),
        always(&[1, 1]),
        unless(LINES_WHOLE, &[0, TORN]),
        unless(LINES_WHOLE, &[1, TORN]),
        unless(LINES_WHOLE, &[TORN, 0]),
        unless(LINES_WHOLE, &[TORN, 1]),
        unless(LINES_WHOLE, &[TORN, TORN]),
    ],
};
