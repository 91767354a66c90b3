//! A fetch-and-add beside the server's processor, which loads the word, adds and stores: one of the two may
//! be lost, and neither word is torn.

use crate::litmus::Step::{FetchAdd, Rewrite};
use crate::litmus::{Program, always};

/// See the module.
pub(super) const PROGRAM: Program = Program {
    name: "FAA beside the processor's store",
    clients: &[&[Rewrite(&[0])], &[FetchAdd(0, 1)]],
    finals: &[0],
    registers: &["add", "last"],
    outcomes: &[always(&[0, 1]), always(&[0, 2]), always(&[1, 2])],
};
