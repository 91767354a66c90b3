#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("learned"), |data: &[u8]| { fuzz::run("learned", data); });
