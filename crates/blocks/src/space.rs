//! The space itself: what its writers share.

#[cfg(all(test, shuttle))]
mod models;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use farsight_base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_base::{LINE_BYTES, RegionId, WORDS_PER_LINE};
use farsight_fabric::{FabricError, Region};
use farsight_layout::value_block::{BlockPlace, BlockRef, REFERENCE_LINES_LONG, REFERENCE_OFFSET_BITS};

use crate::PAGE_LINES;
use crate::class::Class;
use crate::pages::Pages;
use crate::quarantine::Quarantine;
use crate::sizes::{CLASSES, Size};
use crate::stats::BlockStats;

/// Places that one retired block lets out of the quarantine at most. A long one may be as many short ones;
/// the next blocks let the rest out.
const FREED_MAX: usize = 64;
/// Bytes of a page.
const PAGE_BYTES: u64 = PAGE_LINES * LINE_BYTES as u64;

/// There is no memory for a block.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{region} has no room for a block of {wanted_bytes} B: of {limit_bytes} B {used_bytes} are used, {live_bytes} \
     by blocks{}", .system.as_ref().map(|error| format!("; it cannot grow: {error}")).unwrap_or_default()
)]
pub struct NoRoom {
    /// The region.
    pub region: RegionId,
    /// Bytes of the block's place.
    pub wanted_bytes: u64,
    /// Bytes that the space may use.
    pub limit_bytes: u64,
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// Why the system gave no memory below the limit, if that is why.
    pub system: Option<Box<FabricError>>,
}

/// Blocks in one region. All of its methods may be called by any thread at any time.
pub struct BlockSpace {
    region: Arc<dyn Region>,
    number: u8,
    limit_pages: u64,
    pages: Mutex<Pages>,
    classes: [Mutex<Class>; CLASSES],
    quarantine: Mutex<Quarantine>,
    /// Lines of live blocks by their first lines, where a reference does not say them.
    long_blocks: Mutex<BTreeMap<u64, u32>>,
    /// Lines of live blocks, and of their places.
    live_lines: AtomicU64,
    held_lines: AtomicU64,
    /// Lines of places that writers have ready.
    ready_lines: AtomicU64,
}

impl BlockSpace {
    /// An empty space over an unused `region`, of which it uses `limit_bytes` at most. References name the
    /// space by `number`.
    #[must_use]
    pub fn new(region: Arc<dyn Region>, number: u8, limit_bytes: u64) -> Self {
        let region_bytes = region.words().len() as u64 * 8;
        let reach_bytes = (1 << REFERENCE_OFFSET_BITS) * LINE_BYTES as u64;
        let limit_pages = limit_bytes.min(region_bytes).min(reach_bytes) / PAGE_BYTES;
        Self {
            region,
            number,
            limit_pages,
            pages: Mutex::new(Pages::new(limit_pages)),
            classes: std::array::from_fn(|class| Mutex::new(Class::new(class))),
            quarantine: Mutex::default(),
            long_blocks: Mutex::default(),
            live_lines: AtomicU64::new(0),
            held_lines: AtomicU64::new(0),
            ready_lines: AtomicU64::new(0),
        }
    }

    /// The region underneath.
    #[must_use]
    pub fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    /// The number by which references name the space.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The words of a place; `None` beyond the region's end.
    #[inline]
    #[must_use]
    pub fn words(&self, place: BlockPlace) -> Option<&[AtomicU64]> {
        let first = usize::try_from(place.offset_lines).ok()?.checked_mul(WORDS_PER_LINE)?;
        self.region.words().get(first..first.checked_add(place.lines as usize * WORDS_PER_LINE)?)
    }

    /// The place that a reference names; `None` if there is none. A long block's length is what the space
    /// noted, not what its memory says.
    #[must_use]
    pub fn place(&self, reference: BlockRef) -> Option<BlockPlace> {
        if !reference.is_live() || reference.space() != self.number {
            return None;
        }
        let offset_lines = reference.offset_lines();
        let lines = match reference.lines() {
            Some(lines) => lines,
            None => *lock(&self.long_blocks).get(&offset_lines)?,
        };
        let place = BlockPlace { space: self.number, offset_lines, lines };
        self.words(place).filter(|words| !words.is_empty()).map(|_| place)
    }

    /// Gives the memory of a block back that no reference names any more, through the quarantine: readers
    /// may have seen the reference.
    pub fn retire(&self, place: BlockPlace) {
        let live_lines = self.count_out(place);
        lock(&self.quarantine).push(place);
        for _ in 0..FREED_MAX {
            let overdue = lock(&self.quarantine).pop_overdue(live_lines);
            let Some(place) = overdue else { return };
            self.free(place);
        }
    }

    /// Gives a place back of which no reader can know: nothing was published.
    pub fn give_back(&self, place: BlockPlace) {
        self.count_out(place);
        self.free(place);
    }

    /// Where its bytes are.
    #[must_use]
    pub fn stats(&self) -> BlockStats {
        // Relaxed: statistics.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (live, held) = (count(&self.live_lines), count(&self.held_lines));
        let quarantined = lock(&self.quarantine).lines();
        let (mut free, mut lost) = (count(&self.ready_lines), held.saturating_sub(live));
        for class in &self.classes {
            let class = lock(class);
            free += class.free_lines();
            lost += class.lost_lines();
        }
        let pages = lock(&self.pages);
        free += pages.free_pages() * PAGE_LINES;
        let bytes = |lines: u64| lines * LINE_BYTES as u64;
        BlockStats {
            live_bytes: bytes(live),
            free_bytes: bytes(free),
            quarantined_bytes: bytes(quarantined),
            lost_bytes: bytes(lost),
            used_bytes: pages.used() * PAGE_BYTES,
            limit_bytes: self.limit_pages * PAGE_BYTES,
        }
    }

