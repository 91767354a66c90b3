//! READs of blocks: many at once, over the queue pairs of all parts.
//!
//! Invariant: a value is handed on only if its block's checksum fits, and if version, table and key are those
//! wanted. References come from peers: where they lead is checked before it is read.

use std::collections::VecDeque;
use std::ops::Range;

use farsight_base::words::bytes_of;
use farsight_base::{Line, RegionId};
use farsight_fabric::chained::line_address;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::value_block::{BlockIdentity, BlockRef, ValueBlock};
use farsight_protocol::{Space, TableInfo};

use super::super::refresh::request_slot;

/// Lines of one READ at most: a longer block takes several, all at once.
const READ_LINES_MAX: usize = 256;
/// Lines of blocks that are read together, unless one has more: 1 MiB.
const TOGETHER_LINES_MAX: usize = 1 << 14;

/// READs of blocks, with what they need from batch to batch.
pub(super) struct Reading {
    parts: Vec<PartBlocks>,
    /// The low bits of the table's number, as blocks have them.
    table: u16,
    wanted: Vec<Wanted>,
    /// The block that is looked at.
    lines: Vec<Line>,
    /// READs under way, of one block after the other: part, slot, and lines.
    posted: VecDeque<(usize, usize, usize)>,
}

/// The blocks of one part.
struct PartBlocks {
    region: RegionId,
    lines: u64,
    /// Slots of its queue that READs under way use.
    used: usize,
}

/// A block to be read.
#[derive(Clone, Copy)]
struct Wanted {
    index: usize,
    part: usize,
    key: u64,
    version: u64,
    reference: BlockRef,
    /// Its lines; none if there is no block.
    lines: usize,
}

