//! Verbs made safe: devices, registered memory, completion queues, queue pairs.
//!
//! Invariant: whatever the library made is destroyed once, after all that was made from it: each wrapper
//! holds what it was made from. What a device may write is reached as atomic words alone.

pub(crate) mod completion;
pub(crate) mod device;
pub(crate) mod ffi;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod pair;
pub(crate) mod report;
