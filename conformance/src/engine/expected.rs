//! What each write must do to a key: the judges' own words for it, beside those of the engines.

use farsight::{ErrorCode, WriteOperation, WriteOutcome};
use farsight_protocol::Operand;

/// How the operands of a table are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Operands {
    /// As in tables with values of one size.
    #[default]
    OfOneSize,
    /// As in tables whose values have any length.
    OfAnyLength,
}

impl Operands {
    /// The operand of a compare-and-set by value.
    #[must_use]
    pub fn compare_value(self, expected: &[u8], value: &[u8]) -> Vec<u8> {
        let mut operand = Vec::new();
        match self {
            Self::OfOneSize => operand.extend(expected.iter().chain(value)),
            Self::OfAnyLength => Operand::push_compare_value(&mut operand, expected, value),
        }
        operand
    }

    /// The values that such an operand has: the expected one, and the one to be stored.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn compared(self, operand: &[u8]) -> (&[u8], &[u8]) {
        match self {
            Self::OfOneSize => operand.split_at(operand.len() / 2),
            Self::OfAnyLength => {
                let (length, values) = operand.split_first_chunk().expect("a length");
                values.split_at(u64::from_le_bytes(*length) as usize)
            }
        }
    }
}

/// What must become of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// It holds this value, under a new version.
    Value(Vec<u8>),
    /// It is absent.
    Absence,
    /// It is as it was, and this is the outcome.
    Nothing(WriteOutcome),
}

/// What a write with this operand must do to a key that holds `held`, a value and its version.
///
/// # Panics
/// If the operand is not the operation's.
#[must_use]
pub fn expected(
    (operation, operands): (WriteOperation, Operands),
    operand: &[u8],
    held: Option<(&[u8], u64)>,
) -> Expected {
    let nothing = match held {
        None => WriteOutcome::Absent,
        Some((_, version)) if operation == WriteOperation::Insert => WriteOutcome::Exists(version),
        Some((_, version)) => WriteOutcome::Differs(version),
    };
    let version = held.map_or(0, |(_, version)| version);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let if_so = |is_so: bool, then: Expected| if is_so { then } else { Expected::Nothing(nothing) };
    match operation {
        WriteOperation::Insert => if_so(held.is_none(), Expected::Value(operand.to_vec())),
        WriteOperation::Update => if_so(held.is_some(), Expected::Value(operand.to_vec())),
        WriteOperation::Put | WriteOperation::Swap => Expected::Value(operand.to_vec()),
        WriteOperation::Remove => if_so(held.is_some(), Expected::Absence),
        WriteOperation::CompareAndSet => {
            if_so(word(&operand[..8]) == version, Expected::Value(operand[8..].to_vec()))
        }
        WriteOperation::CompareAndSetValue => {
            let (old, new) = operands.compared(operand);
            if_so(held.is_some_and(|(value, _)| value == old), Expected::Value(new.to_vec()))
        }
        WriteOperation::RemoveIf => if_so(held.is_some() && word(operand) == version, Expected::Absence),
        WriteOperation::FetchAdd if held.is_some_and(|(value, _)| value.len() != 8) => {
            Expected::Nothing(WriteOutcome::Failed(ErrorCode::NotInteger))
        }
        WriteOperation::FetchAdd => {
            let sum = word(operand).wrapping_add(held.map_or(0, |(value, _)| word(value)));
            Expected::Value(sum.to_le_bytes().to_vec())
        }
    }
}
