#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("shm_ring"), |data: &[u8]| { fuzz::run("shm_ring", data); });
