#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("shm_handshake"), |data: &[u8]| { fuzz::run("shm_handshake", data); });
