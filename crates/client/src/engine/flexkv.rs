//! FlexKV: what its sessions share, and what it asks of the nodes' processors.

mod keeper;
mod proxies;

use std::sync::Arc;
use std::time::Instant;

use farsight_base::clock::MonotonicNs;
use farsight_fabric::Connection;
use farsight_index::{Access, CachePolicy, CacheStats, EngineError, ReadsByOthers, ValueCache};
use farsight_index_flexkv::{
    Addresses, CallResult, FlexEngine, FlexNode, FlexSession, FlexTable, ObjectCalls, ProxyCalls, Stock,
    Values,
};
use farsight_protocol::{
    ComputeNode, ControlRequest, Fenced, ObjectGrant, ObjectMemory, ProxyPace, Recalled, Request, Space,
    SplitGrant, TableId, TableInfo, TableLayout,
};
use serde::de::DeserializeOwned;

use super::rolex::call_error;
use super::{Attachment, AwaitRecalls, ClientEngine, OpenedTable, Sharing};
use crate::CatalogueError;
use crate::bulk_load::Load;
use crate::nodes::{Known, Nodes};
use keeper::NodeRecalls;
use proxies::{KnownProxies, SessionProxies};

/// What this compute node has in hand of the table, and what it remembers.
struct SharedStock<C> {
    table: FlexTable,
    stock: Arc<Stock>,
    addresses: Arc<Addresses>,
    values: Arc<Values>,
    /// Which compute nodes write for this one.
    proxies: Arc<KnownProxies<C>>,
}

impl ClientEngine for farsight_index::FlexKv {
    fn sharing<C: Connection>(
        layout: &TableLayout,
        infos: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        let table = table_of(layout, infos)?;
        let (stock, addresses) = (Arc::new(Stock::new(&table)), Arc::default());
        let (values, proxies) = (Arc::new(table.no_values()), Arc::<KnownProxies<C>>::default());
        Ok(Arc::new(SharedStock { table, stock, addresses, values, proxies }))
    }
}

/// The table that nodes describe so.
fn table_of(layout: &TableLayout, infos: &[TableInfo]) -> Result<FlexTable, CatalogueError> {
    let node = |info: &TableInfo| {
        let region = |space| info.region_of(space).expect("checked: each node has an index and objects");
        let (index, objects) = (region(Space::Index), region(Space::Blocks));
        FlexNode {
            index: index.id(),
            index_lines: index.capacity,
            objects: objects.id(),
            object_lines: objects.capacity,
        }
    };
    // By their places in the pool: those that are left out have none.
    let mut nodes = vec![None; infos[0].place.epochs.len()];
    for info in infos {
        nodes[usize::from(info.place.index)] = Some(node(info));
    }
    let definition = &layout.definition;
    FlexTable::new(&nodes, (definition.key_kind, definition.values), definition.replicas()).map_err(|error| {
        CatalogueError::Engine {
            table: definition.name.clone(),
            source: EngineError::Engine(Arc::new(error)),
        }
    })
}

/// A session that copies what a new node is to have, over the connections of who takes that in.
pub(crate) fn copier<C: Connection>(
    nodes: &Arc<Nodes<C>>,
    known: &Known<C>,
) -> Result<FlexSession, CatalogueError> {
    let table = table_of(&known.info.layout(), &known.infos)?;
    let calls = NodeCalls { nodes: Arc::clone(nodes), table: known.info.id };
    let shared = (Arc::new(Stock::new(&table)), Arc::default(), Arc::new(table.no_values()));
    Ok(FlexSession::new(table, shared, Box::new(calls), None, 0))
}

impl<C: Connection> SharedStock<C> {
    fn engine(
        &self,
        table: &OpenedTable<'_, C>,
        proxies: Option<Box<dyn ProxyCalls>>,
    ) -> Result<FlexEngine, CatalogueError> {
        // All nodes know this compute node before it reads anything.
        let (number, before) = table.nodes.locks()?.draw(1);
        let seed = before << 32 | u64::from(number);
        let calls = NodeCalls { nodes: Arc::clone(table.nodes), table: table.info().id };
        let shared = (Arc::clone(&self.stock), Arc::clone(&self.addresses), Arc::clone(&self.values));
        Ok(FlexEngine::new(FlexSession::new(self.table.clone(), shared, Box::new(calls), proxies, seed)))
    }

    /// The compute nodes that write for this one, for a session of its own.
    fn proxies(&self, table: &OpenedTable<'_, C>) -> Option<Box<dyn ProxyCalls>> {
        if !table.nodes.connection(0).has_urls() {
            return None;
        }
        let (nodes, id) = (Arc::clone(table.nodes), table.info().id);
        Some(Box::new(SessionProxies::new(Arc::clone(&self.proxies), nodes, id)))
    }
}

