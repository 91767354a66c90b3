#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("value_block"), |data: &[u8]| { fuzz::run("value_block", data); });
