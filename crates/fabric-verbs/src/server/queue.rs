//! One queue pair from the server's side, and the receives that all queue pairs of its client share.
//!
//! Invariant: requests of a queue execute only within its gate. A queue that ends is closed first, then its
//! queue pair is destroyed: from then on its client's card changes and reads nothing.

use std::io;
use std::sync::{Arc, Mutex};

use farsight_base::ClientId;
use farsight_fabric::{FabricError, Reserved};
use farsight_fabric_host::{Gate, Gated, lock, os};

use crate::CALLS_MAX;
use crate::call_frame::{self, CallHeader, Disorder, FRAME_BYTES, FRAME_WORDS};
use crate::ibv::ffi::{self, SendWork};
use crate::ibv::memory::{ProtectionDomain, Registered};
use crate::ibv::pair::{RcPair, SharedReceives};

/// Requests of one client that the server's card takes before a worker does. A client with more queues than
/// these serve at once waits for its own.
pub(super) const RECEIVES: usize = 4 * CALLS_MAX;
/// Bytes of a client's receives.
pub(super) const RECEIVE_BYTES: usize = RECEIVES * FRAME_BYTES;
/// Bytes of a queue: its replies'.
pub(super) const QUEUE_BYTES: usize = CALLS_MAX * FRAME_BYTES;
/// Marks the completion of a reply.
const REPLY: u64 = 1 << 63;
/// Bits that tell queues, or clients, of one completion queue apart.
const TAG_MASK: u64 = (1 << 31) - 1;

/// A client's receives.
#[derive(Debug)]
pub(super) struct Receives {
    // Before the memory: it is dropped first.
    pub(super) shared: Arc<SharedReceives>,
    memory: Registered,
    _reserved: Option<Reserved>,
    client: ClientId,
}

impl Receives {
    /// Those of a client, in memory that was set aside if it is limited.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        client: ClientId,
        reserved: Option<Reserved>,
    ) -> Result<Arc<Self>, FabricError> {
        let shared = SharedReceives::new(domain, RECEIVES as u32)?;
        let memory = Registered::private(domain, RECEIVE_BYTES)?;
        let receives = Self { shared, memory, _reserved: reserved, client };
        for place in 0..RECEIVES {
            let failed = |error| os::system_error("posting a receive", &error, "A bug");
            receives.post(place).map_err(failed)?;
        }
        Ok(Arc::new(receives))
    }

    /// Gives a place to the card.
    pub(super) fn post(&self, place: usize) -> io::Result<()> {
        let piece = self.memory.piece(place * FRAME_BYTES, FRAME_BYTES);
        // SAFETY: the memory stays registered as long as this lives. Every queue pair that takes receives
        // from here is held by a `ServerQueue`, which holds this.
        unsafe { self.shared.post(self.tag() | place as u64, piece) }
    }

    fn tag(&self) -> u64 {
        (self.client.0 & TAG_MASK) << 32
    }

    /// Reads the request of `message_bytes` in `place`.
    pub(super) fn load(
        &self,
        place: usize,
        message_bytes: usize,
        payload: &mut Vec<u8>,
    ) -> Result<CallHeader, Disorder> {
        call_frame::load(&self.memory, place * FRAME_WORDS, message_bytes, payload)
    }
}

/// What a completion was of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Completed {
    /// A request arrived in this place.
    Request(usize),
    /// The reply in this place has arrived.
    Reply(usize),
    /// Something of an earlier queue pair with the same number.
    Stale,
}

/// A queue pair that workers answer.
#[derive(Debug)]
pub(crate) struct ServerQueue {
    // Before the memory that it uses: it is dropped first.
    pair: Mutex<Option<RcPair>>,
    pub(super) pair_number: u32,
    pub(super) client: ClientId,
    /// Its name in frames and on the control connection.
    pub(super) number: u64,
    pub(super) receives: Arc<Receives>,
    replies: Registered,
    /// That of the replies.
    _reserved: Option<Reserved>,
    pub(super) gate: Gate,
}

impl Gated for ServerQueue {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl ServerQueue {
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        pair: RcPair,
        number: u64,
        (receives, reserved): (Arc<Receives>, Option<Reserved>),
    ) -> Result<Self, FabricError> {
        Ok(Self {
            pair_number: pair.endpoint().number,
            pair: Mutex::new(Some(pair)),
            client: receives.client,
            number,
            receives,
            replies: Registered::private(domain, QUEUE_BYTES)?,
            _reserved: reserved,
            gate: Gate::default(),
        })
    }

    /// Runs `use_it` on the queue pair, unless that is gone.
    pub(super) fn with_pair<T>(&self, use_it: impl FnOnce(&RcPair) -> T) -> Option<T> {
        lock(&self.pair).as_ref().map(use_it)
    }

    /// Closes it, and ends whatever its client's card still does.
    pub(super) fn destroy(&self) {
        self.gate.close();
        drop(lock(&self.pair).take());
    }

    /// What a completion with this id, of this queue pair's number, is of.
    pub(super) fn completed(&self, id: u64) -> Completed {
        let (tag, place) = (id >> 32 & TAG_MASK, (id & 0xffff_ffff) as usize);
        if id & REPLY != 0 && tag == self.number & TAG_MASK && place < CALLS_MAX {
            Completed::Reply(place)
        } else if id & REPLY == 0 && tag == self.client.0 & TAG_MASK && place < RECEIVES {
            Completed::Request(place)
        } else {
            Completed::Stale
        }
    }

    /// Sends the reply to the request that had this header, from `place`, which is free.
    pub(super) fn reply(&self, place: usize, header: CallHeader, payload: &[u8]) -> io::Result<()> {
        let bytes = call_frame::store(&self.replies, place * FRAME_WORDS, header, payload);
        let mut piece = self.replies.piece(place * FRAME_BYTES, bytes);
        let mut work = SendWork {
            id: REPLY | (self.number & TAG_MASK) << 32 | place as u64,
            opcode: ffi::OPCODE_SEND,
            flags: ffi::SEND_SIGNALED,
            pieces: &raw mut piece,
            piece_count: 1,
            ..SendWork::default()
        };
        let posted = self.with_pair(|pair| {
            if bytes <= pair.inline_bytes_max as usize {
                work.flags |= ffi::SEND_INLINE;
            }
            // SAFETY: work and piece live until the call returns; the memory stays registered as long as this
            // queue lives, which drops the queue pair first.
            unsafe { pair.post_send(&raw mut work) }
        });
        // A queue that is gone needs no reply.
        posted.unwrap_or(Ok(()))
    }
}
