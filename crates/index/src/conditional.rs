//! What a write does to a key that holds this or that: the one meaning of all writes, for engines that decide
//! under a lock of their own.
//!
//! Invariant: a decision depends on nothing but its arguments. Its caller keeps everybody else from the key
//! until what was decided is done.

use farsight_protocol::{INTEGER_BYTES, Operand, WriteOperation, WriteOutcome};

#[cfg(injected)]
use crate::injected;

/// What a present key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldPair<'h> {
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: &'h [u8],
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'v> {
    /// Store this value: it replaces the one that is there, or is the first one.
    Store(NewValue<'v>),
    /// Remove the key, which is present.
    Remove,
    /// Nothing. This is the outcome.
    Leave(WriteOutcome),
}

/// A value that is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewValue<'v> {
    /// The writer's.
    Given(&'v [u8]),
    /// A sum.
    Sum([u8; INTEGER_BYTES]),
}

impl NewValue<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Given(bytes) => bytes,
            Self::Sum(bytes) => bytes,
        }
    }
}

/// Why a write that looks at the pair before it could not be decided. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Undecided {
    /// Memory lost a bit of the value. A write that does not look at it replaces it.
    #[error("the value is damaged")]
    Damaged,
    /// There is nothing to add to.
    #[error("fetch-and-add wants integers of {INTEGER_BYTES} B, the value has {value_bytes} B")]
    NotInteger {
        /// Bytes of the value.
        value_bytes: usize,
    },
    /// The value before is to be returned, and has more bytes than there is room for.
    #[error("the value before has {value_bytes} B, more than the answer has room for")]
    NoRoom {
        /// Bytes of the value.
        value_bytes: usize,
    },
}

/// What `operation` with this operand does to a key that holds `held`, in a table with values of one size.
///
/// # Panics
/// If operand or value have another length than the operation's in a table with such values. For
/// [`WriteOperation::FetchAdd`] that is [`INTEGER_BYTES`].
#[must_use]
pub fn decide<'v>(operation: WriteOperation, operand: &'v [u8], held: Option<HeldPair<'_>>) -> Decision<'v> {
    decide_parts(operation, Operand::of_one_size(operation, operand), held)
}

/// [`decide`] by an operand's parts, whatever the length of values. Of a write that looks at the version
/// alone ([`WriteOperation::needs_old_value`]), the held value may be any.
///
/// # Panics
/// If a version, or an integer of [`WriteOperation::FetchAdd`], has not eight bytes.
#[must_use]
pub fn decide_parts<'v>(
    operation: WriteOperation,
    Operand { argument, value }: Operand<'v>,
    held: Option<HeldPair<'_>>,
) -> Decision<'v> {
    use WriteOperation::{
        CompareAndSet, CompareAndSetValue, FetchAdd, Insert, Put, Remove, RemoveIf, Swap, Update,
    };
    let store = || Decision::Store(NewValue::Given(value));
    match (operation, held) {
        (Insert, Some(held)) => Decision::Leave(WriteOutcome::Exists(held.version)),
        (Update | Remove | CompareAndSetValue | RemoveIf, None) => Decision::Leave(WriteOutcome::Absent),
        (Insert | Update | Put | Swap, _) => store(),
        (Remove, Some(_)) => Decision::Remove,
        (CompareAndSet, held) if is_expected(argument, held) => store(),
        (CompareAndSetValue, Some(pair)) if is_same(pair.value, argument) => store(),
        (RemoveIf, Some(_)) if is_expected(argument, held) => Decision::Remove,
        (CompareAndSet | CompareAndSetValue | RemoveIf, held) => Decision::Leave(differs(held)),
        (FetchAdd, held) => {
            let before = held.map_or(0, |held| integer(held.value));
            Decision::Store(NewValue::Sum(before.wrapping_add(integer(argument)).to_le_bytes()))
        }
    }
}

/// True if the key has the version whose bytes these are; 0 is an absent key's.
fn is_expected(version: &[u8], held: Option<HeldPair<'_>>) -> bool {
    #[cfg(injected)]
    if injected::VERSION_NOT_COMPARED.is_injected() {
        return true;
    }
    integer(version) == held.map_or(0, |held| held.version)
}

