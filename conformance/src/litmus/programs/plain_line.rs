//! A line that the server's processor rewrites, under a READ that looks at no stamp. The processor stores
//! word by word, so a card that moves whole lines does not help.

use farsight_fabric::ReadMode;

use crate::litmus::Step::{Read, Rewrite};
use crate::litmus::{Program, TORN, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "plain READ of a line",
    clients: &[&[Rewrite(&[0])], &[Read { line: 0, count: 1, mode: ReadMode::Plain }]],
    finals: &[],
    registers: &["line"],
    outcomes: &[always(&[0]), always(&[1]), always(&[TORN])],
};
