//! Message passing through lines of one READ: the server's processor writes the payload, then the flag, which
//! lies before it. Lines in order: the flag is looked at first.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Rewrite};
use crate::litmus::{CHANGING, LINES_IN_ORDER, Program, always, unless};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "flag line before payload line, one READ",
    clients: &[&[Rewrite(&[1, 0])], &[Read { line: 0, count: 2, mode: ReadMode::Stamped }]],
    finals: &[],
    registers: &["flag", "payload"],
    outcomes: &[
        always(&[0, 0]),
        always(&[0, 1]),
        always(&[0, CHANGING]),
        always(&[1, 1]),
        unless(LINES_IN_ORDER, &[CHANGING, 0]),
        always(&[CHANGING, 1]),
        always(&[CHANGING, CHANGING]),
        unless(LINES_IN_ORDER, &[1, 0]),
        unless(LINES_IN_ORDER, &[1, CHANGING]),
    ],
};
