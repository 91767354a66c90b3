//! Nodes as what a client is connected to.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::Epoch;
use farsight_base::clock::Clock;
use farsight_base::sync::Ordering;
use farsight_fabric::{Connection, FabricError};
use farsight_index::{Access, CachePolicy, CacheStats, EngineKind, ReadsByOthers, ValueCache};
use farsight_protocol::{
    ControlRequest, ErrorCode, NodeStats, Proxy, ProxyLease, ProxyOffer, ProxyPace, ServerError, TableId,
    TableInfo, WriteLoad,
};

use super::{Known, Nodes};
use crate::CatalogueError;
use crate::attached::Operations;
use crate::backend::{Backend, NewTable, OpenTable, Training};
use crate::bulk_load::BulkLoad;
use crate::connect::Dial;
use crate::engine::AwaitRecalls;
use crate::engine::OpenedTable;
use crate::server_time::ServerTime;

/// Between two questions whether snapshots are made, and in all.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(20);
const SNAPSHOT_WAIT_MAX: Duration = Duration::from_secs(3600);

/// A table of these nodes.
struct NodesTable<C: Connection> {
    known: Arc<Known<C>>,
    nodes: Arc<Nodes<C>>,
}

impl<C: Connection> Nodes<C> {
    fn table(self: Arc<Self>, known: Arc<Known<C>>) -> Arc<dyn OpenTable> {
        Arc::new(NodesTable { known, nodes: self })
    }
}

impl<C: Connection> NodesTable<C> {
    fn opened(&self) -> OpenedTable<'_, C> {
        OpenedTable { nodes: &self.nodes, known: &self.known }
    }
}

impl<C: Connection> Backend for Nodes<C> {
    fn peer(&self) -> String {
        let peers: Vec<&str> = (0..self.count()).map(|node| self.connection(node).peer()).collect();
        peers.join(",")
    }

    fn addresses(&self) -> Vec<String> {
        let peers = || (0..self.count()).map(|node| self.connection(node).peer().to_owned()).collect();
        self.dial().map_or_else(peers, Dial::addresses)
    }

    fn epoch(&self) -> Epoch {
        // A pool that goes on without its first node is the same pool, and one that has another in its place.
        // Relaxed: as where it is set.
        let has_changed = self.lost.count() > 0 || self.term.load(Ordering::Relaxed) > 0;
        let of_pool = self.pool.get().filter(|_| has_changed);
        of_pool.map_or_else(|| self.connection(0).epoch(), |name| Epoch(*name))
    }

    fn identities(&self) -> Option<&[u64]> {
        self.asked_epochs()
    }

    fn connections(&self) -> Vec<&dyn Any> {
        (0..self.count()).map(|node| self.connection(node) as &dyn Any).collect()
    }

    /// Of a compute node a fence, too: another one that waited for a lock of this one took it for dead. Its
    /// number is over, and what it was doing in doubt; under another it can go on. Of a pool that may go on
    /// without it, also a node that is silent.
    fn is_loss(&self, error: &FabricError) -> bool {
        match error {
            FabricError::Disconnected { .. } => true,
            FabricError::Dismissed { .. } => self.is_registered(),
            FabricError::TimedOut { peer, .. } => self.may_go_on_without(peer),
            _ => false,
        }
    }

    fn note_loss(&self, error: &FabricError) {
        if let FabricError::TimedOut { peer, .. } = error
            && self.may_go_on_without(peer)
        {
            self.poisoned().raise();
        }
    }

    fn check(&self) -> Result<(), FabricError> {
        self.check_usable()?;
        (0..self.count()).try_for_each(|node| self.connection(node).check())
    }

    fn check_usable(&self) -> Result<(), FabricError> {
        Nodes::check_usable(self)
    }

    fn prepare_to_write(&self) -> Result<(), FabricError> {
        Nodes::prepare_to_write(self)
    }

    fn agree_on_view(&self) -> Result<(), FabricError> {
        Nodes::agree_on_view(self)
    }

    fn reconnect(&self, timeout: Duration) -> Result<Arc<dyn Backend>, FabricError> {
        Ok(Arc::new(self.connect_again(timeout)?))
    }

