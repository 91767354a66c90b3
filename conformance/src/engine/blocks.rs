//! Engines whose values may have any length, under the suite of the engine contract.
//!
//! [`OfBlocks`] makes tables of blocks wherever the suite asks for values of one size. So all tests of the
//! suite are of blocks, too. [`operations::values_of_any_length`](super::operations) mixes lengths.

use farsight_protocol::ValueKind;

use super::EngineUnderTest;
use super::expected::Operands;

/// Bytes of the longest value of the suite's tables.
pub const VALUE_BYTES_MAX: u32 = 40_000;
/// The same where some go in pieces: several messages each.
const LONG_VALUE_BYTES_MAX: u32 = 300_000;

/// An engine that can make tables of blocks.
pub trait HasBlocks: EngineUnderTest {
    /// A new, empty table of such values.
    fn block_table(&self, values: ValueKind) -> Self::Table;
}

/// An engine whose tables are all of blocks.
pub struct OfBlocks<E> {
    engine: E,
    value_bytes_max: u32,
    /// Of so many rounds it does one.
    rounds_divisor: usize,
}

impl<E: HasBlocks> OfBlocks<E> {
    /// With values as long as the engine has them.
    pub fn new(engine: E) -> Self {
        Self { value_bytes_max: engine.value_bytes_max(), engine, rounds_divisor: 1 }
    }

    /// Now and then with values that no message carries: they go in pieces.
    pub fn long(engine: E) -> Self {
        Self { engine, value_bytes_max: LONG_VALUE_BYTES_MAX, rounds_divisor: 4 }
    }
}

impl<E: HasBlocks> EngineUnderTest for OfBlocks<E> {
    type Embedding = E::Embedding;
    type Table = E::Table;

    fn embedding(&self) -> E::Embedding {
        self.engine.embedding()
    }

    fn operands(&self) -> Operands {
        Operands::OfAnyLength
    }

    fn table(&self, _: usize) -> E::Table {
        self.engine.block_table(ValueKind::blocks(self.value_bytes_max))
    }

    fn value_bytes_max(&self) -> u32 {
        self.value_bytes_max
    }

    fn rounds(&self, usual: usize) -> usize {
        self.engine.rounds(usual) / self.rounds_divisor
    }

    fn pairs(&self, usual: usize) -> usize {
        self.engine.pairs(usual)
    }
}

/// [`engine_suite!`](crate::engine_suite) of an engine's tables of blocks, and what only those can be asked.
#[macro_export]
macro_rules! block_suite {
    ($make:expr) => {
        $crate::engine_suite!($crate::engine::blocks::OfBlocks::new($make));
        $crate::block_suite!(@any_length $make);

        #[test]
        fn values_in_pieces() {
            $crate::engine::operations::values_of_any_length(&$crate::engine::blocks::OfBlocks::long($make));
        }

        #[test]
        fn conditional_writes_in_pieces() {
            $crate::engine::conditional::writes_of_any_length(&$crate::engine::blocks::OfBlocks::long($make));
        }
    };
    (@unordered $make:expr) => {
        $crate::engine_suite!(@unordered $crate::engine::blocks::OfBlocks::new($make), true);
        $crate::block_suite!(@any_length $make);
    };
    (@any_length $make:expr) => {
        #[test]
        fn values_of_any_length() {
            $crate::engine::operations::values_of_any_length(&$crate::engine::blocks::OfBlocks::new($make));
        }

        #[test]
        fn conditional_writes_of_any_length() {
            $crate::engine::conditional::writes_of_any_length(&$crate::engine::blocks::OfBlocks::new($make));
        }
    };
}
