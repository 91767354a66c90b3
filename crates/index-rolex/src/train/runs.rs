//! Runs of lines that hold directories, one after the other.
//!
//! Invariant: a run that was pinned holds directories of one capacity and nothing else, for ever, and only
//! the trainer that pinned it ever writes one there. So whatever slow compute nodes still do to a directory
//! that stood in it hits words of the same kind. An addition hits a counter: one training too many. An
//! exchange of a pointer finds its expected word only if the same image is named at the same place. Then the
//! slot is frozen once more, which another trainer takes over, or names a newer image of that group. If the
//! image's lines hold another group's by then, under the same generation, the slot names an image that is
//! none of its group until a trainer finds that ([`stale`](super::stale)).
//!
//! A run is reused after two newer directories. The maker of the next one READs the old counters once more
//! when that is published. It finds them as they were left if there is no newer directory behind the READ. So
//! a trainer has at most three runs of a capacity; those of one that has ended are lost.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::learned::{Directory, DirectoryShape, RootWord};
use farsight_protocol::{Blocks, Claim, Space};

use super::{LineSource, TrainError, Trainer};
use crate::RolexError;
use crate::cache::fetch::META_NODE;
use crate::transfer::write_words;

/// Directories that follow one before its run is used again.
const DIRECTORIES_BEHIND: u32 = 2;

#[derive(Debug)]
struct Run {
    line: u32,
    capacity: u32,
    /// The last directory published there; 0: none was, so nobody knows of the run.
    number: u32,
}

/// A trainer's runs.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// The first line of a run for directory `number`.
    fn find(&self, number: u32, capacity: u32) -> Option<u32> {
        let is_idle = |run: &&Run| run.number == 0 || number - run.number > DIRECTORIES_BEHIND;
        Some(self.0.iter().filter(|run| run.capacity == capacity).find(is_idle)?.line)
    }

    /// Notes that the directory of this root is published.
    pub(super) fn note_published(&mut self, root: RootWord) {
        if let Some(run) = self.0.iter_mut().find(|run| Some(run.line) == root.line()) {
            run.number = root.number();
        }
    }
}

impl Trainer {
    /// Writes a directory into a run of this trainer's, where nobody looks for it yet; gives the run's first
    /// line.
    pub(super) async fn write_directory<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        directory: &Directory,
    ) -> Result<u32, TrainError<S::Error>> {
        let shape = directory.shape();
        let line = self.run_for(slot, source, directory.number, shape).await?;
        for (word, words) in [(0, directory.head_words()), (shape.slot_word(0), directory.slot_words())] {
            write_words(slot, META_NODE, self.meta.address(line, word), &words).await?;
        }
        Ok(line)
    }

    /// The first line of a run of this trainer's for directory `number`, of this shape.
    pub(super) async fn run_for<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        number: u32,
        shape: DirectoryShape,
    ) -> Result<u32, TrainError<S::Error>> {
        match self.runs.find(number, shape.capacity()) {
            Some(line) => Ok(line),
            None => self.pin_run(slot, source, shape).await,
        }
    }

    async fn pin_run<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        shape: DirectoryShape,
    ) -> Result<u32, TrainError<S::Error>> {
        let line = self.take_lines(slot, source, shape.run_lines()).await?;
        let lines = [Blocks { first: line, count: shape.run_lines() as u32 }];
        let pinned = self.session.calls.pin(META_NODE, (Space::Meta, Claim::ALLOCATED), &lines);
        pinned.map_err(|source| RolexError::of_call("lines of a directory", source))?;
        self.runs.0.push(Run { line, capacity: shape.capacity(), number: 0 });
        Ok(line)
    }
}
