//! Training of a pool's table, by any process that is asked to.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolLane;
use farsight_index_rolex::{HomeLines, LinesError, TrainError, Trained, Trainer};

use super::PoolLinks;

/// A trainer of one table, with queue pairs of its own.
pub struct PoolTrainer<Q> {
    links: PoolLinks<Q>,
    trainer: Trainer,
    source: HomeLines,
}

impl<Q: QueuePair> PoolTrainer<Q> {
    pub(crate) fn new(links: PoolLinks<Q>) -> Self {
        let trainer = Trainer::new(links.cache.table().clone(), links.cache.meta());
        let source = HomeLines::new(links.infos[0].id);
        Self { links, trainer, source }
    }

    /// Trains up to `budget` groups whose leaves have split.
    ///
    /// # Errors
    /// [`TrainError`]. What was published stays, and other trainers go on.
    pub fn step(&mut self, budget: usize) -> Result<Trained, TrainError<LinesError>> {
        let Self { links, trainer, source } = self;
        let lane = PoolLane::new(&mut links.queues);
        lane.block_on(async |slot| trainer.step(&slot, source, budget).await)?
    }

    /// Trains until nothing is left to train, or `steps` steps.
    ///
    /// # Errors
    /// As [`PoolTrainer::step`].
    pub fn catch_up(&mut self, steps: usize, budget: usize) -> Result<(), TrainError<LinesError>> {
        for _ in 0..steps {
            let Trained { groups, lost, directories, waiting, .. } = self.step(budget)?;
            if groups + lost + directories + waiting == 0 {
                break;
            }
        }
        Ok(())
    }
}