impl<C: Connection> Sharing<C> for SharedStock<C> {
    fn cache_stats(&self) -> CacheStats {
        let (table_bytes, value_bytes) = (self.addresses.memory_bytes(), self.values.memory_bytes());
        let memory_bytes = table_bytes + value_bytes;
        CacheStats { table_bytes, value_bytes, memory_bytes, ..CacheStats::default() }
    }

    fn set_value_cache(&self, cache: ValueCache) -> bool {
        self.values.set(cache);
        true
    }

    fn set_cache_policy(&self, policy: CachePolicy) -> bool {
        self.addresses.set_policy(policy);
        self.values.set_policy(policy);
        true
    }

    fn set_reads_by_others(&self, reads: ReadsByOthers) {
        self.proxies.set_reads(reads);
    }

    fn set_proxy_pace(&self, pace: ProxyPace) {
        self.proxies.set_pace(pace);
    }

    fn recalls(
        &self,
        table: &OpenedTable<'_, C>,
        node: usize,
    ) -> Result<Option<Box<dyn AwaitRecalls>>, CatalogueError> {
        if node >= table.nodes.count() {
            return Ok(None);
        }
        // The node knows this compute node by then.
        table.nodes.locks()?;
        let values = Arc::clone(&self.values);
        Ok(Some(Box::new(NodeRecalls::new(table.nodes, node, table.info().id, values)?)))
    }

    fn set_cache_bytes(&self, bytes: u64, _: &TableInfo) -> Result<bool, CatalogueError> {
        self.addresses.set_bytes(bytes);
        Ok(true)
    }

    fn attach(&self, table: &OpenedTable<'_, C>, _: Access) -> Result<Attachment, CatalogueError> {
        table.attach_unordered(self.engine(table, self.proxies(table))?)
    }

    fn attach_fixed(&self, table: &OpenedTable<'_, C>) -> Result<Attachment, CatalogueError> {
        table.attach_unordered(self.engine(table, None)?)
    }

    fn bulk_load(&self, table: &OpenedTable<'_, C>) -> Result<Box<dyn Load>, CatalogueError> {
        table.load_unordered(self.engine(table, None)?)
    }
}

/// What the engine asks of the nodes' processors.
struct NodeCalls<C: Connection> {
    nodes: Arc<Nodes<C>>,
    table: TableId,
}

impl<C: Connection> NodeCalls<C> {
    fn ask<T: DeserializeOwned>(&self, node: usize, request: &ControlRequest) -> CallResult<T> {
        self.nodes.ask(node, request).map_err(|error| call_error(self.nodes.of_view(error)))
    }
}

impl<C: Connection> ObjectCalls for NodeCalls<C> {
    fn exchange(
        &self,
        (node, shard): (usize, usize),
        (lines, count): (u8, u16),
        published: &[ObjectMemory],
        freed: &[ObjectMemory],
    ) -> CallResult<ObjectGrant> {
        let (table, published, freed) = (self.table, published.to_vec(), freed.to_vec());
        let shard = shard as u8;
        let request = ControlRequest::ExchangeObjects { table, shard, lines, count, published, freed };
        self.ask(node, &request)
    }

    fn renew(&self, now: MonotonicNs) -> CallResult<MonotonicNs> {
        self.nodes.renew(now).map_err(call_error)
    }

    fn unix_ms(&self) -> CallResult<u64> {
        let time = self.nodes.time().map_err(|error| call_error(self.nodes.of_view(error)))?;
        Ok(time.now_ms(Instant::now()))
    }

    fn keep_values(&self) -> CallResult<()> {
        let request = ControlRequest::KeepValues { table: self.table };
        (0..self.nodes.count()).try_for_each(|node| self.ask(node, &request))
    }

    fn write_recall(&self, recalled: Recalled, frame: &mut Vec<u8>) {
        Request::control(frame, &ControlRequest::Recall { table: self.table, recalled });
    }

    fn settled(&self, (node, shard): (usize, usize), number: u32) -> CallResult<()> {
        let request = ControlRequest::Settled { table: self.table, shard: shard as u8, number };
        self.ask(node, &request)
    }

    fn fence(&self, compute_node: ComputeNode) -> CallResult<Fenced> {
        self.nodes.fence(compute_node, None).map_err(call_error)
    }

    fn fenced(&self, (node, shard): (usize, usize), owners: &[ComputeNode]) -> CallResult<()> {
        let (table, shard, owners) = (self.table, shard as u8, owners.to_vec());
        self.ask(node, &ControlRequest::FencedOwners { table, shard, owners })
    }

    fn begin_split(&self, node: usize, partition: u16, subtable: u16) -> CallResult<SplitGrant> {
        let request = ControlRequest::BeginSplit { table: self.table, partition, subtable };
        self.ask(node, &request)
    }

    fn end_split(&self, (node, shard): (usize, usize), units: [u32; 2]) -> CallResult<()> {
        let request = ControlRequest::EndSplit { table: self.table, shard: shard as u8, units };
        self.ask(node, &request)
    }
}
