//! Places for objects: of a space that nobody else has used, or what is left of one that another node gave
//! out.
//!
//! Of the second kind a node knows the objects that slots name. All lines between them are free, in runs of
//! any length.

use std::sync::Arc;

use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_blocks::{BlockSpace, BlockStats, BlockWriter, NoRoom, Pages};
use farsight_fabric::Region;
use farsight_layout::value_block::BlockPlace;

/// Where objects may stand.
pub(super) enum Places {
    /// In slabs of a space.
    Slabs(Box<BlockWriter>),
    /// In runs of lines.
    Runs(LineRuns),
}

/// The lines of a region.
pub(super) struct LineRuns {
    region: Arc<dyn Region>,
    lines: Pages,
    live_lines: u64,
}

impl Places {
    /// Those of a space that is not used.
    pub(super) fn new(space: Arc<BlockSpace>) -> Self {
        Self::Slabs(Box::new(BlockWriter::new(space)))
    }

    /// Those of a region that has such objects: first lines in their order, and lines.
    pub(super) fn with_taken(region: Arc<dyn Region>, taken: &[(u64, u64)]) -> Self {
        let limit = (region.words().len() / WORDS_PER_LINE) as u64;
        let lines = Pages::with_taken(limit, taken.iter().copied());
        Self::Runs(LineRuns { region, lines, live_lines: taken.iter().map(|(_, lines)| lines).sum() })
    }

    /// Takes a place of so many lines: its first line.
    pub(super) fn allocate(&mut self, lines: u8) -> Result<u64, NoRoom> {
        match self {
            Self::Slabs(writer) => Ok(writer.allocate(lines.into())?.offset_lines),
            Self::Runs(runs) => runs.allocate(lines.into()),
        }
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, offset_lines: u64, lines: u8) {
        match self {
            Self::Slabs(writer) => {
                let space = writer.space().number();
                writer.give_back(BlockPlace { space, offset_lines, lines: lines.into() });
            }
            Self::Runs(runs) => {
                runs.lines.give_back(offset_lines, lines.into());
                runs.live_lines -= u64::from(lines);
            }
        }
    }

    /// Where the bytes are.
    pub(super) fn stats(&self) -> BlockStats {
        match self {
            Self::Slabs(writer) => writer.space().stats(),
            Self::Runs(runs) => {
                let bytes = |lines: u64| lines * LINE_BYTES as u64;
                BlockStats {
                    live_bytes: bytes(runs.live_lines),
                    free_bytes: bytes(runs.lines.free_pages()),
                    used_bytes: bytes(runs.lines.used()),
                    limit_bytes: runs.limit_bytes(),
                    ..BlockStats::default()
                }
            }
        }
    }
}

impl LineRuns {
    fn allocate(&mut self, lines: u64) -> Result<u64, NoRoom> {
        let taken: Result<Option<u64>, std::convert::Infallible> = self.lines.take(lines, |_| Ok(()));
        let Ok(taken) = taken;
        let bytes = |lines: u64| lines * LINE_BYTES as u64;
        let first = taken.ok_or_else(|| NoRoom {
            region: self.region.id(),
            wanted_bytes: bytes(lines),
            limit_bytes: self.limit_bytes(),
            used_bytes: bytes(self.lines.used()),
            live_bytes: bytes(self.live_lines),
            system: None,
        })?;
        self.live_lines += lines;
        Ok(first)
    }

    fn limit_bytes(&self) -> u64 {
        self.region.words().len() as u64 * 8
    }
}
