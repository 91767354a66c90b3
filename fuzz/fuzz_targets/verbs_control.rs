#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("verbs_control"), |data: &[u8]| { fuzz::run("verbs_control", data); });
