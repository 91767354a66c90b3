//! Every fuzz target on seeds and mutations of them, without tools; what libFuzzer adds is in `fuzz/`.

use std::panic::catch_unwind;

use farsight_conformance::engine::Seed;
use farsight_conformance::fuzz::{TARGETS, canary::CANARY, driver, target};

/// Inputs of a target.
const INPUTS: usize = 4_000;

#[test]
fn no_target_finds_anything() {
    let seed = Seed::new("no_target_finds_anything");
    std::thread::scope(|scope| {
        for (index, target) in TARGETS.iter().enumerate() {
            let random = seed.random(index as u64);
            std::thread::Builder::new()
                .name(target.name.to_owned())
                .spawn_scoped(scope, move || driver::run(target, random, INPUTS))
                .expect("a thread");
        }
    });
}

#[test]
fn the_driver_finds_the_injected_bug() {
    let seed = Seed::new("the_driver_finds_the_injected_bug");
    let found = catch_unwind(|| driver::run(&CANARY, seed.random(0), INPUTS));
    assert!(found.is_err(), "{INPUTS} inputs did not reach the injected bug");
}

#[test]
fn every_seed_is_there_and_every_name_is_one_targets() {
    for one in TARGETS {
        assert!((one.seeds)().iter().any(|seed| !seed.is_empty()), "target {} has no seeds", one.name);
        let program = format!("{}/../fuzz/fuzz_targets/{}.rs", env!("CARGO_MANIFEST_DIR"), one.name);
        let source = std::fs::read_to_string(&program).expect("a program for libFuzzer");
        assert!(
            source.contains(&format!("fuzz::run(\"{}\", data)", one.name)),
            "{program} runs another target"
        );
        assert!(std::ptr::fn_addr_eq(target(one.name).run, one.run), "two targets are called {}", one.name);
    }
}
