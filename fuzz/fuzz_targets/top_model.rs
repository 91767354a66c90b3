#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("top_model"), |data: &[u8]| { fuzz::run("top_model", data); });
