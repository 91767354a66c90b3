#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("leaf_writer"), |data: &[u8]| { fuzz::run("leaf_writer", data); });
