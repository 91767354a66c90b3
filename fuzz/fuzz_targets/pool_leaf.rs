#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("pool_leaf"), |data: &[u8]| { fuzz::run("pool_leaf", data); });
