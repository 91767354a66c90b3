//! What lines prove: that a key is not in a leaf, and that lines hold the value of a key.
//!
//! Invariant: what these checks let through follows from the lines alone. A build with deliberate bugs wraps
//! them in its module `injected`; any other calls them as they stand here.

use farsight_base::Line;

use crate::{KeyLines, KeySearch, ValueFault};

/// What a key part in which no occupied word is `key` says about it.
#[inline]
pub(crate) fn prove_miss(view: KeyLines<'_>, key: u64) -> KeySearch {
    if view.incarnation().is_none() {
        return KeySearch::Changing;
    }
    match view.fences() {
        None => KeySearch::Foreign,
        Some(fences) if key < fences.low => KeySearch::Left,
        Some(fences) if fences.contain(key) => KeySearch::Absent,
        Some(_) => KeySearch::Right(view.next()),
    }
}

/// Refuses the lines of a value that are of different writes, or of another incarnation.
#[inline(always)]
pub(crate) fn check_lines(lines: &[Line], incarnation: u32) -> Result<(), ValueFault> {
    let first = lines[0].stamp();
    for line in lines {
        let stamp = line.stamp();
        if stamp.is_changing() || stamp.version() != first.version() {
            return Err(ValueFault::Changing);
        }
        if stamp.incarnation() != incarnation {
            return Err(ValueFault::OtherIncarnation);
        }
    }
    Ok(())
}

/// The version of a value, if it was written in this incarnation.
#[inline(always)]
pub(crate) fn written(version: u64) -> Result<u64, ValueFault> {
    if version == 0 { Err(ValueFault::NotWritten) } else { Ok(version) }
}
