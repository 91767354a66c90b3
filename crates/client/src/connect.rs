//! Addresses to a client.
//!
//! Protocol: a node alone is asked at once who it is, so that a way that leads nowhere is an error here. The
//! nodes of a pool are asked with the first table. If one of them cannot be reached, the others are asked at
//! once whether they go on without it.

use std::sync::Arc;

use farsight_fabric::{Connection, FabricError};

use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A way to each node of a pool, by its place: a new connection to what listens there.
pub type Dial<C> = Arc<dyn Fn(usize) -> Result<C, FabricError> + Send + Sync>;

/// A client of the nodes that were `reached`, the coordinator first and in the order that all clients
/// use. It reaches the others by `dial` later.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`]; of a node alone any of
/// [`PoolError`](crate::PoolError), and failures of the fabric.
pub fn connect<C: Connection>(
    reached: Vec<Result<C, FabricError>>,
    dial: Option<Dial<C>>,
    options: ClientOptions,
) -> Result<Client, CatalogueError> {
    let is_alone = reached.len() == 1;
    let pool = PoolClient::of_reached(reached, dial, options)?;
    if is_alone {
        pool.check_place()?;
    }
    Ok(pool.into())
}