impl Reading {
    /// Of a table whose parts are described so.
    pub(super) fn new<'t>(parts: impl Iterator<Item = &'t TableInfo> + Clone) -> Self {
        let table = parts.clone().next().map_or(0, |info| info.id.0 as u16);
        // A node that names no region has no blocks there.
        let blocks = |info: &TableInfo| {
            let region = info.region_of(Space::Blocks).map(|region| (region.id(), region.capacity.into()));
            let (region, lines) = region.unwrap_or((RegionId(0), 0));
            PartBlocks { region, lines, used: 0 }
        };
        let parts = parts.map(blocks).collect();
        Self { parts, table, wanted: Vec::new(), lines: Vec::new(), posted: VecDeque::new() }
    }

    /// Wants the block of a key at `part`, whose reference stands in `value`, under the number `index`.
    pub(super) fn want(&mut self, index: usize, part: usize, key: u64, version: u64, value: &[u8]) {
        let reference = BlockRef(u64::from_le_bytes(value.try_into().expect("a reference is one word")));
        let is_named = reference.is_live() && reference.space() == 0;
        // Of a long block its first line is read first.
        let lines = if is_named { reference.lines().unwrap_or(1) as usize } else { 0 };
        let mut wanted = Wanted { index, part, key, version, reference, lines };
        self.parts[part].cut(&mut wanted);
        self.wanted.push(wanted);
    }

    /// READs what is wanted. Hands number, version and value on of each block that is what it should be, and
    /// puts the numbers of the others into `left`.
    pub(super) fn read<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        left: &mut Vec<usize>,
        mut found: impl FnMut(usize, u64, &[u8]),
    ) -> Result<(), FabricError> {
        let mut wanted = std::mem::take(&mut self.wanted);
        let table = self.table;
        let read = self.read_lengths(queues, &mut wanted).and_then(|()| {
            let all = |_: &Wanted| true;
            self.read_group(queues, &mut wanted, all, |wanted, block| {
                let key = wanted.key.to_le_bytes();
                let asked = BlockIdentity { table, version: wanted.version, key: &key };
                match ValueBlock::value_of(bytes_of(block), asked) {
                    Ok(value) => found(wanted.index, wanted.version, value),
                    Err(_) => left.push(wanted.index),
                }
            })
        });
        wanted.clear();
        self.wanted = wanted;
        read
    }

    /// READs the first lines of long blocks, which say their lengths.
    fn read_lengths<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        wanted: &mut [Wanted],
    ) -> Result<(), FabricError> {
        let is_long = |wanted: &Wanted| wanted.lines > 0 && wanted.reference.lines().is_none();
        if !wanted.iter().any(is_long) {
            return Ok(());
        }
        self.read_group(queues, wanted, is_long, |wanted, first| {
            wanted.lines = ValueBlock::lines_said(bytes_of(first)).unwrap_or(0);
        })?;
        for wanted in wanted {
            self.parts[wanted.part].cut(wanted);
        }
        Ok(())
    }

    /// READs the blocks of a group, and hands each on while it is in the nearest cache. Those whose READs fit
    /// into the queues together are under way together.
    fn read_group<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        wanted: &mut [Wanted],
        is_in_group: impl Fn(&Wanted) -> bool,
        mut each: impl FnMut(&mut Wanted, &[Line]),
    ) -> Result<(), FabricError> {
        let mut rest = wanted;
        while !rest.is_empty() {
            self.begin();
            let (mut end, mut lines) = (0, 0);
            for wanted in rest.iter() {
                if is_in_group(wanted) {
                    if !self.has_room::<Q>(wanted, lines) {
                        break;
                    }
                    lines += wanted.lines;
                    self.post(queues, wanted, 0..wanted.lines);
                }
                end += 1;
            }
            if end == 0 {
                // It is too long for the queues, even alone.
                let lines = rest[0].lines;
                self.read_long(queues, &rest[0])?;
                each(&mut rest[0], &self.lines[..lines]);
                rest = &mut rest[1..];
                continue;
            }
            self.await_posted(queues)?;
            let (batch, behind) = rest.split_at_mut(end);
            for wanted in batch.iter_mut().filter(|wanted| is_in_group(wanted)) {
                let lines = wanted.lines;
                self.take(queues, 0..lines)?;
                each(wanted, &self.lines[..lines]);
            }
            rest = behind;
        }
        Ok(())
    }

    /// READs a block in several batches.
    fn read_long<Q: QueuePair>(&mut self, queues: &mut [Q], wanted: &Wanted) -> Result<(), FabricError> {
        let batch = request_slot::<Q>() * READ_LINES_MAX;
        for first in (0..wanted.lines).step_by(batch) {
            self.begin();
            let lines = first..wanted.lines.min(first + batch);
            self.post(queues, wanted, lines.clone());
            self.await_posted(queues)?;
            self.take(queues, lines)?;
        }
        Ok(())
    }

    /// Begins a batch: what a failed one left is nobody's.
    fn begin(&mut self) {
        self.posted.clear();
        self.parts.iter_mut().for_each(|part| part.used = 0);
    }

    /// True if the block's READs go with those that were posted, of so many lines.
    fn has_room<Q: QueuePair>(&self, wanted: &Wanted, lines: usize) -> bool {
        let reads = wanted.lines.div_ceil(READ_LINES_MAX);
        let has_slots = self.parts[wanted.part].used + reads <= request_slot::<Q>();
        has_slots && (lines == 0 || lines + wanted.lines <= TOGETHER_LINES_MAX)
    }

    /// Posts READs of these lines of a block.
    fn post<Q: QueuePair>(&mut self, queues: &mut [Q], wanted: &Wanted, lines: Range<usize>) {
        for first in lines.clone().step_by(READ_LINES_MAX) {
            let part = &mut self.parts[wanted.part];
            let count = (lines.end - first).min(READ_LINES_MAX);
            let from = line_address(part.region, wanted.reference.offset_lines() + first as u64);
            queues[wanted.part].post_read(part.used, from, count, ReadMode::Plain);
            self.posted.push_back((wanted.part, part.used, count));
            part.used += 1;
        }
    }

    /// Takes the oldest READs, which bring these lines of a block.
    fn take<Q: QueuePair>(&mut self, queues: &mut [Q], lines: Range<usize>) -> Result<(), FabricError> {
        if self.lines.len() < lines.end {
            self.lines.resize(lines.end, Line::ZERO);
        }
        let mut begin = lines.start;
        while begin < lines.end {
            let (part, slot, count) = self.posted.pop_front().expect("as many READs as were posted");
            queues[part].take_read(slot, &mut self.lines[begin..begin + count])?;
            begin += count;
        }
        Ok(())
    }

    /// Rings for all that was posted, and waits for it.
    fn await_posted<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), FabricError> {
        let used = |part: usize| self.parts[part].used > 0;
        for (part, queue) in queues.iter_mut().enumerate() {
            if used(part) {
                queue.doorbell()?;
            }
        }
        for (part, queue) in queues.iter_mut().enumerate() {
            if used(part) {
                queue.drain()?;
            }
        }
        Ok(())
    }
}

impl PartBlocks {
    /// Makes it no block if it is not in the region.
    fn cut(&self, wanted: &mut Wanted) {
        let end = wanted.reference.offset_lines().checked_add(wanted.lines as u64);
        if end.is_none_or(|end| end > self.lines) {
            wanted.lines = 0;
        }
    }
}
