//! The part of libibverbs' interface that this crate uses, as C sees it on 64-bit Linux.
//!
//! Invariant: sizes and offsets are those of version 1.1 of the library's binary interface, which has not
//! changed since 2008. They were taken from its header by `offsetof` and are asserted below. Structures that
//! the library alone makes are declared no further than the last field read here.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// Something of the library's own, known by its address alone.
#[repr(C)]
pub(crate) struct Opaque {
    private: [u8; 0],
}

pub(crate) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
pub(crate) type RequestNotify = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(crate) type PostSrqReceive =
    unsafe extern "C" fn(*mut Srq, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int;
pub(crate) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWork, *mut *mut SendWork) -> c_int;
pub(crate) type PostReceive = unsafe extern "C" fn(*mut Qp, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int;

/// `ibv_context`, whose table of functions is what the header's inline functions call.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Opaque,
    unused_1: [*const c_void; 11],
    pub(crate) poll_cq: Option<PollCq>,
    pub(crate) request_notify: Option<RequestNotify>,
    unused_2: [*const c_void; 7],
    pub(crate) post_srq_receive: Option<PostSrqReceive>,
    unused_3: [*const c_void; 4],
    pub(crate) post_send: Option<PostSend>,
    pub(crate) post_receive: Option<PostReceive>,
    unused_4: [*const c_void; 5],
    pub(crate) command_descriptor: c_int,
    pub(crate) event_descriptor: c_int,
}

const _: () = assert!(offset_of!(Context, poll_cq) == 8 + 88);
const _: () = assert!(offset_of!(Context, request_notify) == 8 + 96);
const _: () = assert!(offset_of!(Context, post_srq_receive) == 8 + 160);
const _: () = assert!(offset_of!(Context, post_send) == 8 + 200);
const _: () = assert!(offset_of!(Context, post_receive) == 8 + 208);
const _: () = assert!(offset_of!(Context, command_descriptor) == 264);
const _: () = assert!(offset_of!(Context, event_descriptor) == 268);

/// `ibv_pd`.
pub(crate) type Pd = Opaque;

/// `ibv_cq`, `ibv_srq`: their first field is the context.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
}

#[repr(C)]
pub(crate) struct Srq {
    pub(crate) context: *mut Context,
}

/// `ibv_qp`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    unused: [u8; 44],
    pub(crate) number: u32,
}

const _: () = assert!(offset_of!(Qp, number) == 52);

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    unused: [u8; 36],
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

const _: () = assert!(offset_of!(Mr, local_key) == 36 && offset_of!(Mr, remote_key) == 40);

/// `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    pub(crate) context: *mut Context,
    pub(crate) descriptor: c_int,
}

const _: () = assert!(offset_of!(CompletionChannel, descriptor) == 8);

/// `ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttributes {
    pub(crate) firmware: [c_char; 64],
    unused_1: [u64; 2],
    pub(crate) registration_bytes_max: u64,
    unused_2: u64,
    pub(crate) vendor: u32,
    pub(crate) part: u32,
    unused_3: u32,
    pub(crate) queue_pairs_max: c_int,
    pub(crate) queue_work_max: c_int,
    /// Bits of [`capability`].
    pub(crate) capabilities: u32,
    unused_4: [c_int; 3],
    pub(crate) completions_max: c_int,
    unused_5: [c_int; 2],
    /// READs and atomics that one queue pair executes at a time for its peer.
    pub(crate) reads_served_max: c_int,
    unused_6: [c_int; 2],
    /// READs and atomics that one queue pair has under way at a time.
    pub(crate) reads_begun_max: c_int,
    unused_7: c_int,
    pub(crate) atomic_capability: c_int,
    unused_8: [c_int; 11],
    pub(crate) shared_receives_max: c_int,
    pub(crate) shared_receive_work_max: c_int,
    unused_9: [u8; 7],
    pub(crate) ports: u8,
    unused_10: [u32; 1],
}

const _: () = assert!(size_of::<DeviceAttributes>() == 232);
const _: () = assert!(offset_of!(DeviceAttributes, registration_bytes_max) == 80);
const _: () = assert!(offset_of!(DeviceAttributes, vendor) == 96);
const _: () = assert!(offset_of!(DeviceAttributes, queue_pairs_max) == 108);
const _: () = assert!(offset_of!(DeviceAttributes, queue_work_max) == 112);
const _: () = assert!(offset_of!(DeviceAttributes, capabilities) == 116);
const _: () = assert!(offset_of!(DeviceAttributes, completions_max) == 132);
const _: () = assert!(offset_of!(DeviceAttributes, reads_served_max) == 144);
const _: () = assert!(offset_of!(DeviceAttributes, reads_begun_max) == 156);
const _: () = assert!(offset_of!(DeviceAttributes, atomic_capability) == 164);
const _: () = assert!(offset_of!(DeviceAttributes, shared_receives_max) == 212);
const _: () = assert!(offset_of!(DeviceAttributes, shared_receive_work_max) == 216);
const _: () = assert!(offset_of!(DeviceAttributes, ports) == 227);

