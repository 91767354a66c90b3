//! One address: a server, or a pool of one memory node.

use std::sync::Arc;

use farsight_fabric::Connection;
use farsight_protocol::{ControlRequest, NodeKind};

use crate::life::Life;
use crate::{CatalogueError, Client, ClientOptions, PoolClient};

/// A client of what is at the other end of `connections`: of a server or memory node, if there is one of
/// them, or of the pool whose nodes they reach, home first and in the order that all clients use.
///
/// # Errors
/// [`PoolError::Count`](crate::PoolError::Count), as [`Connection::open_queue`]; an answer that says neither.
pub fn connect<C: Connection>(connections: Vec<C>, options: ClientOptions) -> Result<Client, CatalogueError> {
    let connection = match <[C; 1]>::try_from(connections) {
        Ok([connection]) => connection,
        Err(connections) => return Ok(PoolClient::of_pool(connections, options)?.into()),
    };
    let life = Life::new(connection)?;
    Ok(match life.control(&ControlRequest::Identify)? {
        NodeKind::Server => Client::over(Arc::new(life), options),
        NodeKind::MemoryNode => PoolClient::of_pool(vec![life.connection], options)?.into(),
    })
}
