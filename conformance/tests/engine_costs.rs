//! The prices of docs/costs.md over shared memory, and on cards that have prices themselves.

mod shared_memory {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use farsight::{Access, Answers, CacheStats, Client, NodeStats, Options, Table};
    use farsight_base::prng::mix;
    use farsight_conformance::engine::costs::LoadedTable;
    use farsight_conformance::engine::harness::{PATIENCE, XStore, XStoreSession, await_training};

    struct ShmTable {
        table: Table<u64>,
        client: Client,
        server: XStore,
    }

    impl LoadedTable for ShmTable {
        type Session = XStoreSession;

        fn load(pairs: impl Iterator<Item = (u64, Vec<u8>)>, value_bytes: usize) -> Self {
            let server = XStore::start(1 << 30, 1);
            let client = server.connect();
            let table = client.create_table::<u64>("t", value_bytes).expect("a table");
            let mut load = table.bulk_load().expect("a load");
            for (key, value) in pairs {
                load.push(key, &value).expect("ascending");
            }
            load.finish().expect("the load");
            await_training(&client);
            Self { table, client, server }
        }

        fn session(&self, access: Access) -> XStoreSession {
            XStoreSession::new(self.table.session(Options { access }).expect("a session"))
        }

        fn await_training(&self) {
            await_training(&self.client);
        }

        fn set_cache_bytes(&self, bytes: u64) {
            assert!(self.table.set_cache_bytes(bytes).expect("a budget"), "XStore's cache has one");
        }

        fn cache_stats(&self) -> CacheStats {
            self.table.cache_stats()
        }

        fn server_stats(&self) -> NodeStats {
            self.server.server().stats()
        }
    }

    farsight_conformance::costs_suite!(ShmTable);

    /// What the server sends at once, a page of 32, would be a good part of a batch's time.
    #[test]
    fn a_batch_installs_a_part_of_a_page_of_sub_models() {
        const KEYS: u64 = 50_000;
        const INSTALLED_MAX: u64 = 8;
        let pairs = (0..KEYS).map(|index| (mix(index) & !1, vec![7; 8])).collect::<BTreeMap<_, _>>();
        let keys: Vec<u64> = pairs.keys().copied().collect();
        let loaded = ShmTable::load(pairs.into_iter(), 8);
        let mut session = loaded.table.session(Options::default()).expect("a session");
        session.prefill().expect("the whole model");
        // Another client has a cache of its own, so this one hears nothing of the splits. Every leaf of the
        // lower half splits: too few for a new generation.
        let client = loaded.server.connect();
        let other = client.create_table::<u64>("t", 8).expect("the same table");
        let new: Vec<(u64, [u8; 8])> =
            keys[..keys.len() / 2].iter().step_by(2).map(|key| (key | 1, [7; 8])).collect();
        let mut writer = other.session(Options::default()).expect("a session");
        writer.put_many(&new, &mut Vec::new()).expect("puts");
        await_training(&client);
        let (begun, mut answers, mut batches) = (Instant::now(), Answers::default(), 0_u64);
        let mut before = session.counters();
        let enough = before.sub_models_fetched + 3 * INSTALLED_MAX;
        while before.sub_models_fetched < enough {
            assert!(begun.elapsed() < PATIENCE, "{before:?}");
            batches += 1;
            let batch: Vec<u64> =
                (0..64).map(|index| keys[(mix(batches * 64 + index) % KEYS) as usize]).collect();
            session.multi_get(&batch, &mut answers).expect("answers");
            let now = session.counters();
            // A fallback brings its own.
            let most = INSTALLED_MAX + now.fallbacks - before.fallbacks;
            assert!(now.sub_models_fetched - before.sub_models_fetched <= most, "{before:?}, then {now:?}");
            before = now;
        }
    }
}

mod simulated {
    use farsight_conformance::engine::simulated::PricedTable;

    farsight_conformance::costs_suite!(PricedTable);
}
