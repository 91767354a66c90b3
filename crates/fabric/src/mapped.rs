//! READs of lines in this process's memory: what a queue pair over shared memory can do besides the verbs.
//!
//! Invariant: lines that lie in place are copied or searched by the ways of [`farsight_base::words`] alone.
//! They stay as long as the borrow, also if their region is withdrawn meanwhile. An access in place is
//! counted like the READ that it stands for.
//!
//! When the connection ends, what lies in place may change to anything. So each batch looks whether it has,
//! behind its last load ([`Mapped::end`]).
//!
//! Protocol: an engine calls the functions here, on any queue pair. Where the provider has regions in place
//! they look there. A READ that finds no lines is done by its slot, which says what is wrong. Elsewhere every
//! READ goes by slots.

use std::mem::MaybeUninit;

use farsight_base::words::{CopyMode, Moves, SharedLine, copy_lines, prefetch, prefetch_passing};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};

use crate::chained::line_address;
use crate::{FabricError, QueuePair, ReadMode, Slot};

/// A queue pair whose regions lie in this process's memory.
pub trait Mapped {
    /// Looks after the connection and its regions before a batch in place, as a doorbell does.
    ///
    /// # Errors
    /// As [`QueuePair::doorbell`].
    fn begin(&mut self) -> Result<(), FabricError>;

    /// Looks between two steps of a batch in place whether the connection has ended.
    ///
    /// # Errors
    /// As [`QueuePair::doorbell`].
    fn go_on(&self) -> Result<(), FabricError>;

    /// Looks behind the last load of a batch in place whether the connection has ended. If it has, its lines
    /// may hold anything.
    ///
    /// # Errors
    /// As [`QueuePair::doorbell`].
    fn end(&self) -> Result<(), FabricError>;

    /// All lines of `region` that the queue pair knows of; none if it is not attached, or is withdrawn.
    fn lines(&self, region: RegionId) -> &[SharedLine];

    /// The same after the peer was asked whether the region has grown, if it may ever come to have `end_line`
    /// lines. Lines that were there stay where they are.
    fn grown_lines(&self, region: RegionId, end_line: u64) -> &[SharedLine];

    /// The lines of the stamped READ in `slot`, which was rung and fetches `line_count`; `None` if it fails.
    fn posted_lines(&self, slot: Slot, line_count: usize) -> Option<&[SharedLine]>;

    /// Counts `reads` READs of `line_count` lines in all that were done in place, in so many batches.
    fn count_reads(&mut self, reads: u64, line_count: u64, doorbells: u64);
}

/// The queue pairs that are not [`Mapped`]: there is none of this type.
#[derive(Debug)]
pub enum Unmapped {}

impl Mapped for Unmapped {
    fn begin(&mut self) -> Result<(), FabricError> {
        match *self {}
    }

    fn go_on(&self) -> Result<(), FabricError> {
        match *self {}
    }

    fn end(&self) -> Result<(), FabricError> {
        match *self {}
    }

    fn lines(&self, _region: RegionId) -> &[SharedLine] {
        match *self {}
    }

    fn grown_lines(&self, _region: RegionId, _end_line: u64) -> &[SharedLine] {
        match *self {}
    }

    fn posted_lines(&self, _slot: Slot, _line_count: usize) -> Option<&[SharedLine]> {
        match *self {}
    }

    fn count_reads(&mut self, _reads: u64, _line_count: u64, _doorbells: u64) {
        match *self {}
    }
}

/// `LINES` of the lines from line `line` on; `None` if they end before.
#[inline(always)]
pub(crate) fn chunk_at<const LINES: usize>(lines: &[SharedLine], line: u64) -> Option<&[SharedLine; LINES]> {
    let begin = line as usize;
    // One range: of two looks at the length the compiler makes three.
    lines.get(begin..begin.wrapping_add(LINES))?.try_into().ok()
}

/// [`chunk_at`] of a region, after the peer was asked whether it has grown.
#[cold]
#[inline(never)]
pub(crate) fn grown_chunk<const LINES: usize>(
    mapped: &impl Mapped,
    region: RegionId,
    line: u64,
) -> Option<&[SharedLine; LINES]> {
    chunk_at(mapped.grown_lines(region, line.saturating_add(LINES as u64)), line)
}

