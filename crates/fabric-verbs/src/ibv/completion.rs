//! Completion queues, and sleep until something completes.
//!
//! Protocol of sleep: ask for an event, look once more, then block on the channel's descriptor. An event that
//! came in between makes it readable, so none is missed.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use farsight_fabric::FabricError;
use rustix::fs::OFlags;

use super::device::Device;
use super::ffi::{self, WorkCompletion};

/// A completion queue with a channel of its own.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    raw: NonNull<ffi::Cq>,
    channel: NonNull<ffi::CompletionChannel>,
    device: Arc<Device>,
}

// SAFETY: the library's functions may be called from any thread on any of its objects.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue that holds `capacity` completions.
    pub(crate) fn new(device: &Arc<Device>, capacity: u32) -> Result<Arc<Self>, FabricError> {
        let library = device.library.0;
        // SAFETY: the context is open.
        let channel = unsafe { (library.create_comp_channel)(device.context()) };
        let channel =
            device.made(channel, "making a completion channel", "Are descriptors left (ulimit -n)?")?;
        let capacity = i32::try_from(capacity).unwrap_or(i32::MAX);
        // SAFETY: context and channel are alive, and the queue's user pointer is never followed.
        let raw = unsafe { (library.create_cq)(device.context(), capacity, null_mut(), channel.as_ptr(), 0) };
        let raw = match device.made(raw, "making a completion queue", "Too many of them, or too long?") {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: made above, used by nothing, destroyed once.
                unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
                return Err(error);
            }
        };
        let queue = Self { raw, channel, device: Arc::clone(device) };
        let flags = rustix::fs::fcntl_getfl(queue.descriptor());
        flags
            .and_then(|flags| rustix::fs::fcntl_setfl(queue.descriptor(), flags | OFlags::NONBLOCK))
            .map_err(|error| {
                farsight_fabric_host::os::system_error(
                    "making a completion channel",
                    &io::Error::from(error),
                    "A bug",
                )
            })?;
        Ok(Arc::new(queue))
    }

    /// Whose it is.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> *mut ffi::Cq {
        self.raw.as_ptr()
    }

    /// Takes completions that are there, as many as `into` holds.
    #[inline]
    pub(crate) fn poll(&self, into: &mut [WorkCompletion]) -> io::Result<usize> {
        // SAFETY: the context is open while this queue lives.
        let poll = unsafe { (*self.device.context()).poll_cq }.expect("every device polls");
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive, and `into` has room for as many as the call is told.
        let count = unsafe { poll(self.raw(), room, into.as_mut_ptr()) };
        usize::try_from(count)
            .map_err(|_| io::Error::other(format!("polling the completion queue failed: {count}")))
    }

    /// Asks for an event at the next completion.
    pub(crate) fn request_event(&self) -> io::Result<()> {
        // SAFETY: the context is open while this queue lives.
        let request = unsafe { (*self.device.context()).request_notify }.expect("every device notifies");
        // SAFETY: the queue is alive; zero means every completion.
        let outcome = unsafe { request(self.raw(), 0) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome)) }
    }

    /// What is readable once an event has come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this queue, and its number does not change.
        let number = unsafe { (*self.channel.as_ptr()).descriptor };
        // SAFETY: the descriptor is open as long as the channel lives, and not negative.
        unsafe { BorrowedFd::borrow_raw(number) }
    }

    /// Takes and acknowledges the events that have come.
    pub(crate) fn take_events(&self) {
        let library = self.device.library.0;
        let (mut queue, mut user) = (null_mut(), null_mut());
        let mut count = 0;
        // Bounded: no more events come than were requested.
        while count < 64 {
            // SAFETY: channel and both places live; the descriptor does not block.
            let outcome =
                unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut user) };
            if outcome != 0 {
                break;
            }
            count += 1;
        }
        if count > 0 {
            // SAFETY: so many events of this queue, the channel's only one, were taken just now.
            unsafe { (library.ack_cq_events)(self.raw(), count) };
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let library = self.device.library.0;
        // SAFETY: every queue pair on it held it, so all are gone; its events are acknowledged; once.
        unsafe { (library.destroy_cq)(self.raw()) };
        // SAFETY: its only queue is gone; once.
        unsafe { (library.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}
