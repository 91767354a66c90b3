//! Addresses to a client.

use farsight_fabric::Connection;

use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A client of the nodes that `connections` reach, home first and in the order that all clients use.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`].
pub fn connect<C: Connection>(connections: Vec<C>, options: ClientOptions) -> Result<Client, CatalogueError> {
    Ok(PoolClient::of_pool(connections, options)?.into())
}
