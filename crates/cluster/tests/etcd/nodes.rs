//! Nodes without their memory: what the registration of one sees of it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use farsight_cluster::{
    ClusterError, ClusterUrl, Etcd, EtcdOptions, FoundNodes, Keeper, Known, MapRecord, Member, Offered,
    Registration, Standing,
};
use farsight_protocol::{PoolAddresses, PoolMap, PoolPlace};

/// The longest that anything may take on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) fn url(text: &str) -> ClusterUrl {
    text.parse().expect("an address")
}

pub(crate) fn open(text: &str) -> Etcd {
    Etcd::open(&url(text), EtcdOptions::default()).expect("an etcd on this host")
}

pub(crate) fn found(etcd: &Etcd) -> Result<FoundNodes, ClusterError> {
    etcd.read()?.found(etcd.url().name())
}

/// The address of a node in one of its lives.
pub(crate) fn address(epoch: u64, life: u64) -> String {
    format!("tcp://node-{epoch}:{life}")
}

/// What a node of such a pool knows.
pub(crate) fn map(epoch: u64, pool: u64, term: u32, epochs: &[u64]) -> PoolMap {
    let index = epochs.iter().position(|other| *other == epoch).expect("one of them") as u8;
    let addresses = PoolAddresses::of_one_fabric(epochs.iter().map(|epoch| address(*epoch, 1)));
    PoolMap {
        epoch,
        pool: Some(pool),
        place: Some(PoolPlace { epochs: epochs.to_vec(), index }),
        term,
        addresses,
    }
}

pub(crate) fn record(pool: u64, term: u32, epochs: &[u64]) -> MapRecord {
    MapRecord::of(&map(epochs[0], pool, term, epochs), false).expect("a map")
}

/// A node's memory.
pub(crate) struct Memory {
    pub(crate) map: Option<PoolMap>,
    pub(crate) is_durable: bool,
}

impl Keeper for Memory {
    fn map(&mut self) -> Result<Option<MapRecord>, ClusterError> {
        Ok(self.map.as_ref().and_then(|map| MapRecord::of(map, self.is_durable)))
    }

    fn offer(&mut self, map: &MapRecord, _known: &Known) -> Result<Offered, ClusterError> {
        let is_own = |own: &&mut PoolMap| {
            own.pool == Some(map.pool())
                && own.term == map.term()
                && own.place.as_ref().is_some_and(|place| place.epochs == map.epochs())
        };
        let Some(own) = self.map.as_mut().filter(is_own) else { return Ok(Offered::KeepsIts) };
        own.addresses = map.addresses().clone();
        Ok(Offered::Has)
    }
}

/// A node and its registration.
pub(crate) struct Node {
    pub(crate) memory: Memory,
    pub(crate) registration: Registration,
    news: Receiver<()>,
}

impl Node {
    /// A node of this epoch, which is to be one of a pool of so many.
    pub(crate) fn new(etcd: &str, epoch: u64, pool_nodes: u8) -> Self {
        Self::in_life(etcd, (epoch, 1), pool_nodes, false)
    }

    pub(crate) fn in_life(etcd: &str, (epoch, life): (u64, u64), pool_nodes: u8, is_durable: bool) -> Self {
        let member = Member { epoch, is_durable, pool_nodes, addresses: vec![address(epoch, life)] };
        let (tell, news): (Sender<()>, _) = channel();
        let tell = Arc::new(std::sync::Mutex::new(tell));
        let heard = move || {
            // The node may have ended.
            let _ = tell.lock().expect("no panic").send(());
        };
        let registration = Registration::new(open(etcd), member, heard).expect("a sound node");
        Self { memory: Memory { map: None, is_durable }, registration, news }
    }

    pub(crate) fn step(&mut self) -> Result<Standing, ClusterError> {
        let is_coordinator = self
            .memory
            .map
            .as_ref()
            .is_some_and(|map| map.place.as_ref().is_some_and(|place| place.index == 0));
        self.registration.step(&mut self.memory, is_coordinator)
    }

    /// Its addresses of all nodes.
    pub(crate) fn knows(&self) -> Vec<String> {
        self.memory.map.as_ref().expect("a map").addresses.0.concat()
    }

    /// Waits until the watch has heard of something.
    pub(crate) fn hear(&self) {
        self.news.recv_timeout(WAIT_MAX).expect("news");
    }

    /// Forgets what was heard so far.
    pub(crate) fn forget(&self) {
        while self.news.try_recv().is_ok() {}
    }

    /// Steps until something is so; a step may fail meanwhile.
    #[track_caller]
    pub(crate) fn step_until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&Self, Result<Standing, ClusterError>) -> bool,
    ) {
        let begun = Instant::now();
        loop {
            let stepped = self.step();
            let text = format!("{stepped:?}");
            if is_so(self, stepped) {
                return;
            }
            assert!(begun.elapsed() < WAIT_MAX, "{what}: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
