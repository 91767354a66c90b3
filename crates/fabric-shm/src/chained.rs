//! Chained READs over shared memory: no slots between the steps.
//!
//! Invariant: a READ is a reference to lines of the region, made by a check of its bounds. Its lines are
//! prefetched when it is made. One loop later the caller looks at them where they lie, and at a copy through
//! [`Moves`] if that does not suffice.
//!
//! Every step is a loop over the batch, because what bounds such a batch is how many lines are under way at
//! once. Between two loops the queue checks whether the link has ended, as doorbells do. A region that is
//! withdrawn half-way is READ to the batch's end: its mapping stays as long as the borrow.

use std::mem::MaybeUninit;

use farsight_base::sync::AtomicU64;
use farsight_base::words::{Moves, SharedLine, Widest, prefetch};
use farsight_fabric::FabricError;
use farsight_fabric::chained::{CHAINS_MAX, Chains};

use crate::link::Link;

/// READs of a batch, for the meters.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

/// Why a batch stopped half-way.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The link is dead.
    Dead(FabricError),
    /// So many lines from this one on are not in the region.
    Outside { line: u64, count: usize },
}

/// The lines of a READ.
#[inline(always)]
pub(crate) fn lines<const LINES: usize>(
    region: &[SharedLine],
    line: u64,
) -> Result<&[SharedLine; LINES], Stop> {
    let lines = region.get(line as usize..).and_then(<[SharedLine]>::first_chunk);
    lines.ok_or(Stop::Outside { line, count: LINES })
}

/// The lines of a READ, which are prefetched.
#[inline(always)]
fn ask<const LINES: usize>(region: &[SharedLine], line: u64) -> Result<&[SharedLine; LINES], Stop> {
    let lines = lines(region, line)?;
    for line in lines {
        prefetch(line);
    }
    Ok(lines)
}

/// READs `count` chains in the region of these words. Its own function: what the loops need stays in
/// registers.
#[inline(never)]
pub(crate) fn read<const FIRST: usize, const SECOND: usize>(
    words: &[AtomicU64],
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
    link: &Link,
    seen: u64,
) -> Result<Counts, Stop> {
    assert!(count <= CHAINS_MAX, "{count} chains, of {CHAINS_MAX} at most");
    let region = words.as_chunks().0;
    let moves = Moves::detect();
    let widest = Widest::if_known();
    let mut counts = Counts::default();
    let mut firsts: [Option<&[SharedLine; FIRST]>; CHAINS_MAX] = [None; CHAINS_MAX];
    for (index, first) in firsts[..count].iter_mut().enumerate() {
        if let Some(line) = chains.first(index) {
            *first = Some(ask(region, line)?);
            counts.first += 1;
        }
    }
    link.check_since(seen).map_err(Stop::Dead)?;
    let mut seconds: [Option<&[SharedLine; SECOND]>; CHAINS_MAX] = [None; CHAINS_MAX];
    let mut copy = MaybeUninit::uninit();
    for index in 0..count {
        let Some(lines) = firsts[index] else { continue };
        let in_place = widest.and_then(|widest| chains.second_in_place(index, lines, widest));
        if let Some(line) = in_place.or_else(|| chains.second(index, moves.copy_to(lines, &mut copy))) {
            seconds[index] = Some(ask(region, line)?);
            counts.second += 1;
        }
    }
    link.check_since(seen).map_err(Stop::Dead)?;
    let mut copy = MaybeUninit::uninit();
    for (index, second) in seconds[..count].iter().enumerate() {
        let Some(lines) = second else { continue };
        if !chains.end_in_place(index, lines) {
            chains.end(index, moves.copy_to(lines, &mut copy));
        }
    }
    Ok(counts)
}
