//! libibverbs, looked for when the first device is.
//!
//! Invariant: a [`Library`] has every function that this crate calls; once loaded it is never unloaded, so
//! its functions may be called at any time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::ffi::{
    CompletionChannel, Context, Cq, DeviceAttributes, GidEntry, Mr, Opaque, Pd, PortAttributes, Qp, QpChange,
    QpInit, Srq, SrqInit,
};

const NAME: &CStr = c"libibverbs.so.1";

macro_rules! library {
    ($($(#[$doc:meta])* $field:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions of libibverbs that are not inline in its header.
        pub(crate) struct Library {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Library {
            fn load() -> Result<Self, String> {
                let handle = open()?;
                Ok(Self {
                    $($field: {
                        let address = symbol(handle, $symbol)?;
                        // SAFETY: a null address was refused, and this symbol is a function of this type in
                        // every version of the library that has its name (see `ffi`).
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)+
                })
            }
        }
    };
}

library! {
    get_device_list: c"ibv_get_device_list" fn(*mut c_int) -> *mut *mut Opaque;
    free_device_list: c"ibv_free_device_list" fn(*mut *mut Opaque);
    get_device_name: c"ibv_get_device_name" fn(*mut Opaque) -> *const c_char;
    open_device: c"ibv_open_device" fn(*mut Opaque) -> *mut Context;
    close_device: c"ibv_close_device" fn(*mut Context) -> c_int;
    query_device: c"ibv_query_device" fn(*mut Context, *mut DeviceAttributes) -> c_int;
    query_port: c"ibv_query_port" fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid_table: c"_ibv_query_gid_table" fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
    alloc_pd: c"ibv_alloc_pd" fn(*mut Context) -> *mut Pd;
    dealloc_pd: c"ibv_dealloc_pd" fn(*mut Pd) -> c_int;
    reg_mr: c"ibv_reg_mr" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: c"ibv_dereg_mr" fn(*mut Mr) -> c_int;
    create_comp_channel: c"ibv_create_comp_channel" fn(*mut Context) -> *mut CompletionChannel;
    destroy_comp_channel: c"ibv_destroy_comp_channel" fn(*mut CompletionChannel) -> c_int;
    create_cq: c"ibv_create_cq" fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    destroy_cq: c"ibv_destroy_cq" fn(*mut Cq) -> c_int;
    get_cq_event: c"ibv_get_cq_event" fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: c"ibv_ack_cq_events" fn(*mut Cq, c_uint);
    create_srq: c"ibv_create_srq" fn(*mut Pd, *mut SrqInit) -> *mut Srq;
    destroy_srq: c"ibv_destroy_srq" fn(*mut Srq) -> c_int;
    create_qp: c"ibv_create_qp" fn(*mut Pd, *mut QpInit) -> *mut Qp;
    modify_qp: c"ibv_modify_qp" fn(*mut Qp, *mut QpChange, c_int) -> c_int;
    destroy_qp: c"ibv_destroy_qp" fn(*mut Qp) -> c_int;
    status_text: c"ibv_wc_status_str" fn(c_int) -> *const c_char;
}

impl Library {
    /// The library, or why there is none.
    pub(crate) fn get() -> Result<&'static Self, &'static str> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(String::as_str)
    }

    /// What the library calls a completion's status.
    pub(crate) fn status(&self, status: c_int) -> String {
        // SAFETY: the function takes any number and returns a text that lives as long as the library.
        let text = unsafe { (self.status_text)(status) };
        format!("{} ({status})", text_of(text))
    }
}

/// A C text that lives long enough to be copied, or nothing for a null pointer.
pub(crate) fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and by this function's callers a terminated text of the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn open() -> Result<*mut c_void, String> {
    // SAFETY: the name is a terminated text; the library's initialisers are those of rdma-core, which expect
    // nothing of the process.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(last_error()) } else { Ok(handle) }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: `handle` came from `dlopen` and is never closed; the name is a terminated text.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() { Err(format!("{}: {}", name.to_string_lossy(), last_error())) } else { Ok(address) }
}

fn last_error() -> String {
    // SAFETY: the call takes nothing; its text lives until the next error of this thread.
    let text = unsafe { libc::dlerror() };
    text_of(text)
}
