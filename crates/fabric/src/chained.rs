//! Chained READs: a batch in which each READ's lines say where a second READ begins. The shape of a GET.
//!
//! Protocol: the caller's steps are three, and the provider calls each once at most for an index, in this
//! order: where the first READ begins, what its lines name, what the second one's lines hold. Steps of
//! different indices may alternate in any way: how many READs go out together is the provider's choice. A
//! provider without a better way posts all first READs, rings once, then all second ones, and rings again.

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
}

/// The address of a line.
#[must_use]
pub fn line_address(region: RegionId, line: u64) -> RemoteAddress {
    RemoteAddress { region, offset_bytes: line.saturating_mul(LINE_BYTES as u64) }
}

/// Chained READs slot by slot.
pub(crate) fn read_by_slots<const FIRST: usize, const SECOND: usize, Q: QueuePair + ?Sized>(
    queue: &mut Q,
    region: RegionId,
    count: usize,
    chains: &mut impl Chains<FIRST, SECOND>,
) -> Result<(), FabricError> {
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
    queue.settle()?;
    let mut lines = [Line::ZERO; FIRST];
    for (index, posted) in posted[..count].iter_mut().enumerate() {
        if std::mem::take(posted) {
            queue.take_read(index, &mut lines)?;
            if let Some(line) = chains.second(index, &lines) {
                queue.post_read(index, line_address(region, line), SECOND, ReadMode::Stamped);
                *posted = true;
            }
        }
    }
    queue.doorbell()?;
    queue.settle()?;
    let mut lines = [Line::ZERO; SECOND];
    for (index, _) in posted[..count].iter().enumerate().filter(|(_, posted)| **posted) {
        queue.take_read(index, &mut lines)?;
        chains.end(index, &lines);
    }
    Ok(())
}
