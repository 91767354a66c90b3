//! What a scenario's clients are connected to: a server, or the memory nodes of a pool.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_client::{CatalogueError, Client, ClientOptions, Dial, PoolClient};
use farsight_fabric::FabricError;
use farsight_fabric_sim::{Kind, SimConnection, Simulation};
use farsight_index_xstore::client::{BLOCK_TURNS, READS_MAX, block_reads_max};
use farsight_layout::FORMAT_VERSION;

/// Times that a read may begin anew because its connection was lost.
const BEGINNINGS_MAX: u64 = 3;
/// READs of a key on the straight way, before it is looked up by itself.
const READS_OF_A_BATCH: u64 = 2;
/// READs for one key of XStore.
const READS_OF_X_STORE_MAX: u64 = BEGINNINGS_MAX * (READS_OF_A_BATCH + READS_MAX as u64);

/// READs for one key of a table whose values have any length, up to `value_bytes`. In each turn its reference
/// is found, by as many READs as `of_leaves`, then its block.
pub(crate) fn reads_by_reference_max(of_leaves: u64, value_bytes: usize) -> u64 {
    u64::from(BLOCK_TURNS) * (of_leaves + BEGINNINGS_MAX * block_reads_max(value_bytes) as u64)
}

/// A kind of cluster.
pub(crate) trait Cluster: Send + Sync + 'static {
    /// Its cards.
    type Kind: Kind;
    /// READs for one key at most where leaves hold the values; `None` where time is the bound.
    const READS_A_KEY_MAX: Option<u64>;

    /// A client of the servers that listen at `addresses`.
    fn connect(simulation: &Simulation, addresses: &[&'static str]) -> Result<Client, CatalogueError>;
}

/// To wait for a peer takes real time, of which a simulated client has none.
const OPTIONS: ClientOptions = ClientOptions { reconnect_timeout: Duration::ZERO };

/// One server.
pub(crate) struct OneServer<K>(PhantomData<K>);

impl<K: Kind> Cluster for OneServer<K> {
    type Kind = K;
    const READS_A_KEY_MAX: Option<u64> = Some(READS_OF_X_STORE_MAX);

    fn connect(simulation: &Simulation, addresses: &[&'static str]) -> Result<Client, CatalogueError> {
        Ok(connect::<K>(simulation, addresses[0])?)
    }
}

macro_rules! pool {
    ($(#[doc = $doc:literal] $name:ident, $reads:expr;)+) => {$(
        #[doc = $doc]
        pub(crate) struct $name<K>(PhantomData<K>);

        impl<K: Kind> Cluster for $name<K> {
            type Kind = K;
            const READS_A_KEY_MAX: Option<u64> = $reads;

            fn connect(
                simulation: &Simulation,
                addresses: &[&'static str],
            ) -> Result<Client, CatalogueError> {
                Ok(connect_pool::<K>(simulation, addresses)?.into())
            }
        }
    )+};
}

pool! {
    /// A pool of memory nodes with a ROLEX table.
    MemoryPool, None;
    /// A pool of memory nodes with a FlexKV table.
    HashedPool, None;
    /// A pool of memory nodes with an XStore-D table.
    PartedPool, Some(READS_OF_X_STORE_MAX);
}

/// A client of the server that listens at `address`.
///
/// # Errors
/// As [`Simulation::connect`] and [`Client::new`].
pub fn connect<K: Kind>(simulation: &Simulation, address: &str) -> Result<Client, FabricError> {
    Client::new(simulation.connect::<K>(address, FORMAT_VERSION)?, OPTIONS)
}

/// A client of the pool whose nodes listen at `addresses`.
pub(crate) fn connect_pool<K: Kind>(
    simulation: &Simulation,
    addresses: &[&'static str],
) -> Result<PoolClient<SimConnection<K>>, CatalogueError> {
    let dial = dial::<K>(simulation, addresses);
    let reached = (0..addresses.len()).map(|place| dial.connect(place)).collect();
    PoolClient::of_reached(reached, Some(dial), OPTIONS)
}

/// Ways to the memory nodes that listen at `addresses`.
pub(crate) fn dial<K: Kind>(simulation: &Simulation, addresses: &[&'static str]) -> Dial<SimConnection<K>> {
    let (simulation, addresses) = (simulation.clone(), addresses.iter().map(|at| (*at).to_owned()).collect());
    Dial::private(addresses, Arc::new(move |at| simulation.connect::<K>(at, FORMAT_VERSION)))
}
