//! GETs in a staged batch: each step is a loop over the keys, with one doorbell a memory node between them.
//!
//! Invariant: what this answers the lane's GET ([`super::get`]) would, by the same view of the same lines.
//! Keys with several candidates, and whatever does not come out at the first try, are left to it.

use farsight_base::Line;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::pool::{BlockSearch, search_block};

use crate::{NODES_MAX, RolexError, RolexSession};

impl RolexSession {
    /// The values of `keys` into `answers`, from answer `first` on; the numbers of those that are left to the
    /// lane into `irregular`. There are no more keys than a queue pair has slots.
    pub(crate) fn get_staged<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        first: usize,
        answers: &mut Answers,
        irregular: &mut Vec<usize>,
    ) -> Result<(), RolexError> {
        debug_assert!(keys.len() <= Q::SLOTS, "{} keys", keys.len());
        let geometry = self.table().geometry();
        let leaf_lines = geometry.leaf().leaf_lines();
        let mut posted = [0; NODES_MAX];
        let mut places = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            let candidates = self.hints.predict(*key);
            let [place] = candidates.as_ref().map_or(&[][..], |candidates| candidates.leaves()) else {
                irregular.push(first + index);
                continue;
            };
            let (node, slot) = (place.node(), posted[place.node()]);
            posted[node] += 1;
            queues[node].post_read(slot, self.table().address(*place, 0), leaf_lines, ReadMode::Stamped);
            places.push((index, node, slot));
        }
        for (queue, _) in queues.iter_mut().zip(posted).filter(|(_, posted)| *posted > 0) {
            queue.doorbell()?;
        }
        for (queue, _) in queues.iter_mut().zip(posted).filter(|(_, posted)| *posted > 0) {
            queue.settle()?;
        }
        let mut lines = vec![Line::ZERO; leaf_lines];
        for (index, node, slot) in places {
            queues[node].take_read(slot, &mut lines)?;
            match search_block(geometry, &lines, keys[index], answers.value_mut(first + index)) {
                BlockSearch::Hit(version) => answers.set_version(first + index, version),
                BlockSearch::Absent => {}
                _ => irregular.push(first + index),
            }
        }
        Ok(())
    }
}
