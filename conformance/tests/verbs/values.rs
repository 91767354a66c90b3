//! Values of any length and keys of bytes over RDMA: what of them is particular of queue pairs. Blocks come
//! in READs of many lines, pieces of a value in messages of half the usual length, and a table of FlexKV lies
//! on two memory nodes. The rest of these suites is what they are over other fabrics.

use std::sync::Arc;

use farsight_conformance::engine::blocks::OfBlocks;
use farsight_conformance::engine::byte_keys::ByteKeys;
use farsight_conformance::engine::direct::DirectStore;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::engine::{batches, conditional, operations};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

/// All of it is locked in memory.
const TABLE_BYTES: u64 = 16 << 20;
/// Longer than any hash of it, and than a line.
const FILLER_BYTES_MAX: usize = 100;

fn blocks() -> OfBlocks<DirectStore<Verbs>> {
    OfBlocks::new(DirectStore::start(Arc::new(Verbs::new()), TABLE_BYTES))
}

fn byte_keys() -> ByteKeys<Verbs> {
    ByteKeys::of(PoolStore::flexkv([Verbs::new(), Verbs::new()], TABLE_BYTES), FILLER_BYTES_MAX)
}

#[test]
fn values_of_any_length() {
    if is_asked_for() {
        operations::values_of_any_length(&blocks());
    }
}

#[test]
fn conditional_writes_of_any_length() {
    if is_asked_for() {
        conditional::writes_of_any_length(&blocks());
    }
}

#[test]
fn byte_keys_with_values_of_8_bytes() {
    if is_asked_for() {
        operations::values_of_8_bytes(&byte_keys());
    }
}

#[test]
fn gets_by_byte_keys_of_every_batch_size() {
    if is_asked_for() {
        batches::gets_of_every_batch_size(&byte_keys());
    }
}

#[test]
fn byte_keys_of_blocks() {
    if is_asked_for() {
        operations::values_of_any_length(&OfBlocks::new(byte_keys()));
    }
}
