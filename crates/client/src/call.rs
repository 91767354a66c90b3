//! One call to the server's processor outside any engine: catalogue, statistics, pieces of a bulk load.

use farsight_fabric::lane::Lane;
use farsight_fabric::{FabricError, QueuePair};

/// Sends `request` over `queue` and waits for its answer in `reply`, which it replaces. The wait is bounded
/// by the lane's stall timeout.
pub(crate) fn call<Q: QueuePair>(
    queue: &mut Q,
    request: &[u8],
    reply: &mut Vec<u8>,
) -> Result<(), FabricError> {
    let lane = Lane::new(queue);
    lane.block_on(|slot| async move { slot.call(request, reply).await })?
}
