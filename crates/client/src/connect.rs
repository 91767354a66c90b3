//! Addresses to a client.
//!
//! Protocol: a node alone is asked at once who it is, so that a way that leads nowhere is an error here. The
//! nodes of a pool are asked with the first table. If one of them cannot be reached, the others are asked at
//! once whether they go on without it.

use farsight_fabric::{Connection, FabricError};

use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A client of the nodes that were `reached`, the coordinator first and in the order that all clients
/// use.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`]; of a node alone any of
/// [`PoolError`](crate::PoolError), and failures of the fabric.
pub fn connect<C: Connection>(
    reached: Vec<Result<C, FabricError>>,
    options: ClientOptions,
) -> Result<Client, CatalogueError> {
    let is_alone = reached.len() == 1;
    let pool = PoolClient::of_reached(reached, options)?;
    if is_alone {
        pool.check_place()?;
    }
    Ok(pool.into())
}
