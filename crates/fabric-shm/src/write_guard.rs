//! A client's half of a fence that costs no process: the server may hold up its stores, and it gets over
//! that.
//!
//! Invariant: while a link lives, nothing takes back the protection of a region that is *guarded*. So a
//! server that has protected all of a client's writable regions knows that none of them changes by it any
//! more, wherever the client was stopped.
//!
//! Protocol:
//! 1. A region is mapped, and registered with the descriptor that the server gets
//!    ([`control`](crate::control)). Before the server has answered, nobody stores there.
//! 2. The server protects the region. A doorbell that stores there waits in the kernel from then on.
//! 3. The thread that hears of the dismissal ends the link, and *diverts* all guarded regions: it maps a file
//!    of this process's own in their places, and wakes who waits. What such a doorbell stores goes to that
//!    file. It finds the link ended before it reports anything.
//!
//! Not guarded are regions of a server in this very process, and where the kernel refuses a userfaultfd: then
//! a fence may cost the process.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use farsight_base::RegionId;
use farsight_base::report::report;
use rustix::fs::MemfdFlags;

use crate::mapping::Mapping;
use crate::userfaultfd::Userfaultfd;

/// How often the kernel is asked to divert a region, and how long to rest in between.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The guarded regions of one link.
#[derive(Debug)]
pub(crate) struct WriteGuard {
    faults: Userfaultfd,
    /// Where stores go once the link has ended: a file as long as the longest region, which takes memory
    /// where somebody stores.
    sink: OwnedFd,
    guarded: Mutex<Guarded>,
}

#[derive(Default, Debug)]
struct Guarded {
    regions: BTreeMap<RegionId, Weak<Mapping>>,
    sink_bytes: usize,
    /// The server has the descriptor.
    is_sent: bool,
    is_over: bool,
}

impl WriteGuard {
    /// # Errors
    /// Where the kernel or a sandbox refuses it, or no descriptors are left.
    pub(crate) fn new() -> io::Result<Self> {
        let faults = Userfaultfd::new()?;
        let sink = rustix::fs::memfd_create("farsight-sink", MemfdFlags::CLOEXEC)?;
        Ok(Self { faults, sink, guarded: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        // Each change is complete.
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a region that is mapped writable. The server must be told before anybody stores there.
    ///
    /// # Errors
    /// If the link has ended, or the kernel refuses: the region is not guarded.
    pub(crate) fn watch(&self, region: RegionId, mapping: &Arc<Mapping>) -> io::Result<()> {
        let mut guarded = self.lock();
        if guarded.is_over {
            return Err(io::Error::other("the link has ended"));
        }
        let range = addresses(mapping);
        let length_bytes = mapping.address_range().len();
        if length_bytes > guarded.sink_bytes {
            rustix::fs::ftruncate(&self.sink, length_bytes as u64)?;
            guarded.sink_bytes = length_bytes;
        }
        self.faults.register(range)?;
        guarded.regions.retain(|_, mapping| mapping.strong_count() > 0);
        guarded.regions.insert(region, Arc::downgrade(mapping));
        Ok(())
    }

    /// Takes the registration of a region back. The server has answered that it protects nothing there.
    pub(crate) fn unwatch(&self, region: RegionId) {
        let mut guarded = self.lock();
        if !guarded.is_over
            && let Some(mapping) = guarded.regions.remove(&region).as_ref().and_then(Weak::upgrade)
        {
            // A range that stays registered is registered again by the next `watch`, which changes nothing.
            let _ = self.faults.unregister(addresses(&mapping));
        }
    }

    /// Whether the region is guarded.
    pub(crate) fn watches(&self, region: RegionId) -> bool {
        self.lock().regions.contains_key(&region)
    }

    /// The descriptor, for a server that has not got it yet.
    pub(crate) fn unsent(&self) -> Option<BorrowedFd<'_>> {
        (!self.lock().is_sent).then(|| self.faults.as_fd())
    }

    /// The server has the descriptor.
    pub(crate) fn sent(&self) {
        self.lock().is_sent = true;
    }

    /// Step 3, once the link's word says that it has ended. Afterwards nobody waits for a store, and none
    /// reaches a region.
    pub(crate) fn divert(&self) {
        let mut guarded = self.lock();
        guarded.is_over = true;
        for mapping in
            std::mem::take(&mut guarded.regions).into_values().filter_map(|region| region.upgrade())
        {
            self.divert_one(&mapping);
        }
    }

    fn divert_one(&self, mapping: &Mapping) {
        let divert = || {
            mapping.divert(self.sink.as_fd())?;
            self.faults.wake(addresses(mapping))
        };
        let mut failure = None;
        for _ in 0..TRIES {
            match divert() {
                Ok(()) => return,
                Err(error) => failure = Some(error),
            }
            std::thread::sleep(PAUSE);
        }
        // Its threads would wait in the kernel for ever, or store where another one's data is.
        report(format_args!(
            "this process ends: its server took write access to a region back, and the kernel refuses other memory              in its place ({})",
            failure.map_or_else(String::new, |error| error.to_string())
        ));
        std::process::abort();
    }
}

/// As the kernel's requests want them.
fn addresses(mapping: &Mapping) -> Range<u64> {
    let Range { start, end } = mapping.address_range();
    start as u64..end as u64
}
