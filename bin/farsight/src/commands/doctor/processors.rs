//! Processors: how many, and how fast they are let run.

use std::collections::BTreeSet;
use std::fs;
use std::thread::available_parallelism;

use super::Finding;

pub(super) fn cores() -> Finding {
    match available_parallelism().map_or(1, usize::from) {
        1 => Finding::warn(
            "cores",
            "1: client and server take turns, and each call waits for the other to be scheduled",
            "give this machine or container two cores or more, as in docker run --cpus 2",
        ),
        count => Finding::ok("cores", count.to_string()),
    }
}

pub(super) fn governor() -> Finding {
    let governors = governors();
    if governors.is_empty() {
        return Finding::ok("governor", "not told here (a virtual machine, or fixed frequency)");
    }
    let text = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if text == "performance" {
        return Finding::ok("governor", text);
    }
    Finding::warn(
        "governor",
        format!("{text}: clocks that go up and down blur measurements"),
        "sudo cpupower frequency-set -g performance",
    )
}

/// The frequency governors in use; empty where the kernel has none.
fn governors() -> BTreeSet<String> {
    let Ok(processors) = fs::read_dir("/sys/devices/system/cpu") else { return BTreeSet::new() };
    processors
        .flatten()
        .filter_map(|processor| fs::read_to_string(processor.path().join("cpufreq/scaling_governor")).ok())
        .map(|governor| governor.trim().to_owned())
        .collect()
}
