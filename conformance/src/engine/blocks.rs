//! Engines whose values may have any length, under the suite of the engine contract.
//!
//! [`OfBlocks`] makes tables of blocks wherever the suite asks for values of one size. So all tests of the
//! suite are of blocks, too. [`operations::values_of_any_length`](super::operations) mixes lengths.

use farsight_protocol::ValueKind;

use super::EngineUnderTest;
use super::expected::Operands;

/// Bytes of the longest value of the suite's tables.
pub const VALUE_BYTES_MAX: u32 = 40_000;

/// An engine that can make tables of blocks.
pub trait HasBlocks: EngineUnderTest {
    /// A new, empty table of such values.
    fn block_table(&self, values: ValueKind) -> Self::Table;
}

/// An engine whose tables are all of blocks.
pub struct OfBlocks<E>(pub E);

impl<E: HasBlocks> EngineUnderTest for OfBlocks<E> {
    type Embedding = E::Embedding;
    type Table = E::Table;

    fn embedding(&self) -> E::Embedding {
        self.0.embedding()
    }

    fn operands(&self) -> Operands {
        Operands::OfAnyLength
    }

    fn table(&self, _: usize) -> E::Table {
        self.0.block_table(ValueKind::blocks(self.0.value_bytes_max()))
    }

    fn value_bytes_max(&self) -> u32 {
        self.0.value_bytes_max()
    }

    fn rounds(&self, usual: usize) -> usize {
        self.0.rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.0.pairs(usual)
    }
}

/// [`engine_suite!`](crate::engine_suite) of an engine's tables of blocks, and what only those can be asked.
#[macro_export]
macro_rules! block_suite {
    ($make:expr) => {
        $crate::engine_suite!($crate::engine::blocks::OfBlocks($make));
        $crate::block_suite!(@any_length $make);
    };
    (@unordered $make:expr) => {
        $crate::engine_suite!(@unordered $crate::engine::blocks::OfBlocks($make), true);
        $crate::block_suite!(@any_length $make);
    };
    (@any_length $make:expr) => {
        #[test]
        fn values_of_any_length() {
            $crate::engine::operations::values_of_any_length(&$crate::engine::blocks::OfBlocks($make));
        }

        #[test]
        fn conditional_writes_of_any_length() {
            $crate::engine::conditional::writes_of_any_length(&$crate::engine::blocks::OfBlocks($make));
        }
    };
}
