#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("leaf"), |data: &[u8]| { fuzz::run("leaf", data); });
