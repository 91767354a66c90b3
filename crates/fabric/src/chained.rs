//! Chained READs: a batch in which each READ's lines say where a second READ begins. The shape of a GET.
//!
//! Protocol: the caller's steps are three. The driver calls each once at most for an index, in this order:
//! 1. where the first READ begins,
//! 2. what its lines name,
//! 3. what the second one's lines hold.
//!
//! Steps of different indices may alternate in any way. By slots ([`UnderWay`]) the driver posts all first
//! READs, rings once, then posts all second ones, and rings again.
//!
//! In place ([`Mapped`]) there are no slots between the steps. A READ is a reference to lines of the region,
//! made by a check of its bounds. Its lines are prefetched when it is made. One loop later the caller looks
//! at them where they lie, and at a copy through [`Moves`] if that does not suffice. Every step is a loop
//! over the batch, because what bounds such a batch is how many lines are under way at once. Between two
//! loops, and behind the last, the driver checks whether the connection has ended, as doorbells do. A region
//! that is withdrawn half-way is READ to the batch's end.

use std::mem::MaybeUninit;

use farsight_base::words::{Moves, SharedLine, Widest, prefetch};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};

use crate::mapped::{Mapped, chunk_at, refused};
use crate::{FabricError, QueuePair, ReadMode};

/// Chains in a batch at most.
pub const CHAINS_MAX: usize = 64;

/// The steps of a batch of chained, stamped READs in one region; the first READ of each fetches `FIRST`
/// lines, the second `SECOND`.
pub trait Chains<const FIRST: usize, const SECOND: usize> {
    /// The line, counted in the region, at which the first READ of chain `index` begins; `None`: it takes no
    /// part.
    fn first(&mut self, index: usize) -> Option<u64>;

    /// The line at which the second READ begins, after the first one's lines were looked at; `None`: the
    /// chain ends.
    fn second(&mut self, index: usize, lines: &[Line; FIRST]) -> Option<u64>;

    /// What the second READ fetched.
    fn end(&mut self, index: usize, lines: &[Line; SECOND]);

    /// [`Chains::second`] of lines where they lie, if they show plainly where the second READ begins; else
    /// the driver copies them and asks again.
    #[inline(always)]
    fn second_in_place(&mut self, index: usize, lines: &[SharedLine; FIRST], widest: Widest) -> Option<u64> {
        let _ = (index, lines, widest);
        None
    }

    /// [`Chains::end`] of lines where they lie; false if the driver shall copy them and ask again.
    #[inline(always)]
    fn end_in_place(&mut self, index: usize, lines: &[SharedLine; SECOND]) -> bool {
        let _ = (index, lines);
        false
    }
}

/// The address of a line.
#[must_use]
pub fn line_address(region: RegionId, line: u64) -> RemoteAddress {
    RemoteAddress { region, offset_bytes: line.saturating_mul(LINE_BYTES as u64) }
}

/// Which chains of a batch have a READ under way, a slot each: for a caller who goes through the steps of
/// several queue pairs' batches side by side. Of one queue pair alone [`read_chained`] does the same, in
/// place where it can.
#[derive(Clone, Copy)]
pub struct UnderWay {
    posted: [bool; CHAINS_MAX],
    count: usize,
}

impl UnderWay {
    /// Posts and rings the first READs of `count` chains.
    ///
    /// # Errors
    /// As [`QueuePair::doorbell`].
    ///
    /// # Panics
    /// With more than [`CHAINS_MAX`] chains.
    pub fn begin<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
        queue: &mut Q,
        region: RegionId,
        count: usize,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<Self, FabricError> {
        const { assert!(Q::SLOTS >= CHAINS_MAX, "a slot a chain") };
        assert!(count <= CHAINS_MAX, "{count} chains, of {CHAINS_MAX} at most");
        let mut posted = [false; CHAINS_MAX];
        for (index, posted) in posted[..count].iter_mut().enumerate() {
            if let Some(line) = chains.first(index) {
                queue.post_read(index, line_address(region, line), FIRST, ReadMode::Stamped);
                *posted = true;
            }
        }
        queue.doorbell()?;
        Ok(Self { posted, count })
    }

    /// Waits for the first READs; posts and rings the second ones.
    ///
    /// # Errors
    /// As [`QueuePair::drain`], [`QueuePair::take_read`] and [`QueuePair::doorbell`].
    pub fn go_on<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
        &mut self,
        queue: &mut Q,
        region: RegionId,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<(), FabricError> {
        queue.drain()?;
        let mut lines = [Line::ZERO; FIRST];
        for (index, posted) in self.posted[..self.count].iter_mut().enumerate() {
            if std::mem::take(posted) {
                queue.take_read(index, &mut lines)?;
                if let Some(line) = chains.second(index, &lines) {
                    queue.post_read(index, line_address(region, line), SECOND, ReadMode::Stamped);
                    *posted = true;
                }
            }
        }
        queue.doorbell()
    }

