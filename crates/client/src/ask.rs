//! Rare requests to one node: catalogue, statistics, blocks.
//!
//! Protocol: a queue pair is kept for them while none is under way. Requests beside another open their own,
//! and one of both is closed again. No lock is held while an answer is awaited.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_base::RegionId;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_protocol::{ControlRequest, Reply, Request};
use serde::de::DeserializeOwned;

use crate::CatalogueError;
use crate::call::call;

/// The queue pair for rare requests.
pub(crate) struct Asker<C: Connection> {
    idle: Mutex<Idle<C::Queue>>,
}

struct Idle<Q> {
    kept: Option<Kept<Q>>,
    /// Counts the times at which those that were under way had to go.
    ended: u64,
}

/// A queue pair, with buffers that are reused.
struct Kept<Q> {
    queue: Q,
    /// [`Idle::ended`] when it was taken.
    ended: u64,
    frame: Vec<u8>,
    reply: Vec<u8>,
}

impl<C: Connection> Asker<C> {
    pub(crate) fn new(connection: &C) -> Result<Self, FabricError> {
        let kept = Some(Kept::new(connection.open_queue()?, 0));
        Ok(Self { idle: Mutex::new(Idle { kept, ended: 0 }) })
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        connection: &C,
        request: &ControlRequest,
    ) -> Result<T, CatalogueError> {
        let mut kept = self.take(connection)?;
        let Kept { queue, frame, reply, .. } = &mut kept;
        Request::control(frame, request);
        // A queue pair whose call failed is not used again.
        call(queue, frame, reply)?;
        let peer = || connection.peer().to_owned();
        let refused = |source| CatalogueError::Refused { peer: peer(), source };
        let unintelligible = |source| CatalogueError::Decode { peer: peer(), source };
        let answer = Reply::decode(reply)
            .map_err(unintelligible)
            .and_then(|reply| reply.map_err(refused)?.control().map_err(unintelligible));
        self.put_back(kept);
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
        self.put_back(kept);
        Ok(done)
    }

    /// Lets go of regions that nobody needs any more. Of a queue pair that is under way all regions go, when
    /// it comes back.
    pub(crate) fn detach(&self, regions: impl Iterator<Item = RegionId>) {
        let mut idle = self.idle();
        match &mut idle.kept {
            Some(kept) => regions.for_each(|region| kept.queue.detach(region)),
            None => idle.ended += 1,
        }
    }

    fn take(&self, connection: &C) -> Result<Kept<C::Queue>, FabricError> {
        // Before the lock, which a forked child may find taken for ever.
        connection.check()?;
        let (kept, ended) = {
            let mut idle = self.idle();
            (idle.kept.take(), idle.ended)
        };
        match kept {
            Some(kept) => Ok(Kept { ended, ..kept }),
            None => Ok(Kept::new(connection.open_queue()?, ended)),
        }
    }

    fn put_back(&self, kept: Kept<C::Queue>) {
        let mut idle = self.idle();
        if idle.kept.is_none() && idle.ended == kept.ended {
            idle.kept = Some(kept);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle<C::Queue>> {
        // Nothing is awaited under it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q> Kept<Q> {
    fn new(queue: Q, ended: u64) -> Self {
        Self { queue, ended, frame: Vec::new(), reply: Vec::new() }
    }
}
