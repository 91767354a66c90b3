//! The prices of docs/costs.md over shared memory, and on cards that have prices themselves.

mod shared_memory {
    use farsight::{Access, CacheStats, Client, Options, ServerStats, Table};
    use farsight_conformance::engine::costs::LoadedTable;
    use farsight_conformance::engine::harness::{XStore, XStoreSession, await_training};

    struct ShmTable {
        table: Table<u64>,
        _client: Client,
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
            Self { table, _client: client, server }
        }

        fn session(&self, access: Access) -> XStoreSession {
            XStoreSession::new(self.table.session(Options { access }).expect("a session"))
        }

        fn cache_stats(&self) -> CacheStats {
            self.table.cache_stats()
        }

        fn server_stats(&self) -> ServerStats {
            self.server.server().stats()
        }
    }

    farsight_conformance::costs_suite!(ShmTable);
}

mod simulated {
    use farsight_conformance::engine::simulated::PricedTable;

    farsight_conformance::costs_suite!(PricedTable);
}