/// `LINES` lines from line `line` of `region` on, all of them prefetched; `None` if the region ends before.
/// The caller has begun the batch ([`Mapped::begin`]) and counts the READ ([`Mapped::count_reads`]).
#[inline(always)]
pub fn lines_in_place<const LINES: usize>(
    mapped: &impl Mapped,
    region: RegionId,
    line: u64,
) -> Option<&[SharedLine; LINES]> {
    // No closure: it is not inlined for sure, and what it borrows goes through memory then.
    let lines = match chunk_at(mapped.lines(region), line) {
        Some(lines) => lines,
        None => grown_chunk(mapped, region, line)?,
    };
    for line in lines {
        prefetch_passing(line);
    }
    Some(lines)
}

/// Asks for `line_count` lines from line `line` on, if all of them are among `lines`, which are a region's.
/// They are taken by [`take_lines`].
#[inline(always)]
pub fn ask_lines(lines: &[SharedLine], line: u64, line_count: usize) {
    if let Some(lines) = lines_from(lines, line, line_count) {
        for line in lines {
            prefetch(line);
        }
    }
}

/// Takes the stamped lines from line `line` on, if all of them are among `lines`, which are a region's. The
/// caller has begun the batch ([`Mapped::begin`]), counts the READ ([`Mapped::count_reads`]), and looks
/// behind a run of them whether the connection has ended ([`Mapped::end`]).
#[inline(always)]
pub fn copy_known_lines(lines: &[SharedLine], line: u64, moves: Moves, into: &mut [Line]) -> Option<()> {
    moves.copy_lines(lines_from(lines, line, into.len())?.as_flattened(), into, CopyMode::Stamped);
    Some(())
}

/// Takes the stamped lines from line `line` of `region` on: in place where they lie so, or else those of the
/// READ that was posted in `slot` and rung. The caller has begun the batch ([`Mapped::begin`]), and counts
/// the READ ([`Mapped::count_reads`]).
///
/// # Errors
/// As [`QueuePair::doorbell`], [`QueuePair::drain_slot`] and [`QueuePair::take_read`].
#[inline(always)]
pub fn take_lines(
    queue: &mut (impl QueuePair + ?Sized),
    slot: Slot,
    (region, line): (RegionId, u64),
    into: &mut [Line],
) -> Result<(), FabricError> {
    if let Some(mapped) = queue.mapped() {
        if let Some(lines) = lines_from(mapped.lines(region), line, into.len()) {
            copy_lines(lines.as_flattened(), into, CopyMode::Stamped);
            return mapped.end();
        }
        return take_grown_lines(queue, (region, line), into);
    }
    // To drain a slot may mean to wait for all.
    if !queue.is_complete(slot) {
        queue.drain_slot(slot)?;
    }
    queue.take_read(slot, into)
}

/// [`take_lines`] in place of lines that the queue pair does not know yet.
#[cold]
#[inline(never)]
fn take_grown_lines(
    queue: &mut (impl QueuePair + ?Sized),
    (region, line): (RegionId, u64),
    into: &mut [Line],
) -> Result<(), FabricError> {
    if let Some(mapped) = queue.mapped() {
        let end_line = line.saturating_add(into.len() as u64);
        if let Some(lines) = lines_from(mapped.grown_lines(region, end_line), line, into.len()) {
            copy_lines(lines.as_flattened(), into, CopyMode::Stamped);
            return mapped.end();
        }
    }
    Err(refused(queue, region, line, into.len()))
}

/// `line_count` of the lines from line `line` on; `None` if they end before.
#[inline(always)]
fn lines_from(lines: &[SharedLine], line: u64, line_count: usize) -> Option<&[SharedLine]> {
    lines.get(line as usize..)?.get(..line_count)
}

/// READs `into.len()` lines at `from` and waits for them: a batch of its own in slot 0, for a caller who has
/// nothing else to do meanwhile. Nothing else may be posted.
///
/// # Errors
/// As [`QueuePair::doorbell`], [`QueuePair::drain`] and [`QueuePair::take_read`].
#[inline(always)]
pub fn read_alone(
    queue: &mut (impl QueuePair + ?Sized),
    from: RemoteAddress,
    into: &mut [Line],
    mode: ReadMode,
) -> Result<(), FabricError> {
    if let Some(mapped) = queue.mapped() {
        mapped.begin()?;
        let (line, rest) = (from.offset_bytes / LINE_BYTES as u64, from.offset_bytes % LINE_BYTES as u64);
        if let Some(lines) = lines_from(mapped.lines(from.region), line, into.len())
            && rest == 0
        {
            copy_lines(lines.as_flattened(), into, mode.copy_mode());
            mapped.end()?;
            mapped.count_reads(1, into.len() as u64, 1);
            return Ok(());
        }
    }
    read_by_slot(queue, from, into, mode)
}

