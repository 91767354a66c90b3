//! What a process knows of its own memory: one test, so that nothing else in the process frees any meanwhile.

use farsight_node::process::{default_memory_limit_bytes, machine_memory_bytes, memory_bytes};

#[test]
fn what_is_written_counts_as_memory_of_the_process() {
    const BYTES: usize = 64 << 20;
    let before = memory_bytes().expect("Linux says it");
    let bytes = std::hint::black_box(vec![1_u8; BYTES]);
    let grown = memory_bytes().expect("Linux says it").saturating_sub(before);
    assert!(grown > BYTES as u64 / 2, "{grown} B of {}", bytes.len());
    let limit = default_memory_limit_bytes().expect("Linux says it");
    assert!(limit > grown && limit < 2 * machine_memory_bytes(), "{limit} B");
}
