//! Machines of a pool's testbed that keep values.

use std::sync::Arc;

use farsight::ValueCache;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::Table;
use farsight_fabric_sim::Simulation;

use crate::driver::DriverError;

/// Has the machine of this number keep so many bytes of values. As long as anybody has work `left`, it hears
/// from each node what counts no more.
pub(super) fn start(
    simulation: &Simulation,
    (number, table): (usize, &Table),
    bytes: u64,
    left: &Arc<AtomicUsize>,
) -> Result<(), DriverError> {
    if !table.set_value_cache(ValueCache::of_bytes(bytes))? {
        return Err(DriverError::NoValuesKept { engine: table.engine() });
    }
    for keeper in table.keepers()? {
        let left = Arc::clone(left);
        // Relaxed: all of it happens on one thread.
        let is_needed = move || left.load(Ordering::Relaxed) > 0;
        simulation.process("hears of recalls", number, move || keeper.run(is_needed));
    }
    Ok(())
}
