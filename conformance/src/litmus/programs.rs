//! The programs, one a file.

mod add_beside_processor;
mod atomic_behind_write;
mod flag_line;
mod flag_then_payload;
mod overwritten;
mod overwritten_by_another_queue;
mod plain_line;
mod publish_by_atomic;
mod read_behind_swap;
mod reads_in_turn;
mod reads_of_one_batch;
mod rewritten_later;
mod stamped_line;
mod store_buffering;
mod store_buffering_in_turn;
mod swap_and_add;
mod two_lines;
mod two_swaps;
mod write_behind_complete_read;
mod write_behind_read;
mod write_of_lines;
mod writes_in_turn;
mod writes_of_one_queue;
mod writes_of_two_queues;

use super::Program;

/// All of them.
pub const ALL: &[&Program] = &[
    &plain_line::PROGRAM,
    &stamped_line::PROGRAM,
    &two_lines::PROGRAM,
    &flag_line::PROGRAM,
    &flag_then_payload::PROGRAM,
    &write_of_lines::PROGRAM,
    &writes_of_one_queue::PROGRAM,
    &writes_of_two_queues::PROGRAM,
    &writes_in_turn::PROGRAM,
    &overwritten::PROGRAM,
    &overwritten_by_another_queue::PROGRAM,
    &swap_and_add::PROGRAM,
    &add_beside_processor::PROGRAM,
    &two_swaps::PROGRAM,
    &read_behind_swap::PROGRAM,
    &write_behind_read::PROGRAM,
    &write_behind_complete_read::PROGRAM,
    &store_buffering::PROGRAM,
    &store_buffering_in_turn::PROGRAM,
    &reads_of_one_batch::PROGRAM,
    &reads_in_turn::PROGRAM,
    &publish_by_atomic::PROGRAM,
    &atomic_behind_write::PROGRAM,
    &rewritten_later::PROGRAM,
];
