//! READs of blocks: many at once, over the queue pairs of all parts.
//!
//! Invariant: a value is handed on only if its block's checksum fits, and if version, table and key are those
//! wanted. References come from peers: where they lead is checked before it is read.

use std::ops::Range;

use farsight_base::words::bytes_of;
use farsight_base::{Line, RegionId};
use farsight_fabric::chained::line_address;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::value_block::{BlockIdentity, BlockRef, ValueBlock};
use farsight_protocol::{Space, TableInfo};

use super::super::refresh::request_slot;

/// Lines of one READ at most: a longer block takes several, all at once.
pub(super) const READ_LINES_MAX: usize = 256;
/// Lines of blocks that are read together, unless one has more: 1 MiB.
const TOGETHER_LINES_MAX: usize = 1 << 14;

/// READs of blocks, with what they need from batch to batch.
pub(super) struct Reading {
    parts: Vec<PartBlocks>,
    /// The low bits of the table's number, as blocks have them.
    table: u16,
    wanted: Vec<Wanted>,
    lines: Vec<Line>,
    /// READs under way: part, slot, and the lines that each fills.
    posted: Vec<(usize, usize, Range<usize>)>,
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
        Self { parts, table, wanted: Vec::new(), lines: Vec::new(), posted: Vec::new() }
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

    /// READs what is wanted, in its order, as long as the values have fewer bytes than that. Hands number,
    /// version and value on of each block that is what it should be, and puts the numbers of the others into
    /// `left`. Returns how many blocks were READ, at least one if any was wanted; the others are wanted no
    /// more.
    pub(super) fn read<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        bytes_max: usize,
        left: &mut Vec<usize>,
        mut found: impl FnMut(usize, u64, &[u8]),
    ) -> Result<usize, FabricError> {
        let mut wanted = std::mem::take(&mut self.wanted);
        let read = self.read_lengths(queues, &mut wanted).and_then(|()| {
            let (mut rest, mut bytes) = (&wanted[..], 0);
            while !rest.is_empty() && (bytes == 0 || bytes < bytes_max) {
                let (group, behind) = rest.split_at(together(rest));
                self.read_group(queues, group.iter())?;
                let mut lines = &self.lines[..];
                for wanted in group {
                    let (block, later) = lines.split_at(wanted.lines);
                    lines = later;
                    let key = wanted.key.to_le_bytes();
                    let asked = BlockIdentity { table: self.table, version: wanted.version, key: &key };
                    match ValueBlock::value_of(bytes_of(block), asked) {
                        Ok(value) => {
                            bytes += value.len();
                            found(wanted.index, wanted.version, value);
                        }
                        Err(_) => left.push(wanted.index),
                    }
                }
                rest = behind;
            }
            Ok(wanted.len() - rest.len())
        });
        wanted.clear();
        self.wanted = wanted;
        // The longest values' memory is not kept.
        self.lines.truncate(TOGETHER_LINES_MAX);
        self.lines.shrink_to(TOGETHER_LINES_MAX);
        read
    }

    /// READs the first lines of long blocks, which say their lengths.
    fn read_lengths<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        wanted: &mut [Wanted],
    ) -> Result<(), FabricError> {
        let is_long = |wanted: &&mut Wanted| wanted.lines > 0 && wanted.reference.lines().is_none();
        if !wanted.iter_mut().any(|wanted| is_long(&&mut *wanted)) {
            return Ok(());
        }
        self.read_group(queues, wanted.iter().filter(|wanted| wanted.reference.lines().is_none()))?;
        let mut lines = &self.lines[..];
        for wanted in wanted.iter_mut().filter(is_long) {
            let (first, later) = lines.split_at(1);
            lines = later;
            let key = wanted.key.to_le_bytes();
            let asked = BlockIdentity { table: self.table, version: wanted.version, key: &key };
            wanted.lines = ValueBlock::lines_said(bytes_of(first), asked).unwrap_or(0);
            self.parts[wanted.part].cut(wanted);
        }
        Ok(())
    }

    /// READs blocks, one behind the other into the lines.
    fn read_group<'w, Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        group: impl Iterator<Item = &'w Wanted> + Clone,
    ) -> Result<(), FabricError> {
        // What a failed batch left is nobody's.
        self.posted.clear();
        self.parts.iter_mut().for_each(|part| part.used = 0);
        self.lines.resize(group.clone().map(|wanted| wanted.lines).sum(), Line::ZERO);
        let mut begin = 0;
        for wanted in group {
            for first in (0..wanted.lines).step_by(READ_LINES_MAX) {
                if self.parts[wanted.part].used == request_slot::<Q>() {
                    self.take_posted(queues)?;
                }
                let part = &mut self.parts[wanted.part];
                let count = (wanted.lines - first).min(READ_LINES_MAX);
                let from = line_address(part.region, wanted.reference.offset_lines() + first as u64);
                queues[wanted.part].post_read(part.used, from, count, ReadMode::Plain);
                self.posted.push((wanted.part, part.used, begin + first..begin + first + count));
                part.used += 1;
            }
            begin += wanted.lines;
        }
        self.take_posted(queues)
    }

    /// Rings for all that was posted, and waits for it.
    fn take_posted<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), FabricError> {
        let used = |parts: &[PartBlocks], part: usize| parts[part].used > 0;
        for (part, queue) in queues.iter_mut().enumerate() {
            if used(&self.parts, part) {
                queue.doorbell()?;
            }
        }
        for (part, queue) in queues.iter_mut().enumerate() {
            if used(&self.parts, part) {
                queue.drain()?;
                self.parts[part].used = 0;
            }
        }
        for (part, slot, lines) in self.posted.drain(..) {
            queues[part].take_read(slot, &mut self.lines[lines])?;
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

/// How many blocks are read together, the first ones.
fn together(wanted: &[Wanted]) -> usize {
    let mut lines = 0;
    let fits = |wanted: &&Wanted| {
        lines += wanted.lines;
        lines <= TOGETHER_LINES_MAX
    };
    wanted.iter().take_while(fits).count().max(1)
}
