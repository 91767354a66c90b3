#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("sub_model"), |data: &[u8]| { fuzz::run("sub_model", data); });
