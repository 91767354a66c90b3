//! How clients go on when a new node takes the place of a lost one.
//!
//! Invariant: the coordinator decides that the pool has the new node. A client that finds nodes with an older
//! list of nodes than others tells them of the newer one, before it works with any of them. They refuse that
//! if their pool has gone on without all who have it.
//!
//! While a node is taken in no compute node is let in. A client waits for that, within a bound.

use std::time::Duration;

use farsight_base::sync::Ordering;
use farsight_fabric::{Connection, FabricError};
use farsight_index_rolex::ComputeNodeLocks;
use farsight_protocol::{
    ComputeNode, ControlRequest, ErrorCode, Fenced, LeftOut, LostNodes, NodeHello, TakeIn,
};

use super::Nodes;
use crate::CatalogueError;

/// How long a client waits while a node is taken in, at most.
const TAKEN_IN_WITHIN: Duration = Duration::from_secs(10);
/// How long it waits for a node to end its compute nodes, at most.
const ENDED_WITHIN: Duration = Duration::from_secs(3);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// How many nodes their pool has taken in, as those know that know most.
pub(super) fn newest_term(hellos: &[NodeHello]) -> u32 {
    let of_pool = hellos.iter().filter(|hello| hello.place.is_some());
    of_pool.map(|hello| hello.term).max().unwrap_or(0)
}

impl<C: Connection> Nodes<C> {
    /// Gets this compute node its number, once compute nodes are let in.
    pub(super) fn register_when_open(&self, coordinator: u64) -> Result<ComputeNode, CatalogueError> {
        let mut waited = Duration::ZERO;
        loop {
            match self.register(coordinator) {
                Err(CatalogueError::Refused { source, .. })
                    if source.code == ErrorCode::TakingIn && waited < TAKEN_IN_WITHIN =>
                {
                    waited += PAUSE;
                    self.pause(0, PAUSE)?;
                }
                registered => return registered,
            }
        }
    }

    /// Has nodes that know of fewer nodes that were taken in go on with the list of the others.
    pub(super) fn spread_list(&self, hellos: &[NodeHello], term: u32) -> Result<(), CatalogueError> {
        let said = || self.places.iter().zip(hellos).filter(|(_, hello)| hello.place.is_some());
        let know = |(_, hello): &(&usize, &NodeHello)| hello.term == term;
        let by = LostNodes::of(said().filter(know).map(|(place, _)| *place));
        let Some(node) = hellos.iter().position(|hello| hello.place.is_some() && hello.term == term) else {
            return Ok(());
        };
        let knows = &hellos[node];
        let epochs = knows.place.as_ref().map(|place| place.epochs.clone()).unwrap_or_default();
        let addresses = self.map_of(node)?.addresses;
        let adopt = TakeIn::Adopt { epochs, term, lost: knows.lost, by, addresses };
        let behind = (0..self.count()).zip(hellos);
        for (node, _) in behind.filter(|(_, hello)| hello.place.is_some() && hello.term < term) {
            let request = ControlRequest::TakeIn(adopt.clone());
            let mut waited = Duration::ZERO;
            loop {
                match self.ask::<Fenced>(node, &request) {
                    Ok(Fenced::Done) => break,
                    Ok(Fenced::Wait { .. }) if waited < ENDED_WITHIN => {}
                    Ok(Fenced::Wait { why, .. }) => return Err(self.disconnected(node, why).into()),
                    Err(CatalogueError::Refused { source, .. }) => {
                        return Err(self.disconnected(node, source.to_string()).into());
                    }
                    Err(error) => return Err(error),
                }
                waited += PAUSE;
                self.pause(node, PAUSE)?;
            }
        }
        Ok(())
    }

    /// Gets the compute node its number that takes a node in.
    pub(crate) fn register_taker(&self, attempt: u64) -> Result<(), CatalogueError> {
        let (coordinator, lost) = (self.pool_name()?, self.lost);
        let request = ControlRequest::TakeIn(TakeIn::Register { attempt, lost });
        // Relaxed: as where others request it.
        self.has_requested.store(true, Ordering::Relaxed);
        let compute_node: ComputeNode = self.ask(0, &request)?;
        for node in 1..self.count() {
            self.ask::<()>(node, &ControlRequest::Announce { coordinator, compute_node, lost })?;
        }
        self.locks.get_or_init(|| ComputeNodeLocks::new(compute_node.0));
        Ok(())
    }

    fn disconnected(&self, node: usize, reason: String) -> FabricError {
        FabricError::Disconnected { peer: self.peer(node).to_owned(), reason }
    }

    /// A node that was started again has lost what it had: has the pool go on without it, if a table is known
    /// that does.
    pub(super) fn leave_out_restarted(&self, hellos: &[NodeHello]) -> Result<(), CatalogueError> {
        // Relaxed: as where it is set.
        if !self.has_replicas.load(Ordering::Relaxed) {
            return Ok(());
        }
        let term = newest_term(hellos);
        let known = hellos.iter().filter(|hello| hello.term == term).find_map(|hello| hello.place.as_ref());
        let Some(known) = known.filter(|known| known.epochs.len() == self.pool_size) else { return Ok(()) };
        let is_new = |(place, hello): &(&usize, &NodeHello)| {
            hello.place.is_none() && known.epochs[**place] != hello.epoch
        };
        let new = LostNodes::of(self.places.iter().zip(hellos).filter(is_new).map(|(place, _)| *place));
        let said = hellos.iter().fold(self.lost, |lost, hello| lost.and(hello.lost));
        let lost = said.and(new);
        if lost == said || !lost.leave_a_majority(self.pool_size) {
            return Ok(());
        }
        let others = (0..self.count()).filter(|node| !lost.contains(self.places[*node]));
        let refused = |error| self.of_refusal(error);
        for node in others {
            let mut waited = Duration::ZERO;
            while let LeftOut::Wait { why, .. } =
                self.ask::<LeftOut>(node, &ControlRequest::LeaveOut { lost, term }).map_err(refused)?
            {
                if waited >= ENDED_WITHIN {
                    return Err(self.disconnected(node, why).into());
                }
                waited += PAUSE;
                self.pause(node, PAUSE)?;
            }
        }
        Err(self.left_behind(lost).into())
    }
}
