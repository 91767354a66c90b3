#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("memory_node"), |data: &[u8]| { fuzz::run("memory_node", data); });
