//! Queue pairs of reliable connections, and the receives that a client's queue pairs share.
//!
//! Protocol of a queue pair's states:
//! 1. Made and initialised at once.
//! 2. Connected (ready to receive, then to send) when the peer's [`Endpoint`] is known.
//! 3. In error from the first failure, or when told.
//! 4. Gone when dropped: from then on nothing of it executes.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use farsight_fabric::FabricError;

use super::completion::CompletionQueue;
use super::ffi::{self, Piece, QpCapacity, QpChange, QpInit, ReceiveWork, SendWork, change};
use super::memory::ProtectionDomain;

/// 4.096 µs times two to this: how long an acknowledgement is waited for, 268 ms. Seven of them end the
/// connection; that a peer died is told sooner, by the control channel.
const ACKNOWLEDGEMENT_TIMEOUT: u8 = 16;
/// Not seven, the most that there is: Soft-RoCE takes that for ever, as every card does where a receiver is
/// not ready.
const RETRIES: u8 = 6;
/// For ever: a peer without receives is slow, not dead.
const RECEIVER_NOT_READY_RETRIES: u8 = 7;
/// The code of 0.64 ms.
const RECEIVER_NOT_READY_TIMER: u8 = 12;
const HOP_LIMIT: u8 = 64;
/// Sequence numbers have 24 bits.
pub(crate) const SEQUENCE_MASK: u32 = 0x00ff_ffff;

/// One side of a connection, as the other must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    pub(crate) number: u32,
    pub(crate) sequence: u32,
    pub(crate) lid: u16,
    /// The code of the longest packet.
    pub(crate) path_unit: u8,
    pub(crate) is_infiniband: bool,
    /// READs and atomics that this side begins at a time, and serves at a time.
    pub(crate) reads_begun_max: u8,
    pub(crate) reads_served_max: u8,
    pub(crate) gid: [u8; 16],
}

/// Receives that several queue pairs take from.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    raw: NonNull<ffi::Srq>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: the library's functions may be called from any thread on any of its objects.
unsafe impl Send for SharedReceives {}
// SAFETY: as above.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, capacity: u32) -> Result<Arc<Self>, FabricError> {
        let device = &domain.device;
        let mut init = ffi::SrqInit { user: null_mut(), work_max: capacity, pieces_max: 1, limit: 0 };
        // SAFETY: the domain is alive, and `init` is what the call expects.
        let raw = unsafe { (device.library.0.create_srq)(domain.raw.as_ptr(), &raw mut init) };
        let raw = device.made(raw, "making shared receives", "Too many of them?")?;
        Ok(Arc::new(Self { raw, domain: Arc::clone(domain) }))
    }

    /// Lets the device put one message into `piece`.
    ///
    /// # Safety
    /// The memory of `piece` stays registered until a completion with `id` was polled or this is dropped.
    pub(crate) unsafe fn post(&self, id: u64, mut piece: Piece) -> io::Result<()> {
        let mut work = ReceiveWork { id, next: null_mut(), pieces: &raw mut piece, piece_count: 1 };
        let mut refused = null_mut();
        // SAFETY: the context is open while this lives.
        let post =
            unsafe { (*self.domain.device.context()).post_srq_receive }.expect("every device receives");
        // SAFETY: the call reads `work` and `piece` before it returns; the memory is the caller's promise.
        let outcome = unsafe { post(self.raw.as_ptr(), &raw mut work, &raw mut refused) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome.abs())) }
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: every queue pair on it held it, so all are gone; once.
        unsafe { (self.domain.device.library.0.destroy_srq)(self.raw.as_ptr()) };
    }
}

/// How many requests a queue pair holds, and whose receives it takes.
pub(crate) struct PairShape {
    pub(crate) sends_max: u32,
    /// Receives of its own; none if they are shared.
    pub(crate) receives_max: u32,
    pub(crate) shared: Option<Arc<SharedReceives>>,
    /// What the peer may do through it ([`ffi::access`]).
    pub(crate) rights: u32,
    pub(crate) inline_bytes: u32,
}

/// A queue pair of a reliable connection.
#[derive(Debug)]
pub(crate) struct RcPair {
    raw: NonNull<ffi::Qp>,
    endpoint: Endpoint,
    /// Bytes that the device takes at once from where they are.
    pub(crate) inline_bytes_max: u32,
    domain: Arc<ProtectionDomain>,
    _completions: Arc<CompletionQueue>,
    _shared: Option<Arc<SharedReceives>>,
}

// SAFETY: the library's functions may be called from any thread on any of its objects.
unsafe impl Send for RcPair {}
// SAFETY: as above.
unsafe impl Sync for RcPair {}

