//! RDMA devices, as `rdma://` finds them.

use farsight::RdmaDevice;

use super::Finding;

/// One line a port; one that says why, if there is none. Only `rdma://` needs them.
pub(super) fn devices() -> Vec<Finding> {
    match farsight::rdma_devices() {
        Err(error) => vec![Finding::ok("rdma", format!("none, which only rdma:// needs: {error}"))],
        Ok(devices) if devices.is_empty() => vec![Finding::ok("rdma", "no device, which only rdma:// needs")],
        Ok(devices) => devices.iter().map(device).collect(),
    }
}

fn device(device: &RdmaDevice) -> Finding {
    let RdmaDevice { name, port, link, path_unit_bytes, queue_work_max, atomics, .. } = device;
    let inline = device.inline_bytes_max.map_or("nothing".to_owned(), |bytes| format!("{bytes} B"));
    let absent = if device.registers_absent_memory { "yes" } else { "no" };
    if !device.is_active {
        let remedy = format!("rdma link show {name}/{port}, and bring up the network interface beneath it");
        return Finding::warn("rdma", format!("{name} port {port} ({link}) is down"), remedy);
    }
    let address =
        device.address.map_or("no address".to_owned(), |(address, index)| format!("{address} (gid {index})"));
    let (begun, served) = device.reads_max;
    let reads =
        if device.reads_lines_whole { "reads lines whole" } else { "reads words: stamps are checked" };
    Finding::ok(
        "rdma",
        format!(
            "{name} port {port}, {link}, {address}; packets of {path_unit_bytes} B, \
             {queue_work_max} works a queue, {begun} READs begun and {served} served at a time; \
             {inline} inline; atomics {atomics}; {reads}; memory windows: {}, on-demand paging: {absent}",
            device.memory_windows
        ),
    )
}
