//! The suite of the engine contract over byte strings, of a map. The suite's judges find an engine that
//! confuses such keys. FlexKV, which has them, is in `engines/flexkv.rs`.

use farsight_conformance::engine::map::{HeardAs, MapEngine};
use farsight_conformance::engine::{batches, operations};
use farsight_oracles::{EightBytes, Strings};

fn of_strings(filler_bytes_max: usize, heard_as: HeardAs<Vec<u8>>) -> MapEngine<Strings> {
    let prefix = b"a tenant's name, a table's, ".to_vec();
    MapEngine { embedding: Strings { prefix, filler_bytes_max }, heard_as }
}

mod eight_bytes {
    use super::*;

    farsight_conformance::engine_suite!(MapEngine { embedding: EightBytes::Plain, heard_as: |key| key });
}

mod short_strings {
    use super::*;

    farsight_conformance::engine_suite!(of_strings(0, |key| key));
}

mod long_strings {
    use super::*;

    farsight_conformance::engine_suite!(of_strings(100, |key| key));
}

/// An engine that takes different strings for one fails the suite.
#[test]
fn strings_that_are_confused_are_found() {
    let without_zeros: HeardAs<Vec<u8>> = |mut key| {
        key.truncate(key.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        key
    };
    let cut: HeardAs<Vec<u8>> = |mut key| {
        key.truncate(32);
        key
    };
    let backwards: HeardAs<Vec<u8>> = |mut key| {
        key.reverse();
        key
    };
    for (what, heard_as) in
        [("without zeros at the end", without_zeros), ("cut", cut), ("backwards", backwards)]
    {
        let engine = of_strings(300, heard_as);
        for suite in [operations::values_of_8_bytes, batches::scans_of_every_length] {
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| suite(&engine)));
            assert!(judged.is_err(), "keys {what}, and the suite passes");
        }
    }
}
