//! Training of a pool's table, by any process that is asked to.

use std::error::Error;
use std::sync::Arc;

use farsight_fabric::lane::PoolLane;
use farsight_fabric::{Connection, QueuePair};
use farsight_index_rolex::{
    CoordinatorLines, GroupSizes, LinesError, Reclaimed, TrainError, Trained, Trainer,
};

use super::{meta_lines, session};
use crate::CatalogueError;
use crate::backend::Training;
use crate::nodes::{Known, Nodes};

/// Leaves that its session asks for at once, if ever: it splits none.
const LEAVES_A_CALL: u32 = 1;
/// Steps of training from one look at what compute nodes left that have ended to the next.
const STEPS_A_LOOK: u32 = 16;
/// Groups of one step of training.
const TRAIN_BUDGET: usize = 64;

/// A trainer of one table, with queue pairs of its own, one a memory node.
pub struct PoolTrainer<Q> {
    queues: Vec<Q>,
    trainer: Trainer,
    source: CoordinatorLines,
    /// Of [`Training`]: steps so far, and whether the last look gave something back.
    steps: u32,
    has_reclaimed: bool,
    /// Of [`Training`]: what the last step found no lines for.
    full: usize,
}

impl<Q: QueuePair> PoolTrainer<Q> {
    pub(crate) fn of<C: Connection<Queue = Q>>(
        nodes: &Arc<Nodes<C>>,
        known: &Known<C>,
        sizes: GroupSizes,
    ) -> Result<Self, CatalogueError> {
        nodes.check_usable()?;
        let session = session(nodes, known, LEAVES_A_CALL)?;
        let queues = nodes.queues(known)?;
        let trainer = Trainer::with_sizes(session, sizes);
        let source = CoordinatorLines::new(known.info.id, meta_lines(&known.infos[0]));
        Ok(Self { queues, trainer, source, steps: 0, has_reclaimed: false, full: 0 })
    }

    /// Trains up to `budget` groups whose leaves have split or lost their last pair; the latter are merged
    /// into others.
    ///
    /// # Errors
    /// [`TrainError`]. What was published stays, and other trainers go on.
    pub fn step(&mut self, budget: usize) -> Result<Trained, TrainError<LinesError>> {
        let Self { queues, trainer, source, .. } = self;
        let lane = PoolLane::new(queues);
        lane.block_on(async |slot| trainer.step(&slot, source, budget).await)?
    }

    /// Trains until nothing is left to train, or `steps` steps.
    ///
    /// # Errors
    /// As [`PoolTrainer::step`].
    pub fn catch_up(&mut self, steps: usize, budget: usize) -> Result<(), TrainError<LinesError>> {
        for _ in 0..steps {
            if self.step(budget)?.is_all() {
                break;
            }
        }
        Ok(())
    }

    /// Looks at some of what compute nodes that have ended left of the table, and gives back what is of no
    /// use.
    ///
    /// # Errors
    /// As [`PoolTrainer::step`].
    pub fn reclaim(&mut self) -> Result<Reclaimed, TrainError<LinesError>> {
        let Self { queues, trainer, .. } = self;
        let lane = PoolLane::new(queues);
        lane.block_on(async |slot| trainer.reclaim(&slot).await)?
    }
}

impl<Q: QueuePair + Send> Training for PoolTrainer<Q> {
    fn step(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        // First, for training may want the very lines that dead trainers left.
        if self.has_reclaimed || self.steps.is_multiple_of(STEPS_A_LOOK) {
            self.has_reclaimed = self.reclaim()? != Reclaimed::default();
        }
        let step = PoolTrainer::step(self, TRAIN_BUDGET)?;
        self.steps = self.steps.wrapping_add(1);
        self.full = step.full;
        // Nobody hurries for leaves that do not come to rest, nor for lines that there are not.
        Ok(Trained { resting: 0, full: 0, ..step } != Trained::default() || self.has_reclaimed)
    }

    fn full(&self) -> usize {
        self.full
    }
}
