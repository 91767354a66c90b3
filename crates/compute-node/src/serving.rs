//! What the threads of a compute node that serves share: its tables, and the offers to the coordinator.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::Clock;
use farsight_base::sync::{AtomicU32, AtomicU64, Ordering};
use farsight_client::{CatalogueError, Client, EngineKind, Table};
use farsight_fabric::Listener;
use farsight_layout::hash_index::{HASH_PARTITIONS, KeyHash};
use farsight_node::{Failure, Listeners, Service, StartError};
use farsight_protocol::{
    ErrorCode, HEADER_BYTES, OPERATIONS_MAX, ProxyOffer, ServedWork, ServerError, TableId, TableInfo,
};

use crate::ProxyCalls;

/// From one offer to the next: several come before a lease is over.
pub const OFFER_PAUSE: Duration = Duration::from_millis(400);

/// How a compute node serves.
pub struct ServingOptions {
    /// Where it listens, for clients of the pool's fabric: a URL.
    pub address: String,
    /// What listens there.
    pub listener: Arc<dyn Listener>,
    /// Of each table's 1,024 partitions, for how many it offers to write.
    pub partitions: u16,
    /// For how many percent of those that are served clients are to send writes; `None` leaves that to the
    /// coordinator.
    pub percent: Option<u8>,
    /// Bytes of addresses that it may remember of each table; `None`: as many as any compute node.
    pub cache_bytes: Option<u64>,
    /// The clock that its replies tell, and by which it is late.
    pub clock: Arc<dyn Clock>,
}

/// Why a compute node writes for nobody, or not in each table.
#[derive(Debug)]
pub struct OfferError {
    /// In which table, if the pool says which tables it has.
    pub table: Option<String>,
    /// What failed.
    pub source: Box<CatalogueError>,
}

impl fmt::Display for OfferError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            None => formatter.write_str("it writes for nobody"),
            Some(table) => write!(formatter, "it writes for nobody in table {table:?}"),
        }
    }
}

impl Error for OfferError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// What its threads share.
pub struct Serving {
    client: Client,
    address: String,
    partitions: u16,
    percent: Option<u8>,
    cache_bytes: Option<u64>,
    pub(crate) listeners: Listeners,
    pub(crate) failure: Arc<Failure>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The tables for which it offers to write.
    tables: Mutex<BTreeMap<TableId, Arc<ServedTable>>>,
}

/// A table, and what was done for others there.
pub(crate) struct ServedTable {
    pub(crate) table: Table,
    writes: AtomicU64,
    combined: AtomicU64,
    found: AtomicU64,
    /// Writes by partition since the last offer.
    heat: Box<[AtomicU32]>,
}

impl Serving {
    /// Of a `client` of the pool. Nobody is let in, and nothing is offered yet.
    ///
    /// # Errors
    /// [`StartError`] if messages there are too short.
    pub fn new(client: Client, options: ServingOptions) -> Result<Self, StartError> {
        let ServingOptions { address, listener, partitions, percent, cache_bytes, clock } = options;
        let message_bytes_min = HEADER_BYTES + 8 * OPERATIONS_MAX;
        let listeners = Listeners::new(vec![listener], message_bytes_min)?;
        let (failure, tables) = (Arc::default(), Mutex::default());
        Ok(Self { client, address, partitions, percent, cache_bytes, listeners, failure, clock, tables })
    }

    /// Offers to write in each table of FlexKV, or renews that. A table in which that fails keeps it out of
    /// no other.
    ///
    /// # Errors
    /// [`OfferError`], of the first table that has one.
    pub fn offer(&self) -> Result<(), OfferError> {
        let of_engine = |name: &str| name == EngineKind::FLEXKV.name;
        let failed = |table| move |source| OfferError { table, source: Box::new(source) };
        let infos = self.client.tables().map_err(failed(None))?;
        let infos: Vec<_> = infos.into_iter().filter(|info| of_engine(&info.engine.name)).collect();
        self.tables().retain(|id, _| infos.iter().any(|info| info.id == *id));
        let mut offered = Ok(());
        for TableInfo { definition, id, .. } in infos {
            let done = self.offer_in(id, &definition.name);
            offered = offered.and(done.map_err(failed(Some(definition.name))));
        }
        offered
    }

