//! The server's side of a fabric.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::{ClientId, Epoch, RegionId};

use crate::{FabricError, Region, RegionRights, Ticket};

/// When a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Answer {
    /// Now, by the bytes in the reply.
    Now,
    /// Later: the port parks the call until [`ServerPort::finish`] answers it. What stands in the reply does
    /// not count.
    Later {
        /// Bytes that the reply will have at most. The port keeps room for as many.
        reply_bytes_max: usize,
    },
}

/// What executes calls: the server's worker.
pub trait CallHandler {
    /// Executes one `request` of `client` (the bytes are a private copy, unchecked) and appends the reply to
    /// `reply`, which is empty; or keeps `ticket`, by which the worker answers later. Must answer every
    /// request, bad ones with an error reply. The ticket of a call that is answered now is nobody's: not of a
    /// later call, either.
    fn handle(&mut self, client: ClientId, ticket: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer;
}

/// One worker's share of the connected clients.
pub trait ServerPort: Send {
    /// Drains up to `budget_calls` waiting calls through `handler` and sends their replies, client by client.
    /// Where the server's processor executes verbs, a batch of them counts as a call. Returns the calls
    /// executed, parked ones among them. Takes no call of a queue that has its most parked, or no room for
    /// another reply. Never blocks; one client's disorder ends that client alone.
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize;

    /// Answers a parked call, in any order among the others. The reply leaves at once, or when the worker
    /// serves next, and wakes its client. False, without any effect, if the call is gone: its client has
    /// left, or the call is answered. The next owner of what was the client's never gets the answer.
    ///
    /// # Panics
    /// If the reply is longer than the handler said.
    fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool;

    /// Sleeps until a call may be waiting, [`Host::wake`] is called, or `timeout` passes. Parked calls end no
    /// sleep: they wait for the worker.
    fn wait(&mut self, timeout: Duration);
}

/// What asking a client to leave came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Departure {
    /// None of its verbs executes any more, and none ever will.
    Gone,
    /// It is ended, but for a last request that executes yet, or for a process that was killed and has not
    /// exited. Or memory is being protected from it, a part with each call.
    Leaving,
    /// It was told, and has not left yet.
    Awaited(Lingering),
}

/// A client that was told to leave and has not. [`Host::end_process`] ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lingering {
    /// Its process.
    pub pid: i32,
    /// The process's user.
    pub uid: u32,
    /// How long ago it was told.
    pub told_for: Duration,
    /// Why its process is never ended, if it is not.
    pub spared: Option<&'static str>,
}

/// Memory that was set aside. Dropped, it is free again.
pub type Reserved = Box<dyn Any + Send + Sync>;

/// Sets memory of a queue aside: bytes that its client has in queues, then bytes that this one takes. An
/// error says why not.
pub type SetAside = Arc<dyn Fn(u64, u64) -> Result<Reserved, String> + Send + Sync>;

/// A node that owns regions and accepts clients.
pub trait Host: Send + Sync {
    /// What a worker drains.
    type Port: ServerPort + 'static;

    /// Where clients reach it, as a URL.
    fn address(&self) -> String;

    /// This epoch of the server.
    fn epoch(&self) -> Epoch;

    /// Bytes of the longest request or reply that the fabric carries to this host's clients.
    fn message_bytes_max(&self) -> usize;

    /// A zeroed region of at least `length_bytes`.
    ///
    /// # Errors
    /// [`FabricError::System`] if the memory cannot be had.
    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError>;

    /// A zeroed region of at least `length_bytes` that clients READ. Its owner says how far it writes it
    /// ([`Region::grow_to`]). What is beyond no client can reach, or make the system give memory for. A READ
    /// finds all that has grown before it was posted.
    ///
    /// # Errors
    /// As [`Host::create_region`].
    fn create_growing_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, FabricError> {
        self.create_region(length_bytes, RegionRights::ReadOnly)
    }

    /// True if this host serves growing regions of others, too: it finds their words where they are, each
    /// time anew.
    fn serves_growing_regions(&self) -> bool {
        false
    }

