//! A client's connection to a simulated server.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_base::clock::{Clock, MonotonicNs};
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

    fn connect_beside(&self, url: &str, _timeout: Duration) -> Result<Option<Self>, FabricError> {
        Self::connect(&self.world, url, self.format_version).map(Some)
    }

    fn has_urls(&self) -> bool {
        self.world.state().has_urls
    }

    fn clock(&self) -> Arc<dyn Clock> {
        let group = self.world.state().clients[self.client].group;
        Arc::new(ProgramClock::new(&self.world, group))
    }
}

/// A program's clock.
pub(crate) struct ProgramClock {
    world: Arc<World>,
    group: Option<usize>,
}

impl ProgramClock {
    pub(crate) fn new(world: &Arc<World>, group: Option<usize>) -> Self {
        Self { world: Arc::clone(world), group }
    }
}

impl Clock for ProgramClock {
    fn now(&self) -> MonotonicNs {
        let mut state = self.world.state();
        let clock = self.group.map_or(0, |group| state.clock_of(group));
        MonotonicNs(state.clocks[clock].1.reads_ns(state.now_ns))
    }

    fn sleep(&self, duration: Duration) {
        self.world.wait(duration, |_| false, |_, _| ());
    }
}

impl<K: Kind> Drop for SimConnection<K> {
    fn drop(&mut self) {
        self.world.state().lose(self.client, "this client closed the connection");
        self.world.tell();
    }
}
