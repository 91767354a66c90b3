//! Which node a directory of data is, in which pool, and which lives of the other nodes it was told of.
//!
//! Invariant: a directory is one node in all of its lives. Before a client writes to a node of a pool, each
//! other node has durably met that node's life. So if a node comes back with a directory from before that
//! life, another one knows a life that the directory never had.
//!
//! Nodes do not talk to each other: clients carry what each says of itself to the others.

use std::collections::BTreeSet;

use farsight_base::Epoch;
use farsight_durability::{DirectoryLife, Membership, PoolNode};
use farsight_protocol::{Blocks, ErrorCode, NodeLife, NodeLives, PoolPlace, ServerError, TableId};

use super::{Durable, refused};
use crate::rolex::Runs;

/// Dropped tables, and runs of their numbers, that a directory keeps at most.
const DROPPED_MAX: usize = 1 << 16;

impl Durable {
    /// The epoch of the directory's first life: the node's in pools.
    pub(crate) fn origin(&self) -> Epoch {
        Epoch(self.store().catalogue().membership.origin)
    }

    /// Its place in its pool, once there was a table.
    pub(crate) fn place(&self) -> Option<PoolPlace> {
        let store = self.store();
        let Membership { nodes, index, .. } = &store.catalogue().membership;
        let epochs: Vec<u64> = nodes.iter().map(|node| node.origin).collect();
        // A directory that says otherwise was not written by this program.
        let place = PoolPlace { epochs, index: *index as u8 };
        place.is_sound().then_some(place)
    }

    /// Tables that were dropped, and at the other nodes perhaps not yet.
    pub(crate) fn dropped(&self) -> BTreeSet<TableId> {
        self.store().catalogue().membership.dropped.iter().map(|number| TableId(*number)).collect()
    }

    /// The numbers of which no table is made again.
    pub(crate) fn forgotten(&self) -> Runs<()> {
        let mut runs = Runs::default();
        for (first, count) in &self.store().catalogue().membership.forgotten {
            let run = Blocks { first: *first, count: *count };
            runs.remove(run);
            runs.insert(run, ());
        }
        runs
    }

    /// This life, and those of the others that it was told of.
    pub(crate) fn lives(&self) -> NodeLives {
        let store = self.store();
        let catalogue = store.catalogue();
        let epoch = catalogue.membership.lives.last().copied().unwrap_or_default();
        let met = catalogue.membership.nodes.iter().map(|node| node.met.map(life_of)).collect();
        NodeLives { own: Some(NodeLife { number: catalogue.incarnation, epoch }), met }
    }

    /// Whether the directory has had this life. One that is too long ago to tell counts as one of it.
    pub(crate) fn has_lived(&self, life: NodeLife) -> bool {
        let store = self.store();
        let catalogue = store.catalogue();
        let Some(since) = catalogue.incarnation.checked_sub(life.number) else { return false };
        let epoch = catalogue.membership.lives.iter().rev().nth(since as usize);
        epoch.is_none_or(|epoch| *epoch == life.epoch)
    }

    /// Keeps the lives of the pool's nodes, in their order. A life before that which was met is a late
    /// client's, and passed over.
    pub(crate) fn meet(&self, lives: &[NodeLife]) -> Result<(), ServerError> {
        let mut store = self.store();
        let Membership { nodes, index, .. } = &store.catalogue().membership;
        if nodes.len() != lives.len() {
            let text = format!("this node's pool has {} nodes, not {}", nodes.len(), lives.len());
            return Err(ServerError::new(ErrorCode::OtherPool, text));
        }
        let mut met = nodes.clone();
        for (at, (node, life)) in met.iter_mut().zip(lives).enumerate() {
            match node.met {
                Some(former) if former.number == life.number && former.epoch != life.epoch => {
                    return Err(other_life(at, former, *life));
                }
                Some(former) if former.number >= life.number => {}
                _ if at == *index as usize => {}
                _ => node.met = Some(DirectoryLife { number: life.number, epoch: life.epoch }),
            }
        }
        if met == *nodes {
            return Ok(());
        }
        store.change(|catalogue| catalogue.membership.nodes = met).map_err(|error| refused(&error))
    }