/// `ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_int,
    pub(crate) path_unit_max: c_int,
    pub(crate) path_unit: c_int,
    pub(crate) gid_count: c_int,
    unused_1: u32,
    pub(crate) message_bytes_max: u32,
    unused_2: [u8; 10],
    pub(crate) lid: u16,
    unused_3: [u8; 10],
    pub(crate) link_layer: u8,
    unused_4: [u8; 5],
}

const _: () = assert!(size_of::<PortAttributes>() == 52);
const _: () = assert!(offset_of!(PortAttributes, gid_count) == 12);
const _: () = assert!(offset_of!(PortAttributes, message_bytes_max) == 20);
const _: () = assert!(offset_of!(PortAttributes, lid) == 34);
const _: () = assert!(offset_of!(PortAttributes, link_layer) == 46);

pub(crate) const PORT_ACTIVE: c_int = 4;
pub(crate) const LINK_INFINIBAND: u8 = 1;

/// `ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GidEntry {
    pub(crate) gid: [u8; 16],
    pub(crate) index: u32,
    pub(crate) port: u32,
    pub(crate) kind: u32,
    pub(crate) interface: u32,
}

const _: () = assert!(size_of::<GidEntry>() == 32 && offset_of!(GidEntry, kind) == 24);

pub(crate) const GID_ROCE_V2: u32 = 2;

/// `ibv_qp_cap`: the most of each.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCapacity {
    pub(crate) send_work: u32,
    pub(crate) receive_work: u32,
    pub(crate) send_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline_bytes: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QpInit {
    pub(crate) user: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) receive_cq: *mut Cq,
    pub(crate) srq: *mut Srq,
    pub(crate) capacity: QpCapacity,
    pub(crate) kind: c_int,
    pub(crate) signal_all: c_int,
}

const _: () = assert!(size_of::<QpInit>() == 64 && offset_of!(QpInit, kind) == 52);

pub(crate) const QP_RELIABLE_CONNECTION: c_int = 2;

/// `ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Route {
    pub(crate) gid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) unused_1: u8,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) source_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
    pub(crate) unused_2: u8,
}

const _: () = assert!(size_of::<Route>() == 32);
const _: () = assert!(offset_of!(Route, lid) == 24 && offset_of!(Route, is_global) == 29);
const _: () = assert!(offset_of!(Route, port) == 30);

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpChange {
    pub(crate) state: c_int,
    pub(crate) current_state: c_int,
    pub(crate) path_unit: c_int,
    pub(crate) migration: c_int,
    pub(crate) qkey: u32,
    pub(crate) receive_sequence: u32,
    pub(crate) send_sequence: u32,
    pub(crate) peer_number: u32,
    pub(crate) access: c_uint,
    pub(crate) capacity: QpCapacity,
    pub(crate) route: Route,
    pub(crate) other_route: Route,
    pub(crate) partition_index: u16,
    pub(crate) other_partition_index: u16,
    pub(crate) notify_drained: u8,
    pub(crate) draining: u8,
    pub(crate) reads_begun_max: u8,
    pub(crate) reads_served_max: u8,
    pub(crate) receiver_not_ready_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) receiver_not_ready_retries: u8,
    pub(crate) other_port: u8,
    pub(crate) other_timeout: u8,
    pub(crate) unused_1: [u8; 1],
    pub(crate) unused_2: [u32; 2],
}

const _: () = assert!(size_of::<QpChange>() == 144);
const _: () = assert!(offset_of!(QpChange, access) == 32 && offset_of!(QpChange, route) == 56);
const _: () = assert!(offset_of!(QpChange, partition_index) == 120);
const _: () = assert!(offset_of!(QpChange, reads_begun_max) == 126);
const _: () = assert!(offset_of!(QpChange, receiver_not_ready_timer) == 128);
const _: () = assert!(offset_of!(QpChange, receiver_not_ready_retries) == 132);

pub(crate) const STATE_INIT: c_int = 1;
pub(crate) const STATE_READY_TO_RECEIVE: c_int = 2;
pub(crate) const STATE_READY_TO_SEND: c_int = 3;
pub(crate) const STATE_ERROR: c_int = 6;