    fn create(self: Arc<Self>, table: &NewTable) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        let known = self.create_table(table)?;
        Ok(self.table(known))
    }

    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        let known = self.open_table(name)?;
        Ok(self.table(known))
    }

    fn drop_table(&self, name: &str) -> Result<(), CatalogueError> {
        Nodes::drop_table(self, name)
    }

    fn rename_table(&self, from: &str, to: &str) -> Result<(), CatalogueError> {
        Nodes::rename_table(self, from, to)
    }

    fn swap_tables(&self, first: &str, second: &str) -> Result<(), CatalogueError> {
        Nodes::swap_tables(self, first, second)
    }

    fn heard_name_changes(&self) -> Result<u64, FabricError> {
        Nodes::heard_name_changes(self)
    }

    fn asked_name_changes(&self) -> Result<u64, CatalogueError> {
        Nodes::asked_name_changes(self)
    }

    fn time(&self) -> Result<ServerTime, CatalogueError> {
        Nodes::time(self)
    }

    fn opened(self: Arc<Self>, name: &str) -> Option<Arc<dyn OpenTable>> {
        let known = self.known_table(name)?;
        Some(self.table(known))
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        Ok((*self.open_table(name)?.info).clone())
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.table_infos()
    }

    fn offer_proxy(&self, offer: &ProxyOffer) -> Result<ProxyLease, CatalogueError> {
        // The coordinator knows this compute node by then.
        self.locks()?;
        self.ask(0, &ControlRequest::OfferProxy(offer.clone())).map_err(|error| self.of_view(error))
    }

    fn proxies(&self, table: TableId) -> Result<Vec<Proxy>, CatalogueError> {
        self.ask(0, &ControlRequest::Proxies { table, load: WriteLoad::default() })
    }

    fn pending_training(&self) -> Result<u64, CatalogueError> {
        (0..self.count()).map(|node| self.ask::<u64>(node, &ControlRequest::PendingTraining)).sum()
    }

    fn snapshot(&self) -> Result<(), CatalogueError> {
        self.check_agreed()?;
        let (request, begun) = (ControlRequest::BeginSnapshots, Instant::now());
        let rounds = (0..self.count()).map(|node| self.ask::<u64>(node, &request));
        for (node, round) in rounds.collect::<Result<Vec<u64>, _>>()?.into_iter().enumerate() {
            while !self.ask::<bool>(node, &ControlRequest::AreSnapshotsMade { round })? {
                if begun.elapsed() > SNAPSHOT_WAIT_MAX {
                    let text = format!("its snapshots are not made after {SNAPSHOT_WAIT_MAX:?}");
                    let source = ServerError::new(ErrorCode::OutOfResources, text);
                    return Err(CatalogueError::Refused { peer: self.peer(node).to_owned(), source });
                }
                std::thread::sleep(SNAPSHOT_PAUSE);
            }
        }
        Ok(())
    }

    fn node_stats(&self) -> Result<Vec<NodeStats>, CatalogueError> {
        (0..self.count()).map(|node| Self::node_stats(self, node)).collect()
    }
}

impl<C: Connection> OpenTable for NodesTable<C> {
    fn info(&self) -> &Arc<TableInfo> {
        &self.known.info
    }

    fn kind(&self) -> &'static EngineKind {
        self.known.kind
    }

    fn cache_stats(&self) -> CacheStats {
        self.known.sharing.cache_stats()
    }

    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, CatalogueError> {
        self.known.sharing.set_cache_bytes(bytes, &self.known.info)
    }

    fn set_value_cache(&self, cache: ValueCache) -> bool {
        self.known.sharing.set_value_cache(cache)
    }

    fn set_cache_policy(&self, policy: CachePolicy) -> bool {
        self.known.sharing.set_cache_policy(policy)
    }

    fn set_reads_by_others(&self, reads: ReadsByOthers) {
        self.known.sharing.set_reads_by_others(reads);
    }

    fn set_proxy_pace(&self, pace: ProxyPace) {
        self.known.sharing.set_proxy_pace(pace);
    }

    fn recalls(&self, node: usize) -> Result<Option<Box<dyn AwaitRecalls>>, CatalogueError> {
        self.known.sharing.recalls(&self.opened(), node)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.nodes.connection(0).clock()
    }

    fn attach(&self, access: Access) -> Result<Box<dyn Operations>, CatalogueError> {
        self.known.sharing.attach(&self.opened(), access).map(|attachment| attachment.0)
    }

    fn attach_fixed(&self) -> Result<Box<dyn Operations>, CatalogueError> {
        self.known.sharing.attach_fixed(&self.opened()).map(|attachment| attachment.0)
    }

    fn bulk_load(&self) -> Result<BulkLoad, CatalogueError> {
        let load = self.known.sharing.bulk_load(&self.opened())?;
        Ok(BulkLoad::new(Arc::clone(&self.known.info), load))
    }

    fn training(&self) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        self.known.sharing.training(&self.opened())
    }
}
