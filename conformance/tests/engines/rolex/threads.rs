//! Sessions of several compute nodes side by side, whose keys lie between each other's in the same leaves:
//! each knows exactly what its own keys must be.

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::raw_pool::{RawPool, RawPoolTable};
use farsight_conformance::engine::{EngineUnderTest as _, Seed, TableUnderTest as _};
use farsight_conformance::fabric::shm::Shm;
use farsight_oracles::{EightBytes, Identity};

const WRITERS: u64 = 3;
const ROUNDS: usize = 400;

/// One compute node: random batches on every third key.
fn write(
    table: &RawPoolTable<Shm>,
    own: u64,
    keys: u64,
    value_bytes: usize,
    random: &mut SplitMix64,
) -> Model {
    use WriteOperation::{Insert, Put, Remove, Update};
    let mut session = table.session(Access::OneSided);
    let mut model = Model::new(EightBytes::Plain);
    for round in 0..ROUNDS {
        // Growing for a while, then shrinking: leaves split, fill with removed pairs, are compacted.
        let operations =
            if round / 50 % 2 == 0 { [Insert, Put, Put, Update] } else { [Remove, Remove, Update, Put] };
        let operation = operations[random.below(4) as usize];
        let entries: Vec<(Identity, Vec<u8>)> = (0..random.below(12))
            .map(|_| {
                let value = if operation == Remove { Vec::new() } else { random_value(random, value_bytes) };
                (Identity(random.below(keys) * WRITERS + own), value)
            })
            .collect();
        model.write(&mut session, operation, &entries, false);
        let asked = |_| Identity(random.below(keys) * WRITERS + own);
        let asked: Vec<Identity> = (0..8).map(asked).collect();
        model.check_multi_get(&mut session, &asked);
        if round % 20 == 0 {
            let scan = (Identity(random.below(keys) * WRITERS), 50);
            model.check_own_part(&mut session, scan, |key| key.0 % WRITERS == own);
        }
    }
    model
}

fn side_by_side(test: &str, keys: u64, value_bytes: usize) {
    let seed = Seed::new(test);
    let pool = RawPool::start([Shm::new(), Shm::new(), Shm::new()], 16 << 20);
    let table = pool.table(value_bytes);
    let models: Vec<Model> = std::thread::scope(|scope| {
        let start = |own| {
            let (table, mut random) = (&table, seed.random(own));
            scope.spawn(move || write(table, own, keys, value_bytes, &mut random))
        };
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    models[0].check_with(&models[1..], &mut table.session(Access::OneSided));
}

#[test]
fn few_keys() {
    side_by_side("few keys side by side", 20, 8);
}

#[test]
fn many_keys() {
    side_by_side("many keys side by side", 700, 8);
}

#[test]
fn long_values() {
    side_by_side("long values side by side", 60, 100);
}
