//! One address: a server, or a pool of one memory node.

use farsight_fabric::Connection;
use farsight_protocol::{ControlRequest, NodeKind};

use crate::life::Life;
use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// What answered at an address.
pub enum Connected<C: Connection + 'static> {
    /// A server.
    Server(Client<C>),
    /// A memory node, the only one of its pool.
    Pool(PoolClient<C>),
}

/// A client of whatever is at the other end of `connection`.
///
/// # Errors
/// As [`Connection::open_queue`]; an answer that says neither.
pub fn connect<C: Connection + 'static>(
    connection: C,
    options: ClientOptions,
) -> Result<Connected<C>, CatalogueError> {
    let life = Life::new(connection)?;
    Ok(match life.control(&ControlRequest::Identify)? {
        NodeKind::Server => Connected::Server(Client::over(life, options)),
        NodeKind::MemoryNode => Connected::Pool(PoolClient::of_pool(vec![life.connection], options)?),
    })
}