/// Which fields of a [`QpChange`] count.
pub(crate) mod change {
    pub(crate) const STATE: i32 = 1;
    pub(crate) const ACCESS: i32 = 1 << 3;
    pub(crate) const PARTITION_INDEX: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const ROUTE: i32 = 1 << 7;
    pub(crate) const PATH_UNIT: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRIES: i32 = 1 << 10;
    pub(crate) const RECEIVER_NOT_READY_RETRIES: i32 = 1 << 11;
    pub(crate) const RECEIVE_SEQUENCE: i32 = 1 << 12;
    pub(crate) const READS_BEGUN_MAX: i32 = 1 << 13;
    pub(crate) const RECEIVER_NOT_READY_TIMER: i32 = 1 << 15;
    pub(crate) const SEND_SEQUENCE: i32 = 1 << 16;
    pub(crate) const READS_SERVED_MAX: i32 = 1 << 17;
    pub(crate) const PEER_NUMBER: i32 = 1 << 20;
}

/// What registered memory may be used for.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const REMOTE_ATOMIC: u32 = 8;
    /// Of memory that need not be there.
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
}

/// `ibv_device_cap_flags`.
pub(crate) mod capability {
    pub(crate) const MEMORY_WINDOW_1: u32 = 1 << 17;
    pub(crate) const MEMORY_WINDOW_2A: u32 = 1 << 23;
    pub(crate) const MEMORY_WINDOW_2B: u32 = 1 << 24;
}

/// `ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SrqInit {
    pub(crate) user: *mut c_void,
    pub(crate) work_max: u32,
    pub(crate) pieces_max: u32,
    pub(crate) limit: u32,
}

const _: () = assert!(size_of::<SrqInit>() == 24);

/// `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) length_bytes: u32,
    pub(crate) local_key: u32,
}

/// `ibv_send_wr`. What follows `local_key` in the union belongs to kinds of queue pairs not used here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWork {
    pub(crate) id: u64,
    pub(crate) next: *mut Self,
    pub(crate) pieces: *mut Piece,
    pub(crate) piece_count: c_int,
    pub(crate) opcode: c_int,
    pub(crate) flags: c_uint,
    pub(crate) immediate: u32,
    pub(crate) remote_address: u64,
    /// The remote key of a READ or WRITE in its low half; what an atomic compares with or adds.
    pub(crate) key_or_compare: u64,
    pub(crate) swap: u64,
    pub(crate) atomic_remote_key: u32,
    pub(crate) unused: [u32; 15],
}

impl Default for SendWork {
    fn default() -> Self {
        Self {
            id: 0,
            next: std::ptr::null_mut(),
            pieces: std::ptr::null_mut(),
            piece_count: 0,
            opcode: 0,
            flags: 0,
            immediate: 0,
            remote_address: 0,
            key_or_compare: 0,
            swap: 0,
            atomic_remote_key: 0,
            unused: [0; 15],
        }
    }
}

const _: () = assert!(size_of::<SendWork>() == 128 && offset_of!(SendWork, remote_address) == 40);
const _: () = assert!(offset_of!(SendWork, opcode) == 28 && offset_of!(SendWork, flags) == 32);
const _: () = assert!(offset_of!(SendWork, key_or_compare) == 48 && offset_of!(SendWork, swap) == 56);
const _: () = assert!(offset_of!(SendWork, atomic_remote_key) == 64);

pub(crate) const OPCODE_WRITE: c_int = 0;
pub(crate) const OPCODE_SEND: c_int = 2;
pub(crate) const OPCODE_READ: c_int = 4;
pub(crate) const OPCODE_COMPARE_SWAP: c_int = 5;
pub(crate) const OPCODE_FETCH_ADD: c_int = 6;

pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const SEND_INLINE: c_uint = 8;

/// `ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReceiveWork {
    pub(crate) id: u64,
    pub(crate) next: *mut Self,
    pub(crate) pieces: *mut Piece,
    pub(crate) piece_count: c_int,
}

const _: () = assert!(size_of::<ReceiveWork>() == 32);

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WorkCompletion {
    pub(crate) id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_error: u32,
    pub(crate) length_bytes: u32,
    pub(crate) immediate: u32,
    pub(crate) queue_pair: u32,
    pub(crate) source_queue_pair: u32,
    pub(crate) flags: c_uint,
    pub(crate) partition_index: u16,
    pub(crate) source_lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
}

const _: () = assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, queue_pair) == 28);

pub(crate) const STATUS_SUCCESS: c_int = 0;
/// Nobody acknowledged what was sent again and again.
pub(crate) const STATUS_RETRIES_EXCEEDED: c_int = 12;
