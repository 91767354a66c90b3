//! One call to the server's processor outside any engine: catalogue, statistics, pieces of a bulk load.

use farsight_fabric::lane::{Lane, STALL_TIMEOUT};
use farsight_fabric::{FabricError, QueuePair};

/// The slot of a call that is sent first and awaited later.
pub(crate) const SENT_SLOT: usize = 0;

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

/// Sends `request` over `queue`, on which nothing else is under way, for [`receive`].
pub(crate) fn send<Q: QueuePair>(queue: &mut Q, request: &[u8]) -> Result<(), FabricError> {
    queue.post_call(SENT_SLOT, request)?;
    queue.doorbell()
}

/// Waits for the answer to what was [sent](send), in `reply`, which it replaces.
pub(crate) fn receive<Q: QueuePair>(queue: &mut Q, reply: &mut Vec<u8>) -> Result<(), FabricError> {
    let begun = queue.now();
    loop {
        queue.poll()?;
        if queue.is_complete(SENT_SLOT) {
            return queue.take_reply(SENT_SLOT, reply);
        }
        let left = STALL_TIMEOUT.saturating_sub(queue.now().since(begun));
        if left.is_zero() {
            let peer = queue.peer().to_owned();
            return Err(FabricError::TimedOut { peer, what: "the answer to a call", waited: STALL_TIMEOUT });
        }
        queue.wait(left)?;
    }
}
