//! Batches of every size, scans of every length, and orders of insertion that trees dislike.

use farsight::{Access, WriteOperation};
use farsight_oracles::{Identity, sets};

use super::model::{Model, random_value};
use super::{EngineUnderTest, Seed, TableUnderTest};

/// Sizes of batches: none, one, around the hot path's batch, many of them.
const BATCHES: [usize; 6] = [0, 1, 63, 64, 65, 1_000];
/// Limits of scans.
const LIMITS: [usize; 7] = [0, 1, 7, 100, 1_000, 100_000, usize::MAX];
const ACCESSES: [Access; 2] = [Access::OneSided, Access::Rpc];

/// [`BATCHES`], the longest as long as this engine's tests go.
fn batches<E: EngineUnderTest>(engine: &E) -> impl Iterator<Item = usize> + Clone {
    BATCHES.map(|count| engine.pairs(count)).into_iter()
}

fn entries(keys: &[Identity], seed: &Seed, value_bytes: usize) -> Vec<(Identity, Vec<u8>)> {
    let mut random = seed.random(2);
    keys.iter().map(|key| (*key, random_value(&mut random, value_bytes))).collect()
}

/// Scans from before, at and after each key, past the end, and of any length.
pub fn scans_of_every_length<E: EngineUnderTest>(engine: &E) {
    let seed = Seed::new("scans of every length");
    let sets = sets::all(&mut seed.random(1));
    let table = engine.table(24);
    let mut writer = table.session(Access::OneSided);
    let mut model = Model::new(engine.embedding());
    let keys = sets::tidied(sets.into_iter().flat_map(|(_, keys)| keys).collect());
    let keys = sets::thinned(&keys, engine.pairs(keys.len()));
    model.write(&mut writer, WriteOperation::Insert, &entries(&keys, &seed, 24), false);
    table.await_training();
    let froms = keys.iter().flat_map(|key| [key.before(1), *key, key.behind(1)]);
    for access in ACCESSES {
        let mut session = table.session(access);
        let mut random = seed.random(3);
        let scans: Vec<(Identity, usize)> =
            froms.clone().map(|from| (from, LIMITS[random.below(4) as usize])).collect();
        model.check_scans(&mut session, &scans);
        for limit in LIMITS {
            let ends = [0, 1, u64::MAX - 1, u64::MAX].map(Identity);
            for from in ends.into_iter().chain([keys[keys.len() / 2]]) {
                model.check_scans(&mut session, &[(from, limit)]);
            }
        }
        for count in [0, 1, 7, 8, 9, 70] {
            let scans: Vec<(Identity, usize)> =
                (0..count).map(|index| (keys[index * 11 % keys.len()], index)).collect();
            model.check_scans(&mut session, &scans);
        }
        model.check_all(&mut session);
    }
}

/// A table without pairs has none for any client, before and after its first model.
pub fn scans_of_an_empty_table<E: EngineUnderTest>(engine: &E) {
    const SCANS: [(Identity, usize); 4] =
        [(Identity::MIN, 10), (Identity::MIN, usize::MAX), (Identity(77), 1), (Identity::MAX, 5)];
    let seed = Seed::new("scans of an empty table");
    let table = engine.table(8);
    let mut sessions = ACCESSES.map(|access| table.session(access));
    let mut model = Model::new(engine.embedding());
    for round in 0..3 {
        for session in &mut sessions {
            model.check_scans(session, &SCANS);
            model.check_multi_get(session, &[0, 1, u64::MAX, 1 << 53].map(Identity));
        }
        let keys = sets::dense(0, 40 * round);
        let [writer, _] = &mut sessions;
        model.write(writer, WriteOperation::Insert, &entries(&keys, &seed, 8), false);
        let keys: Vec<(Identity, Vec<u8>)> = keys.into_iter().map(|key| (key, Vec::new())).collect();
        model.write(writer, WriteOperation::Remove, &keys, false);
        table.await_training();
    }
}

/// GETs of present and absent keys with repetitions.
pub fn gets_of_every_batch_size<E: EngineUnderTest>(engine: &E) {
    let seed = Seed::new("gets of every batch size");
    let mut random = seed.random(1);
    for value_bytes in [8, 100] {
        let table = engine.table(value_bytes);
        let mut writer = table.session(Access::Rpc);
        let mut model = Model::new(engine.embedding());
        let keys = sets::uniform(&mut random, engine.pairs(3_000));
        model.write(&mut writer, WriteOperation::Insert, &entries(&keys, &seed, value_bytes), false);
        for access in ACCESSES {
            // Once with an empty cache, once with a warm one.
            let mut session = table.session(access);
            for count in batches(engine).chain(batches(engine)) {
                let mut wanted: Vec<Identity> = (0..count)
                    .map(|_| match random.below(4) {
                        0 => Identity(random.next_u64()),
                        1 => keys[random.below(5) as usize],
                        _ => keys[random.below(keys.len() as u64) as usize],
                    })
                    .collect();
                model.check_multi_get(&mut session, &wanted);
                if let Some(&first) = wanted.first() {
                    wanted.fill(first);
                    model.check_multi_get(&mut session, &wanted);
                }
            }
            table.await_training();
        }
    }
}

