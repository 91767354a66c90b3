#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("verbs_calls"), |data: &[u8]| { fuzz::run("verbs_calls", data); });
