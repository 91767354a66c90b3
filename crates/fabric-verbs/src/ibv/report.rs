//! What devices can do, for people to read: what they say of themselves, and what only trying tells.

use std::net::Ipv6Addr;
use std::sync::Arc;

use farsight_fabric::FabricError;

use super::completion::CompletionQueue;
use super::device::Device;
use super::ffi::{access, capability};
use super::memory::{Holder, Memory, ProtectionDomain, Registered};
use super::pair::{PairShape, RcPair};
use crate::INLINE_BYTES;

/// Bytes of memory that is registered for a trial.
const TRIAL_BYTES: usize = 4096;

/// What a port of a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// Its name, as `rdma link` shows it.
    pub name: String,
    /// Its vendor, as PCI counts them; software devices have numbers of their own.
    pub vendor: u32,
    /// The port.
    pub port: u8,
    /// True if the port is up.
    pub is_active: bool,
    /// `InfiniBand` or `RoCE v2`.
    pub link: &'static str,
    /// The address that connections come from, and its place in the port's table.
    pub address: Option<(Ipv6Addr, u32)>,
    /// READs and atomics that one queue pair has under way, and serves, at a time.
    pub reads_max: (u32, u32),
    /// Work that one queue pair holds.
    pub queue_work_max: u32,
    /// Bytes of one packet.
    pub path_unit_bytes: u32,
    /// Bytes that a queue pair takes from where they are, if as many as this fabric uses were requested; none
    /// if the port is down.
    pub inline_bytes_max: Option<u32>,
    /// How its atomics behave: among its own queue pairs, or with the processor's too.
    pub atomics: &'static str,
    /// True if it fetches a line of 64 B whole, so that one READ is a snapshot.
    pub reads_lines_whole: bool,
    /// The kinds of memory windows that it says it has. This fabric uses none.
    pub memory_windows: &'static str,
    /// True if it registers memory that need not be there (on-demand paging). This fabric registers none.
    pub registers_absent_memory: bool,
}

/// Every port of every device of this machine.
///
/// # Errors
/// [`FabricError::System`] if there is no libibverbs, or the kernel knows no RDMA.
pub fn devices() -> Result<Vec<DeviceReport>, FabricError> {
    Device::every_port()?.iter().map(report).collect()
}

fn report(device: &Arc<Device>) -> Result<DeviceReport, FabricError> {
    let (port, attributes) = (&device.port, &device.attributes);
    let domain = ProtectionDomain::new(Arc::clone(device))?;
    Ok(DeviceReport {
        name: device.name.clone(),
        vendor: attributes.vendor,
        port: port.number,
        is_active: port.is_active,
        link: if port.is_infiniband { "InfiniBand" } else { "RoCE v2" },
        address: port.has_gid.then(|| (Ipv6Addr::from(port.gid), u32::from(port.gid_index))),
        reads_max: (u32::from(attributes.reads_begun_max), u32::from(attributes.reads_served_max)),
        queue_work_max: attributes.queue_work_max,
        path_unit_bytes: 128 << port.path_unit,
        inline_bytes_max: if port.is_active { inline_bytes_max(&domain) } else { None },
        atomics: match attributes.atomic_capability {
            0 => "none",
            1 => "among its own",
            _ => "with the processor's",
        },
        reads_lines_whole: device.reads_lines_whole(),
        memory_windows: memory_windows(attributes.capabilities),
        registers_absent_memory: registers_absent_memory(&domain),
    })
}

/// What a queue pair as the fabric makes it takes inline; none if it cannot be made.
fn inline_bytes_max(domain: &Arc<ProtectionDomain>) -> Option<u32> {
    let completions = CompletionQueue::new(&domain.device, 1).ok()?;
    let shape =
        PairShape { sends_max: 1, receives_max: 1, shared: None, rights: 0, inline_bytes: INLINE_BYTES };
    RcPair::new(domain, &completions, shape, 0).ok().map(|pair| pair.inline_bytes_max)
}

fn registers_absent_memory(domain: &Arc<ProtectionDomain>) -> bool {
    let rights = access::LOCAL_WRITE | access::ON_DEMAND;
    let memory = Memory::zeroed(TRIAL_BYTES, TRIAL_BYTES);
    memory.is_ok_and(|memory| Registered::new(domain, Holder::Own(Arc::new(memory)), rights).is_ok())
}

fn memory_windows(capabilities: u32) -> &'static str {
    let has = |bit: u32| capabilities & bit != 0;
    let of_type_2 = has(capability::MEMORY_WINDOW_2A) || has(capability::MEMORY_WINDOW_2B);
    match (has(capability::MEMORY_WINDOW_1), of_type_2) {
        (false, false) => "none",
        (true, false) => "type 1",
        (false, true) => "type 2",
        (true, true) => "types 1 and 2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_windows_are_told_apart() {
        assert_eq!(memory_windows(0), "none");
        assert_eq!(memory_windows(capability::MEMORY_WINDOW_1 | 1), "type 1");
        assert_eq!(memory_windows(capability::MEMORY_WINDOW_2A), "type 2");
        assert_eq!(memory_windows(!0), "types 1 and 2");
    }
}