    /// Offers to write in the table of this number, which has that name.
    fn offer_in(&self, id: TableId, name: &str) -> Result<(), CatalogueError> {
        let known = self.tables().get(&id).cloned();
        let served = match known {
            Some(known) if known.table.name() == name => known,
            _ => {
                let table = self.client.open_table(name)?;
                if let Some(bytes) = self.cache_bytes {
                    // It goes on with the usual cache if it is gone already.
                    let _ = table.set_cache_bytes(bytes);
                }
                Arc::new(ServedTable::new(table))
            }
        };
        // Known before the coordinator tells clients of it. A name may lead elsewhere by now.
        let id = served.table.info().id;
        self.tables().insert(id, Arc::clone(&served));
        self.offer_for(&served, self.partitions)
    }

    /// Takes the offers back.
    pub fn withdraw(&self) {
        let tables: Vec<_> = self.tables().values().cloned().collect();
        for served in tables {
            // A coordinator that does not hear it finds the connections closed.
            let _ = self.offer_for(&served, 0);
        }
    }

    /// What it did for others.
    #[must_use]
    pub fn work(&self) -> ServedWork {
        self.tables().values().map(|served| served.work()).sum()
    }

    fn offer_for(&self, served: &ServedTable, partitions: u16) -> Result<(), CatalogueError> {
        let offer = ProxyOffer {
            table: served.table.info().id,
            partitions,
            address: self.address.clone(),
            epoch: self.listeners.get(0).epoch().0,
            work: served.work(),
            heat: served.take_heat(),
            percent: self.percent,
        };
        self.client.offer_proxy(&offer).map(drop)
    }

    /// A table for which it offers to write.
    pub(crate) fn table(&self, table: TableId) -> Result<Arc<ServedTable>, ServerError> {
        let unknown = || {
            let text = format!("this compute node does not write in table {}", table.0);
            ServerError::new(ErrorCode::UnknownTable, text)
        };
        self.tables().get(&table).cloned().ok_or_else(unknown)
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, BTreeMap<TableId, Arc<ServedTable>>> {
        // Each change is one insertion or one removal.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedTable {
    fn new(table: Table) -> Self {
        let heat = (0..HASH_PARTITIONS).map(|_| AtomicU32::new(0)).collect();
        let [writes, combined, found] = [const { AtomicU64::new(0) }; 3];
        Self { table, writes, combined, found, heat }
    }

    /// What was done for others.
    fn work(&self) -> ServedWork {
        // Relaxed, here and below: statistics.
        ServedWork {
            writes: self.writes.load(Ordering::Relaxed),
            combined: self.combined.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
        }
    }

    /// Notes that so many keys were found, or read.
    pub(crate) fn count_found(&self, keys: usize) {
        self.found.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Notes that writes of these keys were executed, of so many different ones.
    pub(crate) fn count(&self, keys: &[&[u8]], different: usize) {
        self.writes.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.combined.fetch_add((keys.len() - different) as u64, Ordering::Relaxed);
        for key in keys {
            self.heat[KeyHash::of(key).partition()].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes by partition since this was asked last, of those that had any.
    fn take_heat(&self) -> Vec<(u16, u32)> {
        let taken = self.heat.iter().map(|heat| heat.swap(0, Ordering::Relaxed));
        (0..).zip(taken).filter(|(_, writes)| *writes > 0).collect()
    }
}

impl Service for Serving {
    type Calls = ProxyCalls;

    fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    fn calls(self: &Arc<Self>, listener: usize, name: &str) -> ProxyCalls {
        ProxyCalls::new(Arc::clone(self), listener, name.to_owned())
    }

    fn note_departed(&self, _: Vec<ClientId>) {
        // Nothing is kept of them.
    }
}
