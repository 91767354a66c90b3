//! A client's connection to a simulated server.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};

use crate::kind::Kind;
use crate::queue::SimQueue;
use crate::world::World;

/// A connection to one simulated server.
pub struct SimConnection<K: Kind> {
    world: Arc<World>,
    client: usize,
    peer: String,
    format_version: u32,
    epoch: Epoch,
    kind: PhantomData<K>,
}

impl<K: Kind> SimConnection<K> {
    pub(crate) fn connect(
        world: &Arc<World>,
        address: &str,
        format_version: u32,
    ) -> Result<Self, FabricError> {
        let mut state = world.state();
        let client = state.connect(address, format_version)?;
        let host = &state.hosts[state.clients[client].host];
        assert_eq!(host.guarantees, K::GUARANTEES, "both ends of a connection are of one kind");
        let epoch = host.epoch;
        let (world, peer) = (Arc::clone(world), address.to_owned());
        Ok(Self { world, client, peer, format_version, epoch, kind: PhantomData })
    }
}

impl<K: Kind> Connection for SimConnection<K> {
    type Queue = SimQueue<K>;

    fn peer(&self) -> &str {
        &self.peer
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open_queue(&self) -> Result<SimQueue<K>, FabricError> {
        SimQueue::open(&self.world, self.client, &self.peer)
    }

    fn check(&self) -> Result<(), FabricError> {
        self.world.state().lost(self.client).map_or(Ok(()), Err)
    }

    /// Takes no time, so it needs no timeout.
    fn reconnect(&self, _timeout: Duration) -> Result<Self, FabricError> {
        Self::connect(&self.world, &self.peer, self.format_version)
    }
}

impl<K: Kind> Drop for SimConnection<K> {
    fn drop(&mut self) {
        self.world.state().lose(self.client, "this client closed the connection");
        self.world.tell();
    }
}