/// Each kind of write in batches of each size, with repetitions within a batch.
pub fn writes_of_every_batch_size<E: EngineUnderTest>(engine: &E) {
    let seed = Seed::new("writes of every batch size");
    let mut random = seed.random(1);
    for value_bytes in [8, 256] {
        let table = engine.table(value_bytes);
        let mut sessions = ACCESSES.map(|access| table.session(access));
        let mut model = Model::new(engine.embedding());
        let operations =
            [WriteOperation::Insert, WriteOperation::Put, WriteOperation::Update, WriteOperation::Remove];
        for operation in operations.into_iter().chain(operations) {
            for (index, count) in batches(engine).enumerate() {
                let bytes = if operation == WriteOperation::Remove { 0 } else { value_bytes };
                let mut entry = || (Identity(random.below(700) << 40), random_value(&mut random, bytes));
                let entries: Vec<(Identity, Vec<u8>)> = (0..count).map(|_| entry()).collect();
                let writer = &mut sessions[index % 2];
                model.write(writer, operation, &entries, false);
            }
            for session in &mut sessions {
                model.check_all(session);
            }
        }
    }
}

/// 0 and `u64::MAX` are ordinary keys, alone and among others.
pub fn the_ends_of_the_key_space<E: EngineUnderTest>(engine: &E) {
    let seed = Seed::new("the ends of the key space");
    let ends = [0, 1, u64::MAX - 1, u64::MAX].map(Identity);
    for others in [vec![], sets::extremes(), sets::uniform(&mut seed.random(1), engine.pairs(2_000))] {
        let table = engine.table(16);
        let mut sessions = ACCESSES.map(|access| table.session(access));
        let mut model = Model::new(engine.embedding());
        model.write(&mut sessions[1], WriteOperation::Put, &entries(&others, &seed, 16), false);
        for operation in [
            WriteOperation::Remove,
            WriteOperation::Insert,
            WriteOperation::Insert,
            WriteOperation::Update,
            WriteOperation::Remove,
            WriteOperation::Put,
        ] {
            let bytes = if operation == WriteOperation::Remove { 0 } else { 16 };
            model.write(&mut sessions[0], operation, &entries(&ends, &seed, bytes), false);
            table.await_training();
            for session in &mut sessions {
                model.check_multi_get(session, &ends);
                let [first, second, last_but_one, last] = ends;
                let scans = [(first, 2), (second, 1), (last_but_one, 9), (last, 1), (last, 0)];
                model.check_scans(session, &scans);
                model.check_all(session);
            }
        }
    }
}

/// A key that is removed and inserted over and over uses up slots, which compaction gives back.
pub fn one_key_over_and_over<E: EngineUnderTest>(engine: &E) {
    const KEY: Identity = Identity(1_000);
    let seed = Seed::new("one key over and over");
    for (value_bytes, neighbours) in [(8, 0), (100, 15)] {
        let table = engine.table(value_bytes);
        let mut sessions = ACCESSES.map(|access| table.session(access));
        let mut model = Model::new(engine.embedding());
        let around = sets::dense(990, neighbours);
        model.write(&mut sessions[0], WriteOperation::Put, &entries(&around, &seed, value_bytes), false);
        let mut random = seed.random(value_bytes as u64);
        for round in 0..engine.rounds(500) {
            let value = random_value(&mut random, value_bytes);
            let writer = &mut sessions[round % 2];
            model.write(writer, WriteOperation::Put, &[(KEY, value)], false);
            model.check_get(&mut sessions[(round + 1) % 2], KEY);
            model.write(&mut sessions[0], WriteOperation::Remove, &[(KEY, Vec::new())], false);
            model.check_get(&mut sessions[round % 2], KEY);
        }
        for session in &mut sessions {
            model.check_all(session);
        }
    }
}

/// Runs in both directions, each removed from its beginning while its end grows, so that leaves become empty.
pub fn ascending_and_descending_keys<E: EngineUnderTest>(engine: &E) {
    let seed = Seed::new("ascending and descending keys");
    for is_descending in [false, true] {
        let table = engine.table(9);
        let mut sessions = ACCESSES.map(|access| table.session(access));
        let mut model = Model::new(engine.embedding());
        let key = |index: u64| Identity(if is_descending { u64::MAX - index } else { index });
        let step = engine.pairs(400) as u64;
        for start in (0..engine.rounds(30).max(8) as u64 * step).step_by(step as usize) {
            let grown: Vec<Identity> = (start..start + step).map(key).collect();
            model.write(&mut sessions[0], WriteOperation::Insert, &entries(&grown, &seed, 9), false);
            if let Some(first) = start.checked_sub(5 * step) {
                let shrunk = (first..first + step).map(|index| (key(index), Vec::new()));
                let shrunk: Vec<(Identity, Vec<u8>)> = shrunk.collect();
                model.write(&mut sessions[1], WriteOperation::Remove, &shrunk, false);
            }
            for session in &mut sessions {
                model.check_scans(session, &[(Identity::MIN, 100), (key(start), 100), (key(start / 2), 7)]);
                model.check_multi_get(session, &grown);
            }
        }
        for session in &mut sessions {
            model.check_all(session);
        }
    }
}
