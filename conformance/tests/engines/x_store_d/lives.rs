//! Memory nodes that fill up, end, and come back empty, under sessions that are open.

use farsight::EngineKind;
use farsight_conformance::engine::pool::{over_shared_memory, over_tcp};
use farsight_conformance::engine::pool_lives::{a_full_pool_goes_on, a_lost_memory_node_is_named};

#[test]
fn a_lost_memory_node_is_named_over_shared_memory() {
    a_lost_memory_node_is_named(EngineKind::XSTORE_D, over_shared_memory);
}

#[test]
fn a_lost_memory_node_is_named_over_tcp() {
    a_lost_memory_node_is_named(EngineKind::XSTORE_D, over_tcp);
}

#[test]
fn a_full_pool_goes_on_over_shared_memory() {
    a_full_pool_goes_on(EngineKind::XSTORE_D, over_shared_memory);
}
