//! What a client and its nodes tell each other of where the nodes are.
//!
//! Invariant: a client tells addresses to nodes alone that know none, and goes by those of nodes only where
//! it does not reach a node by its own.

use farsight_base::sync::Ordering;
use farsight_fabric::Connection;
use farsight_protocol::{ControlRequest, LostNodes, NodeHello, PoolMap};

use super::Nodes;
use super::taking_in::newest_term;
use crate::{CatalogueError, PoolError};

impl<C: Connection> Nodes<C> {
    /// What a node knows of the map.
    pub(super) fn map_of(&self, node: usize) -> Result<PoolMap, CatalogueError> {
        let map: PoolMap = self.ask(node, &ControlRequest::Map)?;
        if map.is_sound() {
            return Ok(map);
        }
        Err(PoolError::UnsoundMap { peer: self.peer(node).to_owned() }.into())
    }

    /// Takes note of nodes that know no addresses.
    pub(super) fn note_untold(&self, hellos: &[NodeHello]) {
        let untold = (0..hellos.len()).filter(|node| !hellos[*node].knows_addresses);
        // Relaxed: a number by itself.
        self.untold.store(LostNodes::of(untold).0.into(), Ordering::Relaxed);
    }

    /// Tells them, once, when they know their places: what the others know, or by which ways this client has
    /// reached all.
    pub(super) fn tell_addresses(&self) -> Result<(), CatalogueError> {
        // Relaxed: of several sessions one tells them.
        let untold = LostNodes(self.untold.swap(0, Ordering::Relaxed) as u16);
        let Some(dial) = self.dial.as_ref().filter(|_| untold.count() > 0 && self.is_whole_pool()) else {
            return Ok(());
        };
        let addresses = match (0..self.count()).find(|node| !untold.contains(*node)) {
            // Those that were started again may stand elsewhere than before.
            Some(node) => (0..self.count())
                .filter(|node| untold.contains(*node))
                .fold(self.map_of(node)?.addresses, |map, node| {
                    map.with(self.places[node], &dial.address(self.places[node]))
                }),
            None => dial.common(),
        };
        if addresses.check(self.pool_size).is_err() || !addresses.are_known() {
            return Ok(());
        }
        // Relaxed: as where it is set.
        let term = self.term.load(Ordering::Relaxed);
        let told = ControlRequest::TellAddresses { term, addresses };
        let nodes = (0..self.count()).filter(|node| untold.contains(*node));
        nodes.into_iter().try_for_each(|node| self.ask(node, &told))
    }

    /// A pool of several nodes, all of which are reached.
    fn is_whole_pool(&self) -> bool {
        self.pool_size > 1 && self.lost.count() == 0
    }

    /// Fails as a loss if nodes that this client has not reached are elsewhere by now: from then on it goes
    /// to them there.
    pub(super) fn follow_moved(&self, hellos: &[NodeHello]) -> Result<(), CatalogueError> {
        let term = newest_term(hellos);
        let knows = |hello: &NodeHello| hello.place.is_some() && hello.term == term && hello.knows_addresses;
        let (Some(dial), Some(node)) = (&self.dial, hellos.iter().position(knows)) else { return Ok(()) };
        if self.lost.count() == 0 {
            return Ok(());
        }
        let map = self.map_of(node)?.addresses;
        let lost = (0..self.pool_size).filter(|place| self.lost.contains(*place));
        let moved = LostNodes::of(lost.filter(|place| dial.follow(*place, &map)));
        if moved.count() == 0 {
            return Ok(());
        }
        // Relaxed: who connects again has seen the error.
        self.moved.fetch_or(moved.0.into(), Ordering::Relaxed);
        Err(self.taken_in(moved.0).into())
    }
}