    /// Takes a table out of the catalogue. If its pool has other nodes, the coordinator notes that they may
    /// have it still.
    pub(crate) fn drop_table(&self, id: TableId, has_others: bool) -> Result<(), ServerError> {
        let mut store = self.store();
        let waiting = store.catalogue().membership.dropped.len();
        if has_others && waiting >= DROPPED_MAX {
            let text = format!("{waiting} tables were dropped here, and not at the pool's other nodes yet");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        #[cfg(injected)]
        let has_others = has_others && !crate::injected::DROP_NOT_KEPT.is_injected();
        let dropped = store.drop_tables(&[id.0], |membership| {
            if has_others {
                membership.dropped.insert(id.0);
            }
        });
        dropped.map_err(|error| refused(&error))
    }

    /// Takes tables out of the catalogue that the coordinator has dropped; `forgotten` are all such numbers.
    pub(crate) fn forget_tables(&self, ids: &[TableId], forgotten: &Runs<()>) -> Result<(), ServerError> {
        let runs: Vec<(u32, u32)> = forgotten.iter().map(|(run, ())| (run.first, run.count)).collect();
        if runs.len() > DROPPED_MAX {
            let text = format!("a node remembers {DROPPED_MAX} runs of dropped tables at most");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        let forgot = self.store().drop_tables(&ids, |membership| membership.forgotten = runs);
        forgot.map_err(|error| refused(&error))
    }

    /// Notes that the pool's other nodes have dropped these, too.
    pub(crate) fn end_drops(&self, ids: &[TableId]) -> Result<(), ServerError> {
        let mut store = self.store();
        let changed = store.change(|catalogue| {
            for id in ids {
                catalogue.membership.dropped.remove(&id.0);
            }
        });
        changed.map_err(|error| refused(&error))
    }
}

/// The nodes of a place, of which none was met.
pub(super) fn nodes_of(place: &PoolPlace) -> Vec<PoolNode> {
    place.epochs.iter().map(|origin| PoolNode { origin: *origin, met: None }).collect()
}

fn life_of(life: DirectoryLife) -> NodeLife {
    NodeLife { number: life.number, epoch: life.epoch }
}

fn other_life(node: usize, met: DirectoryLife, got: NodeLife) -> ServerError {
    let text = format!(
        "node number {} of the pool was met in its life {} with {}; one with {} is of another copy of its \
         directory of data",
        node + 1,
        met.number,
        Epoch(met.epoch),
        Epoch(got.epoch)
    );
    ServerError::new(ErrorCode::OtherPool, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farsight_durability::disk::SimulatedDisk;

    use super::*;
    use crate::DataOptions;

    fn begin(disk: &SimulatedDisk, epoch: u64) -> Arc<Durable> {
        Durable::open(&DataOptions::new(Arc::new(disk.clone())), Epoch(epoch), u64::MAX).expect("a directory")
    }

    #[test]
    fn later_lives_know_what_other_nodes_have_still() {
        let disk = SimulatedDisk::default();
        let first = begin(&disk, 70);
        first.drop_table(TableId(3), true).expect("durable");
        first.drop_table(TableId(4), false).expect("durable");
        let second = begin(&disk.crash(1), 71);
        assert_eq!(second.dropped(), BTreeSet::from([TableId(3)]));
        let disk = disk.crash(2);
        begin(&disk, 72).end_drops(&[TableId(3)]).expect("durable");
        assert!(begin(&disk.crash(3), 73).dropped().is_empty());
    }

    /// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
    #[cfg(injected)]
    #[test]
    fn a_drop_that_is_forgotten() {
        farsight_base::injection::assert_found(
            &crate::injected::DROP_NOT_KEPT,
            later_lives_know_what_other_nodes_have_still,
        );
    }
}
