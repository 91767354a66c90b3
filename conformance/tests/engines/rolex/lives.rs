//! Memory nodes and compute nodes that come and go, over each fabric that needs no device.

use farsight::EngineKind;
use farsight_conformance::engine::pool::{over_shared_memory, over_tcp};
use farsight_conformance::engine::pool_lives::{
    a_compute_node_changes_its_number, a_full_pool_goes_on, a_lost_memory_node_is_named,
    compute_nodes_join_and_leave_under_load, linked_leaves_are_looked_at_once, numbers_change_under_load,
};
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;

#[test]
fn a_lost_memory_node_is_named_over_shared_memory() {
    a_lost_memory_node_is_named(EngineKind::ROLEX, over_shared_memory);
}

#[test]
fn a_lost_memory_node_is_named_over_tcp() {
    a_lost_memory_node_is_named(EngineKind::ROLEX, over_tcp);
}

#[test]
fn a_full_pool_goes_on_over_shared_memory() {
    a_full_pool_goes_on(EngineKind::ROLEX, over_shared_memory);
}

#[test]
fn a_full_pool_goes_on_over_tcp() {
    a_full_pool_goes_on(EngineKind::ROLEX, over_tcp);
}

#[test]
fn compute_nodes_join_and_leave_over_shared_memory() {
    compute_nodes_join_and_leave_under_load(over_shared_memory);
}

#[test]
fn compute_nodes_join_and_leave_over_tcp() {
    compute_nodes_join_and_leave_under_load(over_tcp);
}

#[test]
fn numbers_are_changed_over_shared_memory() {
    a_compute_node_changes_its_number([Shm::new(), Shm::new()]);
}

#[test]
fn numbers_are_changed_over_tcp() {
    a_compute_node_changes_its_number([Tcp::default(), Tcp::default()]);
}

#[test]
fn numbers_are_changed_under_load_over_shared_memory() {
    numbers_change_under_load([Shm::new(), Shm::new()]);
}

#[test]
fn numbers_are_changed_under_load_over_tcp() {
    numbers_change_under_load([Tcp::default(), Tcp::default()]);
}

#[test]
fn linked_leaves_are_looked_at_once_over_shared_memory() {
    linked_leaves_are_looked_at_once([Shm::new(), Shm::new()]);
}

#[test]
fn linked_leaves_are_looked_at_once_over_tcp() {
    linked_leaves_are_looked_at_once([Tcp::default(), Tcp::default()]);
}
