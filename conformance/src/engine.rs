//! The suite of the engine contract: what every index promises its clients, asked of an engine, with a
//! `BTreeMap` as the judge.
//!
//! Invariant: a test names no engine and no kind of key. It speaks of identities, and the engine's embedding
//! makes them keys ([`asking`]). What is compared is what a user sees: outcomes, values, the growth of each
//! key's versions, the order and completeness of scans. Every random choice comes from one [`Seed`],
//! which a failing test prints and which `FARSIGHT_TEST_SEED` sets.
//!
//! An engine joins by implementing [`EngineUnderTest`] and naming it to
//! [`engine_suite!`](crate::engine_suite). [`costs`] asks what operations cost. What only one engine or one
//! machine can show (readers in other processes, faults) stands in tests of its own, which share [`harness`],
//! [`processes`] and [`witness`].

pub mod asking;
pub mod batches;
pub mod blocks;
pub mod byte_keys;
pub mod conditional;
pub mod contended;
pub mod costs;
pub mod direct;
pub mod dying;
pub mod expected;
pub mod harness;
pub mod map;
pub mod model;
pub mod names;
pub mod operations;
pub mod past_reads;
pub mod pool;
pub mod pool_costs;
pub mod pool_lives;
pub mod pool_store;
pub mod processes;
pub mod raw_pool;
pub mod raw_table;
pub mod seed;
mod served;
pub mod silent;
pub mod simulated;
pub mod torture;
pub mod witness;

pub use seed::Seed;

use expected::Operands;
use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_oracles::Embedding;
use farsight_protocol::Direction;

/// An engine that can make tables.
pub trait EngineUnderTest {
    /// How identities become keys of its tables.
    type Embedding: Embedding + Default;
    /// Its tables.
    type Table: TableUnderTest<Session: SessionUnderTest<Key = <Self::Embedding as Embedding>::Key>>;

    /// Its embedding.
    fn embedding(&self) -> Self::Embedding {
        Self::Embedding::default()
    }

    /// How its tables take operands.
    fn operands(&self) -> Operands {
        Operands::OfOneSize
    }

    /// A new, empty table for values of `value_bytes`.
    fn table(&self, value_bytes: usize) -> Self::Table;

    /// Bytes of the longest value of its tables of blocks.
    fn value_bytes_max(&self) -> u32 {
        blocks::VALUE_BYTES_MAX
    }

    /// How many of so many rounds a test of random operations does: fewer where a verb takes long.
    fn rounds(&self, usual: usize) -> usize {
        usual
    }

    /// How many of so many pairs a test puts into a table, or requests at once. Fewer where a verb takes
    /// long, but always more than a batch of the hot path and than many leaves hold.
    fn pairs(&self, usual: usize) -> usize {
        usual
    }
}

/// A table and the ways to it.
pub trait TableUnderTest {
    /// Its sessions.
    type Session: SessionUnderTest;

    /// A session of a client of its own, which shares no cache with another.
    fn session(&self, access: Access) -> Self::Session;

    /// Waits until the server's model has caught up with the writes.
    fn await_training(&self);
}

/// A stored value: its bytes and its version.
pub type Stored = (Vec<u8>, u64);

/// One client's reads and writes. None of them may fail: an error is a failed test.
pub trait SessionUnderTest {
    /// The kind of the table's keys.
    type Key;

    /// Executes writes in their order; values of removes are empty.
    fn write(&mut self, operation: WriteOperation, entries: &[(Self::Key, Vec<u8>)]) -> Vec<WriteOutcome>;

    /// Executes writes of any kind in their order, each with its operand. Of those that return the value
    /// before, it comes along if there was one.
    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(Self::Key, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)>;

    /// One key.
    fn get(&mut self, key: Self::Key) -> Option<Stored>;

    /// Many keys, in their order.
    fn multi_get(&mut self, keys: &[Self::Key]) -> Vec<Option<Stored>>;

    /// For each `(from, limit)` its pairs, on the way from there on.
    fn scan_batch(
        &mut self,
        direction: Direction,
        scans: &[(Self::Key, usize)],
    ) -> Vec<Vec<(Self::Key, Stored)>>;

    /// The first keys, at most `limit`, on the way from `from` on, by a scan of keys alone.
    fn scan_keys(&mut self, direction: Direction, from: Self::Key, limit: usize) -> Vec<Self::Key>;

    /// False if the table's keys have no order. Then it is not scanned.
    fn is_ordered(&self) -> bool {
        true
    }

    /// All pairs on the way from `from` on, page by page.
    fn scan_all(&mut self, direction: Direction, from: Self::Key) -> Vec<(Self::Key, Stored)>;
}

/// Instantiates every test of the suite for the engine that `$make` makes anew for each; where that needs
/// what not every machine has, if `$ready`.
/// `@unordered` leaves out the tests that are of scans alone.
#[macro_export]
macro_rules! engine_suite {
    ($make:expr) => {
        $crate::engine_suite!($make, if true);
    };
    ($make:expr, if $ready:expr) => {
        $crate::engine_suite!(@plain $make, $ready);
        $crate::engine_suite!(@conditional $make, $ready);
    };
    (@conditional $make:expr, $ready:expr) => {
        $crate::engine_suite!(@tests $make, $ready;
            conditional: conditional_writes_of_8_bytes, conditional_writes_of_24_bytes,
                conditional_writes_of_256_bytes, counters_end_at_their_sums, chains_of_compare_and_set;
        );
    };
    (@unordered $make:expr, $ready:expr) => {
        $crate::engine_suite!(@points $make, $ready);
        $crate::engine_suite!(@conditional $make, $ready);
    };
    (@plain $make:expr, $ready:expr) => {
        $crate::engine_suite!(@points $make, $ready);
        $crate::engine_suite!(@tests $make, $ready;
            batches: scans_of_every_length, scans_of_an_empty_table;
        );
    };
    (@points $make:expr, $ready:expr) => {
        $crate::engine_suite!(@tests $make, $ready;
            operations: values_of_8_bytes, values_of_9_bytes, values_of_16_bytes, values_of_24_bytes,
                values_of_56_bytes, values_of_100_bytes, values_of_256_bytes;
            batches: gets_of_every_batch_size, writes_of_every_batch_size, the_ends_of_the_key_space,
                one_key_over_and_over, ascending_and_descending_keys;
        );
    };
    (@tests $make:expr, $ready:expr; $($group:ident: $($test:ident),+;)+) => {
        $($(
            #[test]
            fn $test() {
                if $ready {
                    $crate::engine::$group::$test(&$make);
                }
            }
        )+)+
    };
}
