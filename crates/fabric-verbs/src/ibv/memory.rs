//! Memory that devices read and write.
//!
//! Invariant: a registration holds its memory and its protection domain, so a device never reaches memory
//! that is gone. Memory is seen as `&[AtomicU64]` alone, whether a device or a processor writes it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};

use super::device::Device;
use super::ffi;
use farsight_fabric_host::os;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// What helps where memory cannot be registered.
const LOCK_REMEDY: &str = "Is so much memory free, and may it be locked (ulimit -l)?";

fn registering(length_bytes: usize) -> String {
    format!("registering {length_bytes} B")
}

/// Zeroed memory of whole pages, none of which the kernel has given before it is touched.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<AtomicU64>,
    length_bytes: usize,
    /// The whole mapping, in which the aligned memory lies.
    mapping: NonNull<c_void>,
    mapping_bytes: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and is reached through atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of at least `length_bytes`, in whole units of `alignment_bytes` (pages, or huge pages,
    /// which are requested then).
    pub(crate) fn zeroed(length_bytes: usize, alignment_bytes: usize) -> Result<Self, FabricError> {
        let failed = || {
            let error = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
            os::system_error(format!("taking {length_bytes} B of memory"), &error, "Is there enough?")
        };
        let rounded = length_bytes.max(1).checked_next_multiple_of(alignment_bytes).ok_or_else(failed)?;
        // A mapping begins at a page; what is left over at both ends is never touched.
        let mapping_bytes = rounded.checked_add(alignment_bytes - PAGE_BYTES).ok_or_else(failed)?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing of this process.
        let mapping =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapping_bytes, rights, flags) };
        let mapping = mapping.ok().and_then(NonNull::new).ok_or_else(failed)?;
        let skipped_bytes = mapping.cast::<u8>().align_offset(alignment_bytes);
        // SAFETY: the mapping begins at a page, so the next multiple of the alignment, itself one of pages,
        // is at most `alignment_bytes - PAGE_BYTES` away, which the mapping has besides `rounded`.
        let base = unsafe { mapping.byte_add(skipped_bytes) };
        if alignment_bytes == HUGE_PAGE_BYTES {
            // SAFETY: the range lies in this mapping, made of whole pages; the advice changes no content.
            // That it is refused costs speed alone.
            let _ = unsafe { rustix::mm::madvise(base.as_ptr(), rounded, Advice::LinuxHugepage) };
        }
        Ok(Self { base: base.cast(), length_bytes: rounded, mapping, mapping_bytes })
    }

    /// All words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is page-aligned and mapped for `length_bytes` while `self` lives, zeroed by the
        // kernel. `AtomicU64` has no invalid values. Any other writer, device or processor, writes words at
        // which this process looks by atomics alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length_bytes / 8) }
    }

    /// Takes every page from the kernel. This must precede a registration for READ alone. What the kernel
    /// pins for a device that only reads may otherwise be the page of zeros that all processes share, and not
    /// the page that this process writes later.
    pub(crate) fn populate(&self) {
        for page in self.words().chunks(PAGE_BYTES / 8) {
            // A store that changes nothing, beside writers too. Relaxed: nothing is published.
            let _ = page[0].compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Makes huge pages of it, as far as the kernel will, and returns their bytes. Before it is registered:
    /// afterwards its pages stay what they are.
    pub(crate) fn collapse(&self) -> u64 {
        let mut huge_bytes = 0;
        for offset_bytes in
            (0..self.length_bytes - self.length_bytes % HUGE_PAGE_BYTES).step_by(HUGE_PAGE_BYTES)
        {
            // SAFETY: the offset lies below the memory's length.
            let piece = unsafe { self.base.as_ptr().byte_add(offset_bytes) };
            // SAFETY: a whole huge page's range inside the memory, aligned as that is; its content stays.
            let outcome = unsafe { libc::madvise(piece.cast(), HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
            huge_bytes += if outcome == 0 { HUGE_PAGE_BYTES as u64 } else { 0 };
        }
        huge_bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped once with this length, given back once, and no registration lives that holds it.
        let outcome = unsafe { rustix::mm::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        assert!(outcome.is_ok() || std::thread::panicking(), "memory cannot be given back: {outcome:?}");
    }
}

/// Memory that can be registered: it stays where it is for as long as the value lives.
#[derive(Clone)]
pub(crate) enum Holder {
    /// This crate's own.
    Own(Arc<Memory>),
    /// A region's, of any host of this process. Its words stay in place while the `Arc` is held: any holder
    /// may borrow them for as long, and no region could know that nobody does.
    Region(Arc<dyn Region>),
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words", self.words().len())
    }
}

impl Holder {
    /// Fails at once if this process may not lock so much, which registering would find out at its end.
    pub(crate) fn check_lockable(&self) -> Result<(), FabricError> {
        let words = self.words();
        let (address, length_bytes) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
        // SAFETY: the range is mapped while `self` is borrowed; to lock it takes no page and changes none.
        let locked = unsafe { rustix::mm::mlock_with(address, length_bytes, MlockFlags::ONFAULT) };
        // SAFETY: as above. What is not locked may be unlocked.
        let _ = unsafe { rustix::mm::munlock(address, length_bytes) };
        match locked {
            // Another error says nothing about the limit.
            Err(error @ (Errno::NOMEM | Errno::PERM)) => {
                Err(os::system_error(registering(length_bytes), &error.into(), LOCK_REMEDY))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Own(memory) => memory.words(),
            Self::Region(region) => region.words(),
        }
    }
}

/// What keys and addresses belong to: a key of one domain opens nothing in another.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    pub(crate) raw: NonNull<ffi::Pd>,
    pub(crate) device: Arc<Device>,
}

// SAFETY: the library's functions may be called from any thread on any of its objects.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(device: Arc<Device>) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.library.0.alloc_pd)(device.context()) };
        let raw = device.made(raw, "making a protection domain", "Too many of them?")?;
        Ok(Arc::new(Self { raw, device }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: everything made in the domain held it, so all of that is gone; given back once.
        unsafe { (self.device.library.0.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory that the device may use.
#[derive(Debug)]
pub(crate) struct Registered {
    raw: NonNull<ffi::Mr>,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
    holder: Holder,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: the library's functions may be called from any thread on any of its objects; the memory is reached
// through atomics only.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Lets the device use all of `holder`'s words for `rights` ([`ffi::access`]). Its pages are in memory
    /// from then on.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        holder: Holder,
        rights: u32,
    ) -> Result<Self, FabricError> {
        let words = holder.words();
        let (address, length_bytes) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
        let device = &domain.device;
        // SAFETY: the range is mapped for as long as the registration lives, because that holds `holder`;
        // what the device writes there nobody sees but as atomics.
        let raw =
            unsafe { (device.library.0.reg_mr)(domain.raw.as_ptr(), address, length_bytes, rights as i32) };
        let raw = device.made(raw, &registering(length_bytes), LOCK_REMEDY)?;
        // SAFETY: the library made it, and its keys do not change.
        let local_key = unsafe { (*raw.as_ptr()).local_key };
        // SAFETY: as above.
        let remote_key = unsafe { (*raw.as_ptr()).remote_key };
        Ok(Self { raw, local_key, remote_key, holder, domain: Arc::clone(domain) })
    }

    /// Memory of this side's own that the device may write and no peer may name.
    pub(crate) fn private(domain: &Arc<ProtectionDomain>, length_bytes: usize) -> Result<Self, FabricError> {
        let memory = Arc::new(Memory::zeroed(length_bytes, PAGE_BYTES)?);
        Self::new(domain, Holder::Own(memory), ffi::access::LOCAL_WRITE)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.holder.words()
    }

    /// Where it begins, as the device counts.
    pub(crate) fn address(&self) -> u64 {
        self.words().as_ptr() as u64
    }

    /// The piece of `length_bytes` at `offset_bytes`.
    ///
    /// # Panics
    /// If that is not inside.
    pub(crate) fn piece(&self, offset_bytes: usize, length_bytes: usize) -> ffi::Piece {
        let inside = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= self.words().len() * 8);
        assert!(inside, "{length_bytes} B at {offset_bytes} of {} words", self.words().len());
        ffi::Piece {
            address: self.address() + offset_bytes as u64,
            length_bytes: u32::try_from(length_bytes).expect("pieces are below 4 GiB"),
            local_key: self.local_key,
        }
    }

    /// Copies bytes to the words from `first` on; the last word is filled up with zeros.
    pub(crate) fn store_bytes(&self, first: usize, bytes: &[u8]) {
        let words = &self.words()[first..first + bytes.len().div_ceil(8)];
        for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            // Relaxed: the device reads it after the post, which is a call out of this program.
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Replaces what `into` holds by the `length_bytes` from the word `first` on.
    pub(crate) fn load_bytes(&self, first: usize, length_bytes: usize, into: &mut Vec<u8>) {
        into.clear();
        into.reserve(length_bytes.next_multiple_of(8));
        for word in &self.words()[first..first + length_bytes.div_ceil(8)] {
            // Relaxed: the completion that was polled before came after the device's last store.
            into.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        into.truncate(length_bytes);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once, given back once. Afterwards the device reaches none of it.
        let outcome = unsafe { (self.domain.device.library.0.dereg_mr)(self.raw.as_ptr()) };
        assert!(outcome == 0 || std::thread::panicking(), "a registration cannot be taken back: {outcome}");
    }
}