impl RcPair {
    /// A queue pair, initialised, that tells its completions to `completions`.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        shape: PairShape,
        sequence: u32,
    ) -> Result<Self, FabricError> {
        let device = &domain.device;
        let mut init = QpInit {
            user: null_mut(),
            send_cq: completions.raw(),
            receive_cq: completions.raw(),
            srq: shape.shared.as_ref().map_or(null_mut(), |shared| shared.raw.as_ptr()),
            capacity: QpCapacity {
                send_work: shape.sends_max,
                receive_work: shape.receives_max,
                send_pieces: 1,
                receive_pieces: 1,
                inline_bytes: shape.inline_bytes,
            },
            kind: ffi::QP_RELIABLE_CONNECTION,
            signal_all: 0,
        };
        // SAFETY: domain, completion queue and shared receives are alive, and held by what is made here.
        let raw = unsafe { (device.library.0.create_qp)(domain.raw.as_ptr(), &raw mut init) };
        let raw = device.made(raw, "making a queue pair", "Too many of them, or too deep?")?;
        let port = device.port;
        let endpoint = Endpoint {
            // SAFETY: the library made it, and its number does not change.
            number: unsafe { (*raw.as_ptr()).number },
            sequence: sequence & SEQUENCE_MASK,
            lid: port.lid,
            path_unit: port.path_unit,
            is_infiniband: port.is_infiniband,
            reads_begun_max: device.attributes.reads_begun_max.max(1),
            reads_served_max: device.attributes.reads_served_max.max(1),
            gid: port.gid,
        };
        let pair = Self {
            raw,
            endpoint,
            inline_bytes_max: init.capacity.inline_bytes,
            domain: Arc::clone(domain),
            _completions: Arc::clone(completions),
            _shared: shape.shared,
        };
        let mut init = QpChange {
            state: ffi::STATE_INIT,
            port: port.number,
            access: shape.rights,
            ..QpChange::default()
        };
        let mask = change::STATE | change::PARTITION_INDEX | change::PORT | change::ACCESS;
        pair.modify(&mut init, mask, "initialising a queue pair")?;
        Ok(pair)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn modify(&self, to: &mut QpChange, mask: i32, what: &str) -> Result<(), FabricError> {
        let device = &self.domain.device;
        // SAFETY: the queue pair is alive, and `to` is what the call expects.
        let outcome = unsafe { (device.library.0.modify_qp)(self.raw.as_ptr(), to, mask) };
        device.outcome(outcome, what)
    }

    /// Connects it to `peer`.
    pub(crate) fn connect(&self, peer: &Endpoint) -> Result<(), FabricError> {
        let (own, port) = (&self.endpoint, self.domain.device.port);
        let mut route = ffi::Route {
            lid: peer.lid,
            is_global: u8::from(!port.is_infiniband),
            port: port.number,
            ..ffi::Route::default()
        };
        if !port.is_infiniband {
            (route.gid, route.gid_index, route.hop_limit) = (peer.gid, port.gid_index, HOP_LIMIT);
        }
        let mut to = QpChange {
            state: ffi::STATE_READY_TO_RECEIVE,
            path_unit: i32::from(own.path_unit.min(peer.path_unit)),
            peer_number: peer.number,
            receive_sequence: peer.sequence,
            reads_served_max: own.reads_served_max.min(peer.reads_begun_max),
            receiver_not_ready_timer: RECEIVER_NOT_READY_TIMER,
            route,
            ..QpChange::default()
        };
        let mask = change::STATE
            | change::ROUTE
            | change::PATH_UNIT
            | change::PEER_NUMBER
            | change::RECEIVE_SEQUENCE
            | change::READS_SERVED_MAX
            | change::RECEIVER_NOT_READY_TIMER;
        self.modify(&mut to, mask, "making a queue pair ready to receive")?;
        let mut to = QpChange {
            state: ffi::STATE_READY_TO_SEND,
            send_sequence: own.sequence,
            timeout: ACKNOWLEDGEMENT_TIMEOUT,
            retries: RETRIES,
            receiver_not_ready_retries: RECEIVER_NOT_READY_RETRIES,
            reads_begun_max: own.reads_begun_max.min(peer.reads_served_max),
            ..QpChange::default()
        };
        let mask = change::STATE
            | change::SEND_SEQUENCE
            | change::TIMEOUT
            | change::RETRIES
            | change::RECEIVER_NOT_READY_RETRIES
            | change::READS_BEGUN_MAX;
        self.modify(&mut to, mask, "making a queue pair ready to send")
    }

    /// Ends it: what it has not begun it never will.
    pub(crate) fn break_off(&self) -> Result<(), FabricError> {
        let mut to = QpChange { state: ffi::STATE_ERROR, ..QpChange::default() };
        self.modify(&mut to, change::STATE, "ending a queue pair")
    }

    /// Sends a chain of work with one doorbell.
    ///
    /// # Safety
    /// `first` leads through `next` over works that live until the call returns, each with one piece that
    /// does. Memory of pieces stays registered (or, with [`ffi::SEND_INLINE`], alive until the call returns)
    /// until a signalled completion of this or later work was polled, or this is dropped.
    pub(crate) unsafe fn post_send(&self, first: *mut SendWork) -> io::Result<()> {
        let mut refused = null_mut();
        // SAFETY: the context is open while this lives.
        let post = unsafe { (*self.domain.device.context()).post_send }.expect("every device sends");
        // SAFETY: the caller's promise.
        let outcome = unsafe { post(self.raw.as_ptr(), first, &raw mut refused) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome.abs())) }
    }

    /// Lets the device put one message into `piece`.
    ///
    /// # Safety
    /// The memory of `piece` stays registered until a completion with `id` was polled or this is dropped.
    pub(crate) unsafe fn post_receive(&self, id: u64, mut piece: Piece) -> io::Result<()> {
        let mut work = ReceiveWork { id, next: null_mut(), pieces: &raw mut piece, piece_count: 1 };
        let mut refused = null_mut();
        // SAFETY: the context is open while this lives.
        let post = unsafe { (*self.domain.device.context()).post_receive }.expect("every device receives");
        // SAFETY: the call reads `work` and `piece` before it returns; the memory is the caller's promise.
        let outcome = unsafe { post(self.raw.as_ptr(), &raw mut work, &raw mut refused) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome.abs())) }
    }
}

impl Drop for RcPair {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; afterwards the device executes nothing of it, so the memory that
        // its work names may go.
        let outcome = unsafe { (self.domain.device.library.0.destroy_qp)(self.raw.as_ptr()) };
        assert!(outcome == 0 || std::thread::panicking(), "a queue pair cannot be destroyed: {outcome}");
    }
}
