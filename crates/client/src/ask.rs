//! Rare requests to one node: catalogue, statistics, blocks.
//!
//! Protocol: a queue pair is kept for them while none is under way. Requests beside another open their own,
//! and one of both is closed again. No lock is held while an answer is awaited.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_fabric::{Connection, FabricError};
use farsight_protocol::{ControlRequest, Reply, Request};
use serde::de::DeserializeOwned;

use crate::CatalogueError;
use crate::call::call;

/// The queue pair for rare requests.
pub(crate) struct Asker<C: Connection> {
    idle: Mutex<Option<Kept<C::Queue>>>,
}

/// A queue pair, with buffers that are reused.
struct Kept<Q> {
    queue: Q,
    frame: Vec<u8>,
    reply: Vec<u8>,
}

impl<C: Connection> Asker<C> {
    pub(crate) fn new(connection: &C) -> Result<Self, FabricError> {
        Ok(Self { idle: Mutex::new(Some(Kept::new(connection.open_queue()?))) })
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        connection: &C,
        request: &ControlRequest,
    ) -> Result<T, CatalogueError> {
        let mut kept = self.take(connection)?;
        let Kept { queue, frame, reply } = &mut kept;
        Request::control(frame, request);
        // A queue pair whose call failed is not used again.
        call(queue, frame, reply)?;
        let peer = || connection.peer().to_owned();
        let refused = |source| CatalogueError::Refused { peer: peer(), source };
        let unintelligible = |source| CatalogueError::Decode { peer: peer(), source };
        let answer = Reply::decode(reply)
            .map_err(unintelligible)
            .and_then(|reply| reply.map_err(refused)?.control().map_err(unintelligible));
        self.idle().get_or_insert(kept);
        answer
    }

    /// Does something with the queue pair itself.
    pub(crate) fn with_queue<T>(
        &self,
        connection: &C,
        run: impl FnOnce(&mut C::Queue) -> Result<T, FabricError>,
    ) -> Result<T, FabricError> {
        let mut kept = self.take(connection)?;
        let done = run(&mut kept.queue)?;
        self.idle().get_or_insert(kept);
        Ok(done)
    }

    fn take(&self, connection: &C) -> Result<Kept<C::Queue>, FabricError> {
        // Before the lock, which a forked child may find taken for ever.
        connection.check()?;
        let idle = self.idle().take();
        match idle {
            Some(kept) => Ok(kept),
            None => Ok(Kept::new(connection.open_queue()?)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Kept<C::Queue>>> {
        // Taking and putting back is all that is done under it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q> Kept<Q> {
    fn new(queue: Q) -> Self {
        Self { queue, frame: Vec::new(), reply: Vec::new() }
    }
}