    /// Waits for the second READs.
    ///
    /// # Errors
    /// As [`QueuePair::drain`] and [`QueuePair::take_read`].
    pub fn end<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
        self,
        queue: &mut Q,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<(), FabricError> {
        queue.drain()?;
        let mut lines = [Line::ZERO; SECOND];
        let posted = self.posted[..self.count].iter().enumerate();
        for (index, _) in posted.filter(|(_, posted)| **posted) {
            queue.take_read(index, &mut lines)?;
            chains.end(index, &lines);
        }
        Ok(())
    }
}

/// READs `count` chains, at most [`CHAINS_MAX`], and waits for them. Nothing else may be posted; slots below
/// `count` are used.
///
/// # Errors
/// As [`QueuePair::doorbell`], [`QueuePair::drain`] and [`QueuePair::take_read`]; then some chains did not
/// end.
#[inline(always)]
pub fn read_chained<const FIRST: usize, const SECOND: usize>(
    queue: &mut (impl QueuePair + ?Sized),
    region: RegionId,
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
) -> Result<(), FabricError> {
    let Some(mapped) = queue.mapped() else { return read_by_slots(queue, region, count, chains) };
    mapped.begin()?;
    match read_in_place(mapped, region, count, chains) {
        Ok([first, second]) => {
            let line_count = first * FIRST as u64 + second * SECOND as u64;
            mapped.count_reads(first + second, line_count, u64::from(first > 0) + u64::from(second > 0));
            Ok(())
        }
        Err(Stop::Dead(error)) => Err(error),
        Err(Stop::Outside { line, count }) => Err(refused(queue, region, line, count)),
    }
}

/// Chained READs slot by slot.
#[inline(never)]
fn read_by_slots<const FIRST: usize, const SECOND: usize>(
    queue: &mut (impl QueuePair + ?Sized),
    region: RegionId,
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
) -> Result<(), FabricError> {
    let mut under_way = UnderWay::begin(queue, region, count, chains)?;
    under_way.go_on(queue, region, chains)?;
    under_way.end(queue, chains)
}

/// Why a batch in place stopped half-way.
#[derive(Debug)]
enum Stop {
    /// The connection is dead.
    Dead(FabricError),
    /// So many lines from this one on are not in the region.
    Outside { line: u64, count: usize },
}

/// The lines of a READ, which are prefetched. Where they are not among those `known` the region may have
/// grown: then `known` becomes all that it has now.
#[inline(always)]
fn ask<'m, const LINES: usize>(
    mapped: &'m impl Mapped,
    region: RegionId,
    known: &mut &'m [SharedLine],
    line: u64,
) -> Result<&'m [SharedLine; LINES], Stop> {
    // No closure: it is not inlined for sure, and what it borrows goes through memory then.
    let lines = if let Some(lines) = chunk_at(known, line) {
        lines
    } else {
        *known = mapped.grown_lines(region, line.saturating_add(LINES as u64));
        chunk_at(known, line).ok_or(Stop::Outside { line, count: LINES })?
    };
    for line in lines {
        prefetch(line);
    }
    Ok(lines)
}

/// READs `count` chains in `region`. Returns how many first and second READs that took. Its
/// own function: what the loops need stays in registers.
#[inline(never)]
fn read_in_place<const FIRST: usize, const SECOND: usize>(
    mapped: &impl Mapped,
    region: RegionId,
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
) -> Result<[u64; 2], Stop> {
    assert!(count <= CHAINS_MAX, "{count} chains, of {CHAINS_MAX} at most");
    let mut known = mapped.lines(region);
    let moves = Moves::detect();
    let widest = Widest::if_known();
    let (mut first_count, mut second_count) = (0, 0);
    let mut firsts: [Option<&[SharedLine; FIRST]>; CHAINS_MAX] = [None; CHAINS_MAX];
    for (index, first) in firsts[..count].iter_mut().enumerate() {
        if let Some(line) = chains.first(index) {
            *first = Some(ask(mapped, region, &mut known, line)?);
            first_count += 1;
        }
    }
    mapped.go_on().map_err(Stop::Dead)?;
    let mut seconds: [Option<&[SharedLine; SECOND]>; CHAINS_MAX] = [None; CHAINS_MAX];
    let mut copy = MaybeUninit::uninit();
    for index in 0..count {
        let Some(lines) = firsts[index] else { continue };
        let in_place = widest.and_then(|widest| chains.second_in_place(index, lines, widest));
        if let Some(line) = in_place.or_else(|| chains.second(index, moves.copy_to(lines, &mut copy))) {
            seconds[index] = Some(ask(mapped, region, &mut known, line)?);
            second_count += 1;
        }
    }
    mapped.go_on().map_err(Stop::Dead)?;
    let mut copy = MaybeUninit::uninit();
    for (index, second) in seconds[..count].iter().enumerate() {
        let Some(lines) = second else { continue };
        if !chains.end_in_place(index, lines) {
            chains.end(index, moves.copy_to(lines, &mut copy));
        }
    }
    mapped.end().map_err(Stop::Dead)?;
    Ok([first_count, second_count])
}
