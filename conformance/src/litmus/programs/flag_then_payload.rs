//! Message passing through lines of two READs: the server's processor writes the payload, then the flag; the
//! payload is read once the flag has been.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Rewrite, Take};
use crate::litmus::{CHANGING, Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "flag line, then payload line, two READs",
    clients: &[
        &[Rewrite(&[2, 0])],
        &[
            Read { line: 0, count: 1, mode: ReadMode::Stamped },
            Take,
            Read { line: 2, count: 1, mode: ReadMode::Stamped },
        ],
    ],
    finals: &[],
    registers: &["flag", "payload"],
    outcomes: &[
        always(&[0, 0]),
        always(&[0, 1]),
        always(&[0, CHANGING]),
        always(&[1, 1]),
        always(&[CHANGING, 1]),
        always(&[CHANGING, CHANGING]),
    ],
};
