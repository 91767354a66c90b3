#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("hash_index"), |data: &[u8]| { fuzz::run("hash_index", data); });
