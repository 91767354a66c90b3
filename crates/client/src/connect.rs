//! Addresses to a client.
//!
//! Protocol: a node alone is asked at once who it is, so that a way that leads nowhere is an error here. The
//! nodes of a pool are asked with the first table.

use farsight_fabric::Connection;

use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A client of the nodes that `connections` reach, the coordinator first and in the order that all clients
/// use.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`]; of a node alone any of
/// [`PoolError`](crate::PoolError), and failures of the fabric.
pub fn connect<C: Connection>(connections: Vec<C>, options: ClientOptions) -> Result<Client, CatalogueError> {
    let is_alone = connections.len() == 1;
    let pool = PoolClient::of_pool(connections, options)?;
    if is_alone {
        pool.check_place()?;
    }
    Ok(pool.into())
}
