//! A line that the server's processor rewrites, under a READ that looks at its stamp: never torn.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Rewrite};
use crate::litmus::{CHANGING, Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "stamped READ of a line",
    clients: &[&[Rewrite(&[0])], &[Read { line: 0, count: 1, mode: ReadMode::Stamped }]],
    finals: &[],
    registers: &["line"],
    outcomes: &[always(&[0]), always(&[1]), always(&[CHANGING])],
};
