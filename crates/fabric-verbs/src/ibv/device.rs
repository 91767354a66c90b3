//! Devices: which there are, which one to use, and what it can do.
//!
//! Protocol of choosing:
//! 1. The device that was named.
//! 2. Or else the one that has the address over which the peers talk TCP. A RoCE v2 address is an IP address.
//! 3. Or else the first with an active port.

use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use farsight_fabric::FabricError;

use super::ffi::{self, Context, DeviceAttributes, GidEntry, Opaque, PortAttributes};
use super::library::{Library, text_of};
use farsight_fabric_host::os;

/// Entries of a table of addresses that are looked at.
const GIDS_MAX: usize = 256;
/// The vendor whose cards are known to fetch a line whole (NVIDIA, formerly Mellanox).
const VENDOR_MELLANOX: u32 = 0x02c9;

/// An open device and the port and address that are used of it.
#[derive(Debug)]
pub(crate) struct Device {
    context: NonNull<Context>,
    pub(crate) library: LibraryRef,
    pub(crate) name: String,
    pub(crate) attributes: Attributes,
    pub(crate) port: Port,
}

/// The library; a type of its own because functions have nothing to show.
#[derive(Clone, Copy)]
pub(crate) struct LibraryRef(pub(crate) &'static Library);

impl std::fmt::Debug for LibraryRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libibverbs")
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) vendor: u32,
    pub(crate) queue_work_max: u32,
    pub(crate) completions_max: u32,
    pub(crate) reads_served_max: u8,
    pub(crate) reads_begun_max: u8,
    pub(crate) atomic_capability: i32,
    /// Bits of [`ffi::capability`].
    pub(crate) capabilities: u32,
}

/// The port that is used, and the address there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) lid: u16,
    pub(crate) is_infiniband: bool,
    pub(crate) is_active: bool,
    /// The code of the longest packet: 1 is 256 B, each further one twice that.
    pub(crate) path_unit: u8,
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u8,
    pub(crate) has_gid: bool,
}

// SAFETY: the library's functions may be called from any thread on any of its objects; the pointer is only
// handed to them.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The list of devices, given back when dropped.
struct List {
    library: &'static Library,
    first: NonNull<*mut Opaque>,
    count: usize,
}