    /// Takes up to `count` places of a class, at least one, into `ready`.
    pub(crate) fn take_places(&self, class: usize, count: usize, ready: &mut Vec<u64>) -> Result<(), NoRoom> {
        self.or_without_quarantine(Size::Class(class), || self.take_from_slabs(class, count, ready))?;
        // Relaxed: statistics.
        self.ready_lines.fetch_add(ready.len() as u64 * Size::Class(class).lines(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the pages of a long block: its first line.
    pub(crate) fn take_long(&self, pages: u64) -> Result<u64, NoRoom> {
        let first = self.or_without_quarantine(Size::Pages(pages), || self.take_pages(pages))?;
        Ok(first * PAGE_LINES)
    }

    /// What `attempt` takes. If it finds no room, the quarantine is emptied, and it has a second turn: for
    /// readers to read again costs less than a refusal.
    ///
    /// The second turn comes before the quarantine's lock is given back. Other threads cannot retire
    /// meanwhile: what left the quarantine is free, or they have it at hand.
    fn or_without_quarantine<T>(
        &self,
        size: Size,
        mut attempt: impl FnMut() -> Result<Option<T>, FabricError>,
    ) -> Result<T, NoRoom> {
        if let Ok(Some(taken)) = attempt() {
            return Ok(taken);
        }
        let second = {
            let mut quarantine = lock(&self.quarantine);
            for place in quarantine.take_all() {
                self.free(place);
            }
            #[cfg(any(shuttle, injected))]
            if crate::injected::EMPTIED_FOR_OTHERS.is_injected() {
                drop(quarantine);
            }
            attempt()
        };
        match second {
            Ok(Some(taken)) => Ok(taken),
            Ok(None) => Err(self.no_room(size, None)),
            Err(system) => Err(self.no_room(size, Some(Box::new(system)))),
        }
    }

    /// Takes up to `count` places of a class, at least one, into `ready`: of its slabs, else of a new one.
    /// `Ok(None)` if there are no pages for one.
    fn take_from_slabs(
        &self,
        class: usize,
        count: usize,
        ready: &mut Vec<u64>,
    ) -> Result<Option<()>, FabricError> {
        let mut slabs = lock(&self.classes[class]);
        slabs.take(count, ready);
        if ready.is_empty() {
            let Some(first) = self.take_pages(slabs.pages_per_slab())? else { return Ok(None) };
            slabs.add_slab(first);
            slabs.take(count, ready);
        }
        Ok(Some(()))
    }

    /// Takes a run of pages. `Ok(None)` if none is so long.
    fn take_pages(&self, count: u64) -> Result<Option<u64>, FabricError> {
        lock(&self.pages).take(count, |end| self.region.grow_to(end * PAGE_BYTES))
    }

    /// Makes the memory of a place free, at once.
    fn free(&self, place: BlockPlace) {
        match Size::of(place.lines) {
            Size::Class(class) => self.free_in_class(class, place.offset_lines),
            Size::Pages(pages) => lock(&self.pages).give_back(place.offset_lines / PAGE_LINES, pages),
        }
    }

    fn free_in_class(&self, class: usize, offset_lines: u64) {
        let mut slabs = lock(&self.classes[class]);
        if let Some(first) = slabs.give_back(offset_lines) {
            lock(&self.pages).give_back(first, slabs.pages_per_slab());
        }
    }

    /// Makes places that a writer had ready free.
    pub(crate) fn free_ready(&self, class: usize, ready: &mut Vec<u64>) {
        // Relaxed: statistics.
        self.ready_lines.fetch_sub(ready.len() as u64 * Size::Class(class).lines(), Ordering::Relaxed);
        for offset_lines in ready.drain(..) {
            self.free_in_class(class, offset_lines);
        }
    }

    /// Counts a block that a writer took, out of its ready places if it is not a long one.
    pub(crate) fn count_in(&self, place: BlockPlace) {
        let size = Size::of(place.lines);
        // Relaxed, here and below: statistics, and the quarantine's length.
        if matches!(size, Size::Class(_)) {
            self.ready_lines.fetch_sub(size.lines(), Ordering::Relaxed);
        }
        self.live_lines.fetch_add(place.lines.into(), Ordering::Relaxed);
        self.held_lines.fetch_add(size.lines(), Ordering::Relaxed);
        if place.lines >= REFERENCE_LINES_LONG {
            lock(&self.long_blocks).insert(place.offset_lines, place.lines);
        }
    }

    /// Counts a block that is live no more. Returns the lines of those that are.
    fn count_out(&self, place: BlockPlace) -> u64 {
        if place.lines >= REFERENCE_LINES_LONG {
            lock(&self.long_blocks).remove(&place.offset_lines);
        }
        let lines = u64::from(place.lines);
        self.held_lines.fetch_sub(Size::of(place.lines).lines(), Ordering::Relaxed);
        self.live_lines.fetch_sub(lines, Ordering::Relaxed) - lines
    }

    /// The refusal; it takes locks to say how full the space is, so its caller holds none.
    fn no_room(&self, size: Size, system: Option<Box<FabricError>>) -> NoRoom {
        let BlockStats { used_bytes, live_bytes, limit_bytes, .. } = self.stats();
        let (region, wanted_bytes) = (self.region.id(), size.lines() * LINE_BYTES as u64);
        NoRoom { region, wanted_bytes, limit_bytes, used_bytes, live_bytes, system }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked found a place freed twice; what it leaves is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
