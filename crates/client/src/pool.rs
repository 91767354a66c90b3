//! A client of a memory pool: connections to all of its nodes, and the catalogue of its tables.
//!
//! Invariant: connections and caches belong to one epoch of every node ([`nodes`]). When one of them is lost,
//! the next call connects to all of them again. If a node came back without its memory, every call from then
//! on fails and names it.

mod error;

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::lane::NODES_MAX;
use farsight_fabric::{Connection, FabricError};
use farsight_index::Engines;
use farsight_index_rolex::{ComputeNodeLocks, GroupSizes, RolexCache};
use farsight_protocol::{ControlRequest, LostNodes, POOL_NODES_MAX, TableEngine, TableInfo};
use serde::de::DeserializeOwned;

use crate::CatalogueError;
use crate::backend::Backend;
use crate::client::{Client, ClientOptions};
use crate::connect::Dial;
use crate::engine::rolex::{self, PoolTrainer};
use crate::engine::{ClientEngines, Lookup};
use crate::nodes::Nodes;

pub use error::PoolError;

const _: () = assert!(NODES_MAX == POOL_NODES_MAX, "a lane reaches every node of a pool");

/// What it takes to work on a table of a pool below sessions: queue pairs of its own, one a node.
pub struct PoolLinks<Q> {
    /// To each node, the coordinator first; the table's regions are attached.
    pub queues: Vec<Q>,
    /// What each node says of its part.
    pub infos: Vec<TableInfo>,
    /// What this process's sessions share.
    pub cache: Arc<RolexCache>,
    /// The coordinator's epoch, which is the pool's.
    pub coordinator: Epoch,
    /// The lock values of this process among the pool's compute nodes, for as long as these connections
    /// live.
    pub locks: ComputeNodeLocks,
}

/// A client of one pool, with what lies below sessions. It is a [`Client`] besides.
pub struct PoolClient<C> {
    client: Client,
    connection: PhantomData<fn() -> C>,
}

impl<C> Clone for PoolClient<C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), connection: PhantomData }
    }
}

impl<C> Deref for PoolClient<C> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl<C> From<PoolClient<C>> for Client {
    fn from(pool: PoolClient<C>) -> Self {
        pool.client
    }
}

impl<C: Connection> PoolClient<C> {
    /// A client over connections to a pool's nodes, the coordinator first and in the order that all clients
    /// use.
    ///
    /// # Errors
    /// [`PoolError::Count`], and as [`Connection::open_queue`].
    pub fn of_pool(connections: Vec<C>, options: ClientOptions) -> Result<Self, CatalogueError> {
        Self::with_engines::<Engines>(connections, options)
    }

    /// [`PoolClient::of_pool`] of nodes some of which may not have been reached. The pool goes on without
    /// those, if the others agree. Later it tries to reach them by `dial`.
    ///
    /// # Errors
    /// The first failure to reach one, if they do not; as [`PoolClient::of_pool`].
    pub fn of_reached(
        mut reached: Vec<Result<C, FabricError>>,
        dial: Option<Dial<C>>,
        options: ClientOptions,
    ) -> Result<Self, CatalogueError> {
        let count = reached.len();
        if !(1..=NODES_MAX).contains(&count) {
            return Err(PoolError::Count { max: NODES_MAX, got: count }.into());
        }
        if reached.iter().all(Result::is_ok) {
            // Whether the pool goes on without one of them the first table tells.
            let connections = reached.into_iter().flatten().collect();
            let nodes = Nodes::new(connections, Lookup::of::<Engines>())?.with_dial(dial);
            let client = Client::over(Arc::new(nodes), options);
            return Ok(Self { client, connection: PhantomData });
        }
        if count < 3 {
            let failed = reached.iter().position(Result::is_err).expect("one was not reached");
            return Err(reached.swap_remove(failed).err().expect("a failure").into());
        }
        let reached = reached.into_iter().enumerate().collect();
        let said = (LostNodes::default(), 0);
        let nodes = Nodes::reach(reached, count, said, Lookup::of::<Engines>())?.with_dial(dial);
        nodes.agree_on_missing()?;
        let client = Client::over(Arc::new(nodes), options);
        Ok(Self { client, connection: PhantomData })
    }

    /// [`PoolClient::of_pool`] of a client that works with tables of these engines.
    ///
    /// # Errors
    /// As [`PoolClient::of_pool`].
    pub fn with_engines<E: ClientEngines>(
        connections: Vec<C>,
        options: ClientOptions,
    ) -> Result<Self, CatalogueError> {
        if !(1..=NODES_MAX).contains(&connections.len()) {
            return Err(PoolError::Count { max: NODES_MAX, got: connections.len() }.into());
        }
        let client = Client::over(Arc::new(Nodes::new(connections, Lookup::of::<E>())?), options);
        Ok(Self { client, connection: PhantomData })
    }

    /// Refuses nodes that are none of this list's pool.
    pub(crate) fn check_place(&self) -> Result<(), CatalogueError> {
        self.in_one_epoch(|nodes| nodes.epochs().map(drop))
    }

    /// How the table of this name is worked with.
    ///
    /// # Errors
    /// As [`Client::open_table`].
    pub fn table_engine(&self, name: &str) -> Result<TableEngine, CatalogueError> {
        self.in_one_epoch(|nodes| Ok(nodes.open_table(name)?.info.engine.clone()))
    }

    /// What it takes to work on the table of this name below sessions.
    ///
    /// # Errors
    /// As [`Client::open_table`]; no file descriptors left.
    pub fn links(&self, name: &str) -> Result<PoolLinks<C::Queue>, CatalogueError> {
        self.in_one_epoch(|nodes| {
            let known = nodes.open_table(name)?;
            let cache = Arc::clone(rolex::cache_of(&known)?);
            let queues = nodes.queues(&known)?;
            let (coordinator, locks) = (Epoch(nodes.pool_name()?), nodes.locks()?);
            Ok(PoolLinks { queues, infos: known.infos.clone(), cache, coordinator, locks })
        })
    }

    /// A trainer of the table of this name, of which groups have these sizes; all of its trainers have the
    /// same.
    ///
    /// # Errors
    /// As [`PoolClient::links`].
    pub fn trainer(&self, name: &str, sizes: GroupSizes) -> Result<PoolTrainer<C::Queue>, CatalogueError> {
        self.in_one_epoch(|nodes| {
            let known = nodes.open_table(name)?;
            PoolTrainer::of(nodes, &known, sizes)
        })
    }

    /// Asks one node, by its index, and waits for its answer.
    ///
    /// # Errors
    /// Failures of the fabric, and what the node refuses.
    pub fn ask<T: DeserializeOwned>(
        &self,
        node: usize,
        request: &ControlRequest,
    ) -> Result<T, CatalogueError> {
        nodes_of::<C>(&self.client.shared().current()).ask(node, request)
    }

    fn in_one_epoch<T>(
        &self,
        mut run: impl FnMut(&Arc<Nodes<C>>) -> Result<T, CatalogueError>,
    ) -> Result<T, CatalogueError> {
        self.client.shared().in_one_epoch(|backend| run(&nodes_of(backend)))
    }
}

/// The nodes that the client of a pool is connected to.
fn nodes_of<C: Connection>(backend: &Arc<dyn Backend>) -> Arc<Nodes<C>> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Backend>::clone(backend);
    any.downcast().expect("a pool's client connects to memory nodes again, by the same fabric")
}
