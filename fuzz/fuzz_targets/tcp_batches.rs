#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("tcp_batches"), |data: &[u8]| { fuzz::run("tcp_batches", data); });
