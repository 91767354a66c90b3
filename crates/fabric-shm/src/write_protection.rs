//! A server's half of a fence that costs no process: what each client may still write, and taking that away.
//!
//! Invariant: a client is kept from writing once all regions that it was given to write are protected: the
//! kernel holds up its stores there ([`userfaultfd`](crate::userfaultfd)). It may have mapped a region and
//! not said yet where, or be about to map it anew. Then it is not kept from writing.
//!
//! The client says where it has mapped a region, and is believed: a client that lies keeps its own stores, as
//! one does that maps a file twice. What it says is bounded by what it was given. So no request to the kernel
//! covers more than the region has.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use farsight_base::RegionId;
use rustix::io::Errno;

use crate::userfaultfd::Userfaultfd;

/// Bytes protected at a time: 50 ms where they lie on small pages, less than one on huge pages.
const STEP_BYTES: u64 = 256 << 20;

/// How far the protection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// The client changes nothing any more.
    Complete,
    /// A step is done, and there are more.
    UnderWay,
    /// Something is not guarded, or the kernel refused.
    Impossible,
}

/// The regions that one client was given to write.
#[derive(Default, Debug)]
pub(crate) struct WriteProtection {
    faults: Option<Userfaultfd>,
    regions: BTreeMap<RegionId, WritableRegion>,
}

#[derive(Debug)]
struct WritableRegion {
    length_bytes: u64,
    /// Where the client has mapped it, and how many bytes of that are protected; `None` if it is not guarded.
    guarded: Option<(u64, u64)>,
}

impl WriteProtection {
    /// The client gets a region that it may write.
    pub(crate) fn attached(&mut self, region: RegionId, length_bytes: u64) {
        self.regions.insert(region, WritableRegion { length_bytes, guarded: None });
    }

    /// True while the client may send its descriptor.
    pub(crate) fn wants_descriptor(&self) -> bool {
        self.faults.is_none()
    }

    /// The client has registered a region, and has perhaps sent the descriptor for it. A region that was
    /// withdrawn meanwhile is passed over. False if the server has no descriptor by which to protect it.
    ///
    /// # Errors
    /// What came for a descriptor, or was said of the address.
    pub(crate) fn guarded(
        &mut self,
        region: RegionId,
        address: u64,
        descriptor: Option<OwnedFd>,
    ) -> Result<bool, String> {
        if let Some(descriptor) = descriptor {
            self.faults = Some(Userfaultfd::of_peer(descriptor).map_err(|error| error.to_string())?);
        }
        if let Some(writable) = self.regions.get_mut(&region) {
            if address.checked_add(writable.length_bytes).is_none() {
                return Err(format!("{region} of {} B at {address:#x}", writable.length_bytes));
            }
            writable.guarded = self.faults.is_some().then_some((address, 0));
        }
        Ok(self.faults.is_some())
    }

    /// The client maps a region anew, or changes how.
    pub(crate) fn unguarded(&mut self, region: RegionId) {
        if let Some(writable) = self.regions.get_mut(&region) {
            writable.guarded = None;
        }
    }

    /// The client has a region no more, or the region is not this server's any more.
    pub(crate) fn gone(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    /// True if all that the client may write can be protected.
    pub(crate) fn is_possible(&self) -> bool {
        self.regions.values().all(|writable| writable.guarded.is_some())
    }

    /// Protects the next part. The client was told to leave, so nothing that it says changes what is guarded.
    pub(crate) fn step(&mut self) -> Protection {
        if !self.is_possible() {
            return Protection::Impossible;
        }
        match self.protect_next() {
            Ok(protection) => protection,
            // The process is about to change its mappings, and does not need the kernel's lock for long.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => Protection::UnderWay,
            Err(_) => Protection::Impossible,
        }
    }

    fn protect_next(&mut self) -> io::Result<Protection> {
        let Self { faults, regions } = self;
        for WritableRegion { length_bytes, guarded } in regions.values_mut() {
            let (Some(faults), Some((address, protected_bytes))) = (&*faults, guarded) else { continue };
            if *protected_bytes < *length_bytes {
                let bytes = (*length_bytes - *protected_bytes).min(STEP_BYTES);
                let begin = *address + *protected_bytes;
                faults.protect(Range { start: begin, end: begin + bytes })?;
                *protected_bytes += bytes;
                return Ok(Protection::UnderWay);
            }
        }
        Ok(Protection::Complete)
    }
}