/// A READ alone, by its slot.
fn read_by_slot(
    queue: &mut (impl QueuePair + ?Sized),
    from: RemoteAddress,
    into: &mut [Line],
    mode: ReadMode,
) -> Result<(), FabricError> {
    queue.post_read(0, from, into.len(), mode);
    queue.doorbell()?;
    queue.drain()?;
    queue.take_read(0, into)
}

/// What a READ that found no lines in place comes to: by its slot it breaks the queue pair, or finds the
/// region gone.
#[cold]
#[inline(never)]
pub(crate) fn refused(
    queue: &mut (impl QueuePair + ?Sized),
    region: RegionId,
    line: u64,
    line_count: usize,
) -> FabricError {
    let mut room = vec![Line::ZERO; line_count];
    let refused = read_by_slot(queue, line_address(region, line), &mut room, ReadMode::Stamped);
    refused.expect_err("a READ outside of its region is refused")
}

/// READs `ALL` stamped lines from line `line` of `region` on and waits for them, as [`read_alone`] does. It
/// is for a caller who needs but a part of them and finds out which from the first ones. `choose` sees
/// `FIRST` lines and says where among all of them `PART` lines begin, which `keep` sees. Returns the answer
/// of `keep`, or nothing if `choose` says nothing.
///
/// # Errors
/// As [`read_alone`].
///
/// # Panics
/// If the part reaches beyond the lines that were READ.
#[inline(always)]
pub fn read_part<const ALL: usize, const FIRST: usize, const PART: usize, Chosen, Kept>(
    queue: &mut (impl QueuePair + ?Sized),
    region: RegionId,
    line: u64,
    choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
    keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
) -> Result<Option<Kept>, FabricError> {
    if let Some(mapped) = queue.mapped() {
        mapped.begin()?;
        let Some(lines) = lines_in_place::<ALL>(mapped, region, line) else {
            return Err(refused(queue, region, line, ALL));
        };
        let kept = part_in_place(lines, choose, keep);
        mapped.end()?;
        mapped.count_reads(1, ALL as u64, 1);
        return Ok(kept);
    }
    let mut lines = [Line::ZERO; ALL];
    read_by_slot(queue, line_address(region, line), &mut lines, ReadMode::Stamped)?;
    Ok(part(&lines, choose, keep))
}

/// [`QueuePair::take_read`] for a caller who needs but a part of a completed stamped READ, as [`read_part`]
/// does. `room` is as long as the READ.
///
/// # Errors
/// As [`QueuePair::take_read`].
///
/// # Panics
/// If the READ has fewer than `FIRST` lines, or the part reaches beyond it.
#[inline(always)]
pub fn take_part<const FIRST: usize, const PART: usize, Chosen, Kept>(
    queue: &mut (impl QueuePair + ?Sized),
    slot: Slot,
    room: &mut [Line],
    choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
    keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
) -> Result<Option<Kept>, FabricError> {
    if let Some(mapped) = queue.mapped() {
        if let Some(lines) = mapped.posted_lines(slot, room.len()) {
            let kept = part_in_place(lines, choose, keep);
            return mapped.end().map(|()| kept);
        }
        return Err(queue.take_read(slot, room).expect_err("a stamped READ that found no lines"));
    }
    Ok(part(queue.view_read(slot, room)?, choose, keep))
}

/// Only what the caller looks at is copied.
#[inline(always)]
fn part_in_place<const FIRST: usize, const PART: usize, Chosen, Kept>(
    lines: &[SharedLine],
    choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
    keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
) -> Option<Kept> {
    let (moves, mut copy) = (Moves::detect(), MaybeUninit::uninit());
    let first = lines.first_chunk().expect("the first lines are some of all");
    let (begin, chosen) = choose(moves.copy_to(first, &mut copy))?;
    let part = lines[begin..].first_chunk().expect("a part of all lines");
    Some(keep(chosen, moves.copy_to(part, &mut MaybeUninit::uninit())))
}

/// What [`take_part`] does, with the lines of a READ that were taken already.
///
/// # Panics
/// As [`take_part`].
#[inline(always)]
pub fn part<const FIRST: usize, const PART: usize, Chosen, Kept>(
    lines: &[Line],
    choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
    keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
) -> Option<Kept> {
    let (begin, chosen) = choose(lines.first_chunk().expect("the first lines are some of all"))?;
    Some(keep(chosen, lines[begin..].first_chunk().expect("a part of all lines")))
}