/// True if a value is the expected one.
fn is_same(value: &[u8], expected: &[u8]) -> bool {
    #[cfg(injected)]
    if injected::VALUE_COMPARED_BY_LENGTH.is_injected() {
        return value.len() == expected.len();
    }
    value == expected
}

fn differs(held: Option<HeldPair<'_>>) -> WriteOutcome {
    held.map_or(WriteOutcome::Absent, |held| WriteOutcome::Differs(held.version))
}

fn integer(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("an integer has eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: HeldPair<'static> = HeldPair { version: 7, value: &[1, 0, 0, 0, 0, 0, 0, 0] };
    const NEW: [u8; 8] = [9; 8];

    fn of(operation: WriteOperation, operand: &[&[u8]], held: Option<HeldPair<'_>>) -> Decision<'static> {
        decide(operation, operand.concat().leak(), held)
    }

    fn stores(value: &'static [u8]) -> Decision<'static> {
        Decision::Store(NewValue::Given(value))
    }

    #[test]
    fn versions_are_compared() {
        let set =
            |expected: u64, held| of(WriteOperation::CompareAndSet, &[&expected.to_le_bytes(), &NEW], held);
        assert_eq!(set(7, Some(HELD)), stores(&NEW));
        assert_eq!(set(0, None), stores(&NEW));
        for expected in [0, 6, 8, u64::MAX] {
            assert_eq!(set(expected, Some(HELD)), Decision::Leave(WriteOutcome::Differs(7)));
        }
        assert_eq!(set(7, None), Decision::Leave(WriteOutcome::Absent));
        let remove = |expected: u64, held| of(WriteOperation::RemoveIf, &[&expected.to_le_bytes()], held);
        assert_eq!(remove(7, Some(HELD)), Decision::Remove);
        assert_eq!(remove(8, Some(HELD)), Decision::Leave(WriteOutcome::Differs(7)));
        assert_eq!(remove(0, None), Decision::Leave(WriteOutcome::Absent));
    }

    #[test]
    fn values_are_compared_whole() {
        let set = |expected: &[u8], held| of(WriteOperation::CompareAndSetValue, &[expected, &NEW], held);
        assert_eq!(set(HELD.value, Some(HELD)), stores(&NEW));
        assert_eq!(set(&[1, 0, 0, 0, 0, 0, 0, 1], Some(HELD)), Decision::Leave(WriteOutcome::Differs(7)));
        assert_eq!(set(HELD.value, None), Decision::Leave(WriteOutcome::Absent));
    }

    #[test]
    fn sums_wrap_and_begin_at_zero() {
        let add = |delta: i64, held| of(WriteOperation::FetchAdd, &[&delta.to_le_bytes()], held);
        let sum = |sum: i64| Decision::Store(NewValue::Sum(sum.to_le_bytes()));
        assert_eq!([add(5, None), add(5, Some(HELD)), add(-3, Some(HELD))], [sum(5), sum(6), sum(-2)]);
        let most = u64::MAX.to_le_bytes();
        assert_eq!(add(3, Some(HeldPair { version: 1, value: &most })), sum(2));
    }

    #[test]
    fn the_others_are_decided_as_ever() {
        use WriteOperation::{Insert, Put, Remove, Swap, Update};
        for operation in [Put, Swap] {
            assert_eq!([of(operation, &[&NEW], None), of(operation, &[&NEW], Some(HELD))], [stores(&NEW); 2]);
        }
        assert_eq!(of(Insert, &[&NEW], Some(HELD)), Decision::Leave(WriteOutcome::Exists(7)));
        assert_eq!([of(Insert, &[&NEW], None), of(Update, &[&NEW], Some(HELD))], [stores(&NEW); 2]);
        assert_eq!(of(Remove, &[], Some(HELD)), Decision::Remove);
        for (operation, operand) in [(Update, &NEW[..]), (Remove, &[])] {
            assert_eq!(of(operation, &[operand], None), Decision::Leave(WriteOutcome::Absent));
        }
    }
}
