//! Tables whose keys are bytes of any length, as the suite sees them: those of a pool, whose sessions take
//! byte strings for its identities.

use farsight::Access;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::PoolClient;
use farsight_oracles::Strings;
use farsight_protocol::{KeyKind, ValueKind};

use super::blocks::HasBlocks;
use super::contended::OneClient;
use super::direct::SessionView;
use super::pool_store::{Opening, PoolStore, await_training};
use super::{EngineUnderTest, TableUnderTest};
use crate::fabric::FabricUnderTest;

/// A pool with tables of byte keys.
pub struct ByteKeys<F: FabricUnderTest> {
    pool: PoolStore<F>,
    strings: Strings,
    tables: AtomicU64,
}

impl<F: FabricUnderTest> ByteKeys<F> {
    /// In `pool`. Keys are as long as `filler_bytes_max` says, and a little more.
    #[must_use]
    pub fn of(pool: PoolStore<F>, filler_bytes_max: usize) -> Self {
        let strings = Strings { prefix: b"a tenant's name, ".to_vec(), filler_bytes_max };
        Self { pool, strings, tables: AtomicU64::new(0) }
    }

    fn table_of(&self, values: ValueKind) -> ByteKeysTable<F> {
        // Relaxed: the number only has to differ.
        let name = format!("b{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let mut new = self.pool.new_table(&name, 8);
        (new.definition.values, new.definition.key_kind) = (values, KeyKind::Bytes);
        drop(self.pool.create_as(new));
        ByteKeysTable { opening: self.pool.opening(name), client: self.pool.connect() }
    }
}

impl<F: FabricUnderTest> EngineUnderTest for ByteKeys<F> {
    type Embedding = Strings;
    type Table = ByteKeysTable<F>;

    fn embedding(&self) -> Strings {
        self.strings.clone()
    }

    fn rounds(&self, usual: usize) -> usize {
        self.pool.rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.pool.pairs(usual)
    }

    fn table(&self, value_bytes: usize) -> ByteKeysTable<F> {
        self.table_of(ValueKind::Fixed(u16::try_from(value_bytes).expect("a short value")))
    }

    fn value_bytes_max(&self) -> u32 {
        // A long key takes of what a pair may have.
        self.pool.value_bytes_max() - self.strings.filler_bytes_max as u32 - 64
    }
}

impl<F: FabricUnderTest> HasBlocks for ByteKeys<F> {
    fn block_table(&self, values: ValueKind) -> ByteKeysTable<F> {
        self.table_of(values)
    }
}

/// A table of it.
pub struct ByteKeysTable<F: FabricUnderTest> {
    opening: Opening<F>,
    client: PoolClient<F::Connection>,
}

impl<F: FabricUnderTest> OneClient for ByteKeysTable<F> {
    fn sessions_of_one_client(&self, accesses: &[Access]) -> Vec<SessionView<Vec<u8>>> {
        let table = self.opening.by(&self.client);
        let session = |access: &Access| table.session(*access).expect("a session");
        accesses.iter().map(session).map(SessionView::new).collect()
    }
}

impl<F: FabricUnderTest> TableUnderTest for ByteKeysTable<F> {
    type Session = SessionView<Vec<u8>>;

    fn session(&self, access: Access) -> Self::Session {
        SessionView::new(self.opening.anew().session(access).expect("a session"))
    }

    fn await_training(&self) {
        await_training(&self.client);
    }
}