    /// Serves a region that another host of this process created, under the number that it has there: so one
    /// server answers clients of several fabrics. The region lives until this host withdraws it or ends.
    ///
    /// # Errors
    /// [`FabricError::System`] if this fabric cannot, or serves another region of that number already.
    fn export_region(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        let _ = rights;
        Err(FabricError::System {
            what: format!("exporting {}", region.id()),
            source_text: "this fabric serves its own regions only".to_owned(),
            remedy: "Let this fabric's host create the regions".to_owned(),
        })
    }

    /// Gives up a region. From now on no connection attaches it, and this host forgets it. Its number is
    /// never given to another. Clients that have it attached are told: in a batch that one begins a second
    /// later or after that, its verbs there fail with [`FabricError::RegionWithdrawn`]. Until then they may
    /// still find the region's own bytes, and never others. The memory goes with the last [`Region`] of this
    /// process and the last client that can reach it.
    ///
    /// # Errors
    /// [`FabricError::UnknownRegion`] if this host serves no such region.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError>;

    /// Tells all clients a number, those connected now and those to come. It only grows: a smaller one than
    /// before changes nothing. A batch that a client begins a second later or after that sees it
    /// ([`QueuePair::notice`](crate::QueuePair::notice)).
    fn notify(&self, notice: u64);

    /// From now on no queue is opened for whose memory `set_aside` has no room: the client is told why. Each
    /// keeps what was set aside until its memory is free. Free where queues take no memory of this process.
    fn limit_queues(&self, set_aside: SetAside) {
        let _ = set_aside;
    }

    /// Begins to accept clients, if it was told to wait with that. Until then they are refused by the system,
    /// at once, as where nobody listens. Free if it accepts them already.
    ///
    /// # Errors
    /// [`FabricError::System`] if another program has taken its place meanwhile.
    fn open(&self) -> Result<(), FabricError> {
        Ok(())
    }

    /// The port of a new worker. Clients are spread over the ports that exist when they connect.
    ///
    /// # Errors
    /// [`FabricError::System`] if the operating system gives out no more descriptors.
    fn open_port(&self) -> Result<Self::Port, FabricError>;

    /// Accepts and dismisses clients for up to `timeout`: the control thread calls it in a loop. Returns the
    /// clients that have ended meanwhile, each once and when none of its requests executes any more: whatever
    /// the server keeps for them can go. A parked call executes no more, so it holds no client back. Its
    /// ticket is dead when its client ends.
    ///
    /// # Errors
    /// [`FabricError::System`] if the listening socket itself is broken; a client's disorder ends that
    /// client.
    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError>;

    /// Clients connected now.
    fn client_count(&self) -> usize;

    /// Ends `client` and returns when none of its verbs can execute any more. Unknown clients are already
    /// fenced.
    ///
    /// # Errors
    /// [`FabricError::TimedOut`] if that could not be made certain in time.
    fn fence(&self, client: ClientId) -> Result<(), FabricError>;

    /// True if a fence may end a client's whole process, because nothing less keeps it from writing.
    fn ends_processes(&self) -> bool {
        false
    }

    /// Ends `client` if that costs it its connection at most, which it can make anew. Where a fence may end
    /// its process this only tells the client to leave, once. The caller tries again until it is
    /// [gone](Departure::Gone). This waits for nothing.
    ///
    /// # Errors
    /// As [`Host::fence`].
    fn dismiss(&self, client: ClientId) -> Result<Departure, FabricError> {
        self.fence(client).map(|()| Departure::Gone)
    }

    /// Kills the process of a client that was dismissed and lingers, unless that is spared. Waits for
    /// nothing: [`Host::dismiss`] says when the client has gone.
    ///
    /// # Errors
    /// [`FabricError::System`] if the process cannot be signalled.
    fn end_process(&self, _client: ClientId) -> Result<(), FabricError> {
        Ok(())
    }

    /// Wakes everything that sleeps in [`Host::step`] or [`ServerPort::wait`], so that it can look for a
    /// stop.
    fn wake(&self);

    /// Ends the sleep of all ports, and perhaps of who waits in [`Host::step`], too.
    fn wake_ports(&self) {
        self.wake();
    }
}
