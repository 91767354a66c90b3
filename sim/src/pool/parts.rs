//! The judges that look at an XStore-D table after its last fault: those of a server, at each memory node.

use farsight_fabric_sim::Kind;

use super::{JudgedPool, Stage};
use crate::classes::{Coverage, Mark};
use crate::cluster::PartedPool;
use crate::look_back::{check_all_gone, check_counts, check_pairs, look_back, remember};

impl<K: Kind> JudgedPool<K> for PartedPool<K> {
    fn remember(stage: &Stage<'_, K, Self>) -> Result<(), String> {
        remember(&stage.bystander)
    }

    fn look_back(stage: &Stage<'_, K, Self>, _met: &Coverage) -> Result<u64, String> {
        let found = look_back(&stage.bystander)?;
        let (mut pairs, mut splits) = (0, 0);
        for node in stage.pools.current() {
            let table = check_counts(node.stats(), &node.regions(), false)?;
            let part = table.part();
            pairs += part.tree.pairs;
            splits += part.tree.splits;
            let trained = part.model.retrained + part.model.generation.saturating_sub(1);
            stage.bystander.journal.mark(Mark::Retrained, trained);
        }
        check_pairs(pairs, found)?;
        check_all_gone(&stage.bystander)?;
        Ok(splits)
    }
}
