#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("canary"), |data: &[u8]| { fuzz::run("canary", data); });
