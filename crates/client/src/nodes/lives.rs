//! Which lives of its nodes a pool is in, where nodes keep their tables in directories of data.
//!
//! Invariant: before this client works on a table, each node has durably met the life of each other node that
//! the client is connected to. So a directory from before that life is found out by every later client.
//!
//! Protocol:
//! 1. Each node says in which life it is, and which of the others' it has met.
//! 2. Where a node has met another life of some node than its own, that node is asked whether its directory
//!    has had it. If not, the directory is an old copy, or not the newest.
//! 3. A table is opened at all nodes: they know their places now.
//! 4. Each node is told the lives of all, and then what was dropped while it was down.

use farsight_base::Epoch;
use farsight_fabric::Connection;
use farsight_protocol::{ControlRequest, NodeLife, NodeLives};

use super::Nodes;
use crate::{CatalogueError, PoolError};

impl<C: Connection> Nodes<C> {
    /// What each node says of lives.
    pub(super) fn ask_lives(&self) -> Result<Vec<NodeLives>, CatalogueError> {
        (0..self.count()).map(|node| self.ask(node, &ControlRequest::Lives)).collect()
    }

    /// The lives of all nodes, if all have directories of data; `None` if none has.
    pub(super) fn own_lives(&self, all: &[NodeLives]) -> Result<Option<Vec<NodeLife>>, CatalogueError> {
        let with = all.iter().position(|lives| lives.own.is_some());
        let without = all.iter().position(|lives| lives.own.is_none());
        if let (Some(with), Some(without)) = (with, without) {
            let (with, without) = (self.peer(with).to_owned(), self.peer(without).to_owned());
            return Err(PoolError::SomeInMemory { with, without }.into());
        }
        Ok(all.iter().map(|lives| lives.own).collect())
    }

    /// Refuses a node whose directory never had a life that another node has met.
    pub(super) fn check_lives(&self, all: &[NodeLives]) -> Result<(), CatalogueError> {
        for (witness, lives) in all.iter().enumerate() {
            for (node, (met, own)) in lives.met.iter().zip(all.iter().map(|lives| lives.own)).enumerate() {
                let Some(met) = met.filter(|met| node != witness && Some(*met) != own) else { continue };
                #[cfg(injected)]
                if crate::injected::LIVES_NOT_COMPARED.is_injected() {
                    continue;
                }
                // One that was started again meanwhile does not answer: all begins anew.
                if !self.ask::<bool>(node, &ControlRequest::HasLived(met))? {
                    let (peer, witness) = (self.peer(node).to_owned(), self.peer(witness).to_owned());
                    let (number, epoch) = (met.number, Epoch(met.epoch));
                    return Err(PoolError::OldDirectory { peer, witness, number, epoch }.into());
                }
            }
        }
        Ok(())
    }

    /// Tells all nodes, once, with which lives this client works, and what was dropped. They know their
    /// places.
    pub(super) fn meet(&self) -> Result<(), CatalogueError> {
        let Some(Some(lives)) = self.lives.get().filter(|_| self.met.get().is_none()) else { return Ok(()) };
        for node in 0..self.count() {
            self.ask::<()>(node, &ControlRequest::Meet(lives.clone()))?;
        }
        self.tell_dropped()?;
        self.met.get_or_init(|| ());
        Ok(())
    }
}