impl List {
    fn new(library: &'static Library) -> Result<Self, FabricError> {
        let mut count = 0;
        // SAFETY: `count` lives and is what the call writes.
        let first = unsafe { (library.get_device_list)(&raw mut count) };
        let first = NonNull::new(first).ok_or_else(|| {
            let error = std::io::Error::last_os_error();
            os::system_error("listing RDMA devices", &error, "Is the kernel's ib_uverbs loaded?")
        })?;
        Ok(Self { library, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> &[*mut Opaque] {
        // SAFETY: the library made an array of `count` pointers, which lives until it is given back in
        // `drop`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is the library's own and is given back once; open devices outlive it.
        unsafe { (self.library.free_device_list)(self.first.as_ptr()) };
    }
}

fn library() -> Result<&'static Library, FabricError> {
    Library::get().map_err(|reason| FabricError::System {
        what: "loading libibverbs".to_owned(),
        source_text: reason.to_owned(),
        remedy: "Install rdma-core (Debian: libibverbs1 and ibverbs-providers)".to_owned(),
    })
}

impl Device {
    /// The device called `name`, or the one that fits `own_address` best.
    pub(crate) fn choose(name: Option<&str>, own_address: IpAddr) -> Result<Arc<Self>, FabricError> {
        let library = library()?;
        let list = List::new(library)?;
        let mut best: Option<Self> = None;
        for device in list.devices() {
            let mut open = Self::open(library, *device)?;
            if name.is_some_and(|name| name != open.name) {
                continue;
            }
            for port in 1..=open.ports()? {
                let found = open.look_at(port, Some(own_address))?;
                let is_usable = found.is_active && (found.is_infiniband || found.has_gid);
                if is_usable && found.gid == mapped(own_address).octets() {
                    open.port = found;
                    return Ok(Arc::new(open));
                }
                if is_usable && !open.port.is_active {
                    open.port = found;
                }
            }
            if open.port.is_active && best.is_none() {
                best = Some(open);
            }
        }
        best.map(Arc::new).ok_or_else(|| FabricError::System {
            what: name.map_or("finding an RDMA device".to_owned(), |name| {
                format!("finding the RDMA device {name}")
            }),
            source_text: "no such device has an active port with a RoCE v2 or InfiniBand address".to_owned(),
            remedy: "See `rdma link` (`rdma link add rxe0 type rxe netdev eth0` makes one in software), and \
                     whether this user may open /dev/infiniband"
                .to_owned(),
        })
    }

    /// Each port of each device of this machine.
    pub(crate) fn every_port() -> Result<Vec<Arc<Self>>, FabricError> {
        let library = library()?;
        let list = List::new(library)?;
        let mut ports = Vec::new();
        for device in list.devices() {
            for port in 1..=Self::open(library, *device)?.ports()? {
                let mut open = Self::open(library, *device)?;
                open.port = open.look_at(port, None)?;
                ports.push(Arc::new(open));
            }
        }
        Ok(ports)
    }

    fn open(library: &'static Library, device: *mut Opaque) -> Result<Self, FabricError> {
        // SAFETY: `device` is of a list that is alive in the caller.
        let name = text_of(unsafe { (library.get_device_name)(device) });
        // SAFETY: as above.
        let context = unsafe { (library.open_device)(device) };
        let context = NonNull::new(context).ok_or_else(|| {
            let error = std::io::Error::last_os_error();
            os::system_error(
                format!("opening the RDMA device {name}"),
                &error,
                "May this user open /dev/infiniband?",
            )
        })?;
        let port = Port {
            number: 0,
            lid: 0,
            is_infiniband: false,
            is_active: false,
            path_unit: 1,
            gid: [0; 16],
            gid_index: 0,
            has_gid: false,
        };
        let attributes = Attributes {
            vendor: 0,
            queue_work_max: 0,
            completions_max: 0,
            reads_served_max: 0,
            reads_begun_max: 0,
            atomic_capability: 0,
            capabilities: 0,
        };
        let mut open = Self { context, library: LibraryRef(library), name, attributes, port };
        let found = open.query()?;
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let few = |value: i32| u8::try_from(value.clamp(0, 255)).unwrap_or(0);
        open.attributes = Attributes {
            vendor: found.vendor,
            queue_work_max: count(found.queue_work_max),
            completions_max: count(found.completions_max),
            reads_served_max: few(found.reads_served_max),
            reads_begun_max: few(found.reads_begun_max),
            atomic_capability: found.atomic_capability,
            capabilities: found.capabilities,
        };
        Ok(open)
    }

    pub(crate) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    fn query(&self) -> Result<DeviceAttributes, FabricError> {
        // SAFETY: all of its fields are integers, for which zeros are values.
        let mut found: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `found` is as long as the call expects.
        let outcome = unsafe { (self.library.0.query_device)(self.context(), &raw mut found) };
        self.outcome(outcome, "asking it what it can do")?;
        Ok(found)
    }

    fn ports(&self) -> Result<u8, FabricError> {
        Ok(self.query()?.ports)
    }

    /// What stands at a port, with the address equal to `wanted` if there is one, else the best other one.
    fn look_at(&self, port: u8, wanted: Option<IpAddr>) -> Result<Port, FabricError> {
        // SAFETY: all of its fields are integers, for which zeros are values.
        let mut found: PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `found` is at least as long as what the call writes, which is the
        // part of the structure that all versions have.
        let outcome = unsafe { (self.library.0.query_port)(self.context(), port, &raw mut found) };
        self.outcome(outcome, "asking for its port")?;
        let is_infiniband = found.link_layer == ffi::LINK_INFINIBAND;
        let gid = self.gids()?.into_iter().filter(|entry| {
            entry.port == u32::from(port)
                && (is_infiniband || entry.kind == ffi::GID_ROCE_V2)
                && entry.index < 256
        });
        let wanted = wanted.map(|address| mapped(address).octets());
        // An address of IPv4 or a global one of IPv6 before a link-local one, which routes nowhere.
        let gid = gid
            .max_by_key(|entry| (Some(entry.gid) == wanted, entry.gid[0] != 0xfe, -i64::from(entry.index)));
        Ok(Port {
            number: port,
            lid: found.lid,
            is_infiniband,
            is_active: found.state == ffi::PORT_ACTIVE,
            path_unit: u8::try_from(found.path_unit.clamp(1, 5)).unwrap_or(1),
            gid: gid.map_or([0; 16], |entry| entry.gid),
            gid_index: gid.map_or(0, |entry| entry.index as u8),
            has_gid: gid.is_some(),
        })
    }

    fn gids(&self) -> Result<Vec<GidEntry>, FabricError> {
        let nothing = GidEntry { gid: [0; 16], index: 0, port: 0, kind: 0, interface: 0 };
        let mut entries = vec![nothing; GIDS_MAX];
        // SAFETY: the context is open; the array holds as many entries as the call is told, each of the size
        // that it is told.
        let count = unsafe {
            let entry_bytes = size_of::<GidEntry>();
            (self.library.0.query_gid_table)(self.context(), entries.as_mut_ptr(), GIDS_MAX, 0, entry_bytes)
        };
        let count = usize::try_from(count).map_err(|_| {
            let error = std::io::Error::from_raw_os_error(i32::try_from(-count).unwrap_or(0));
            os::system_error(
                format!("listing the addresses of {}", self.name),
                &error,
                "Are there more than 256?",
            )
        })?;
        entries.truncate(count);
        Ok(entries)
    }

    /// The error of a call that returned a number of the system's, if it did.
    pub(crate) fn outcome(&self, outcome: i32, what: &str) -> Result<(), FabricError> {
        if outcome == 0 {
            return Ok(());
        }
        let code =
            if outcome > 0 { outcome } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) };
        let error = std::io::Error::from_raw_os_error(code);
        Err(os::system_error(
            format!("{what} ({})", self.name),
            &error,
            "See `rdma link` and the kernel's log",
        ))
    }

    /// The object that a call made, or the system's error.
    pub(crate) fn made<T>(
        &self,
        object: *mut T,
        what: &str,
        remedy: &str,
    ) -> Result<NonNull<T>, FabricError> {
        NonNull::new(object).ok_or_else(|| {
            let error = std::io::Error::last_os_error();
            os::system_error(format!("{what} ({})", self.name), &error, remedy)
        })
    }

    /// True if each line of a READ that this device serves comes whole. No standard promises it. But a card
    /// fetches memory in lines that the processor's caches hand out whole. Systems on these cards have relied
    /// on that since FaRM (Dragojević et al., NSDI 2014, section 4). Software copies words.
    pub(crate) fn reads_lines_whole(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.attributes.vendor == VENDOR_MELLANOX
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all that was made from the context held this device, so it is gone; closed once. A device
        // that cannot be closed stays open, which harms nobody.
        unsafe { (self.library.0.close_device)(self.context()) };
    }
}

/// The address as RoCE writes it.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
