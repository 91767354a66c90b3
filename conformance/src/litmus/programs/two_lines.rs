//! Two lines that the server's processor rewrites one after the other, under one READ. Its lines are of
//! different moments, so everything may be seen.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Rewrite};
use crate::litmus::{CHANGING, Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "stamped READ of two lines",
    clients: &[&[Rewrite(&[0, 1])], &[Read { line: 0, count: 2, mode: ReadMode::Stamped }]],
    finals: &[],
    registers: &["first", "second"],
    outcomes: &[
        always(&[0, 0]),
        always(&[0, 1]),
        always(&[0, CHANGING]),
        always(&[1, 0]),
        always(&[1, 1]),
        always(&[1, CHANGING]),
        always(&[CHANGING, 0]),
        always(&[CHANGING, 1]),
        always(&[CHANGING, CHANGING]),
    ],
};
