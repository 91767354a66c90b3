#![no_main]

use farsight_conformance::fuzz;

libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("cluster_record"), |data: &[u8]| { fuzz::run("cluster_record", data); });
