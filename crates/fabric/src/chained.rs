//! Chained READs: a batch in which each READ's lines say where a second READ begins. The shape of a GET.
//!
//! Protocol: the caller's steps are three. The provider calls each once at most for an index, in this order:
//! 1. where the first READ begins,
//! 2. what its lines name,
//! 3. what the second one's lines hold.
//!
//! Steps of different indices may alternate in any way: how many READs go out together is the provider's
//! choice. A provider without a better way posts all first READs, rings once, then all second ones, and rings
//! again.

use farsight_base::words::{SharedLine, Widest};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};

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
    /// the provider copies them and asks again. Providers that have the lines in their own memory call it.
    #[inline(always)]
    fn second_in_place(&mut self, index: usize, lines: &[SharedLine; FIRST], widest: Widest) -> Option<u64> {
        let _ = (index, lines, widest);
        None
    }

    /// [`Chains::end`] of lines where they lie; false if the provider shall copy them and ask again.
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
/// several queue pairs' batches side by side. Of one queue pair alone [`QueuePair::read_chained`] does the
/// same, perhaps better.
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
    /// As [`QueuePair::settle`], [`QueuePair::take_read`] and [`QueuePair::doorbell`].
    pub fn go_on<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
        &mut self,
        queue: &mut Q,
        region: RegionId,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<(), FabricError> {
        queue.settle()?;
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
    /// As [`QueuePair::settle`] and [`QueuePair::take_read`].
    pub fn end<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
        self,
        queue: &mut Q,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<(), FabricError> {
        queue.settle()?;
        let mut lines = [Line::ZERO; SECOND];
        let posted = self.posted[..self.count].iter().enumerate();
        for (index, _) in posted.filter(|(_, posted)| **posted) {
            queue.take_read(index, &mut lines)?;
            chains.end(index, &lines);
        }
        Ok(())
    }
}

/// Chained READs slot by slot.
pub(crate) fn read_by_slots<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
    queue: &mut Q,
    region: RegionId,
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
) -> Result<(), FabricError> {
    let mut under_way = UnderWay::begin(queue, region, count, chains)?;
    under_way.go_on(queue, region, chains)?;
    under_way.end(queue, chains)
}
