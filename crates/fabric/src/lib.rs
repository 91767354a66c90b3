//! The verb contract: regions, doorbell batches, the lane, calls, meters.
