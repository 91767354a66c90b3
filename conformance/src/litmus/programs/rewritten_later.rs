//! A call that is answered later: who has the reply sees what the server wrote before it; nobody else need.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, RewriteLater, Take};
use crate::litmus::{CHANGING, Program, always};

const LINE: crate::litmus::Step = Read { line: 0, count: 1, mode: ReadMode::Stamped };

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "call answered later, READ behind its reply; READ beside it",
    clients: &[&[RewriteLater(&[0]), Take, LINE], &[LINE]],
    finals: &[],
    registers: &["behind", "beside"],
    outcomes: &[always(&[1, 0]), always(&[1, 1]), always(&[1, CHANGING])],
};
