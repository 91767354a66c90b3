//! What a write brings: what it expects or adds, and the value that it stores.
//!
//! In a table whose values have one size an operand is the two of them, one behind the other
//! ([`WriteOperation::operand_bytes`]). Where values have any length, one alone differs: that of
//! [`WriteOperation::CompareAndSetValue`] begins with the expected value's length, 8 B little-endian.
//!
//! Where pairs have deadlines, each value to be stored stands behind its own. Fetch-and-add has a deadline
//! and no value behind: a key that it finds absent gets that one.

use farsight_layout::{DEADLINE_BYTES, Deadline};

use crate::{EXPECTED_VERSION_BYTES, INTEGER_BYTES, WriteOperation};

/// Bytes of the length before an expected value of any length.
const LENGTH_BYTES: usize = 8;

/// An operand's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand<'o> {
    /// The version or the value that is expected, or what is added. Empty if the operation has none.
    pub argument: &'o [u8],
    /// The value to be stored. Empty if the operation brings none.
    pub value: &'o [u8],
}

impl<'o> Operand<'o> {
    /// The parts of an operand in a table with values of one size.
    ///
    /// # Panics
    /// If it is too short for the operation.
    #[inline]
    #[must_use]
    pub fn of_one_size(operation: WriteOperation, operand: &'o [u8]) -> Self {
        let (argument, value) = operand.split_at(match operation {
            WriteOperation::CompareAndSet => EXPECTED_VERSION_BYTES,
            WriteOperation::CompareAndSetValue => operand.len() / 2,
            WriteOperation::Remove | WriteOperation::RemoveIf | WriteOperation::FetchAdd => operand.len(),
            WriteOperation::Insert | WriteOperation::Update | WriteOperation::Put | WriteOperation::Swap => 0,
        });
        Self { argument, value }
    }

    /// The parts of an operand in a table whose values have any length; `None` if it is none of this
    /// operation's.
    #[must_use]
    pub fn of_any_length(operation: WriteOperation, operand: &'o [u8]) -> Option<Self> {
        let (argument, value) = match operation {
            WriteOperation::Insert | WriteOperation::Update | WriteOperation::Put | WriteOperation::Swap => {
                (&[][..], operand)
            }
            WriteOperation::CompareAndSet => operand.split_at_checked(EXPECTED_VERSION_BYTES)?,
            WriteOperation::CompareAndSetValue => {
                let (length, rest) = operand.split_first_chunk::<LENGTH_BYTES>()?;
                rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?
            }
            WriteOperation::RemoveIf if operand.len() == EXPECTED_VERSION_BYTES => (operand, &[][..]),
            WriteOperation::FetchAdd if operand.len() == INTEGER_BYTES => (operand, &[][..]),
            WriteOperation::FetchAdd if operand.len() == INTEGER_BYTES + DEADLINE_BYTES => {
                operand.split_at(INTEGER_BYTES)
            }
            WriteOperation::Remove if operand.is_empty() => (operand, operand),
            WriteOperation::RemoveIf | WriteOperation::FetchAdd | WriteOperation::Remove => return None,
        };
        Some(Self { argument, value })
    }

    /// What is stored of the value, in its parts: the deadline, and the value itself. `None` if it is too
    /// short for a deadline.
    #[must_use]
    pub fn split_deadline(self) -> Option<(Deadline, &'o [u8])> {
        Deadline::split(self.value)
    }

    /// Appends an operand of a table whose values have any length, with a deadline for the pair that it
    /// stores, if the operation stores one. `None`, and nothing appended, if it is none of the operation's.
    pub fn push_with_deadline(
        into: &mut Vec<u8>,
        operation: WriteOperation,
        operand: &[u8],
        deadline: Deadline,
    ) -> Option<()> {
        let Operand { value, .. } = Operand::of_any_length(operation, operand)?;
        let (head, value) = operand.split_at(operand.len() - value.len());
        into.extend_from_slice(head);
        if operation.has_value() {
            into.extend_from_slice(&deadline.to_bytes());
            into.extend_from_slice(value);
        }
        Some(())
    }

    /// Appends the operand of a compare-and-set by value, in a table whose values have any length.
    pub fn push_compare_value(into: &mut Vec<u8>, expected: &[u8], value: &[u8]) {
        into.extend_from_slice(&(expected.len() as u64).to_le_bytes());
        into.extend_from_slice(expected);
        into.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(operation: WriteOperation, operand: &[u8]) -> Option<(&[u8], &[u8])> {
        Operand::of_any_length(operation, operand).map(|Operand { argument, value }| (argument, value))
    }

    #[test]
    fn operands_of_one_size_have_their_parts() {
        let of = |operation: WriteOperation| {
            let operand = (0..operation.operand_bytes(4) as u8).collect::<Vec<_>>().leak();
            let Operand { argument, value } = Operand::of_one_size(operation, operand);
            (argument.len(), value.len())
        };
        let parts = WriteOperation::ALL.map(of);
        assert_eq!(parts, [(0, 4), (0, 4), (0, 4), (0, 0), (8, 4), (4, 4), (8, 0), (8, 0), (0, 4)]);
    }

    #[test]
    fn operands_of_any_length_have_their_parts() {
        use WriteOperation::{CompareAndSet, CompareAndSetValue, FetchAdd, Put, Remove, RemoveIf, Swap};
        for (expected, value) in [(&b""[..], &b""[..]), (b"long", b""), (b"", b"long"), (b"one", b"other")] {
            let mut operand = Vec::new();
            Operand::push_compare_value(&mut operand, expected, value);
            assert_eq!(parts(CompareAndSetValue, &operand), Some((expected, value)));
            assert_eq!(parts(CompareAndSet, &[&[7; 8], value].concat()), Some((&[7; 8][..], value)));
            assert_eq!([Put, Swap].map(|kind| parts(kind, value)), [Some((&[][..], value)); 2]);
        }
        for operation in [FetchAdd, RemoveIf] {
            assert_eq!(parts(operation, &[1; 8]), Some((&[1; 8][..], &[][..])));
            assert_eq!([&[1; 7][..], &[1; 9]].map(|operand| parts(operation, operand)), [None; 2]);
        }
        assert_eq!(parts(FetchAdd, &[[1; 8], [2; 8]].concat()), Some((&[1; 8][..], &[2; 8][..])));
        assert_eq!((parts(Remove, b"x"), parts(CompareAndSet, &[0; 7])), (None, None));
        for operation in WriteOperation::ALL {
            let operand: &[u8] = match operation {
                Remove => b"",
                RemoveIf | FetchAdd => &[3; 8],
                CompareAndSetValue => b"\x03\0\0\0\0\0\0\0oldnew",
                _ => b"expected, new",
            };
            let mut with = b"before".to_vec();
            Operand::push_with_deadline(&mut with, operation, operand, Deadline(9)).expect("an operand");
            let [without, with] = [operand, &with[6..]].map(|operand| {
                Operand::of_any_length(operation, operand).expect("an operand with a deadline")
            });
            assert_eq!(without.argument, with.argument);
            let stored = operation.has_value().then_some((Deadline(9), without.value));
            assert_eq!(with.split_deadline(), stored);
        }
        assert_eq!(Operand::push_with_deadline(&mut Vec::new(), Remove, b"x", Deadline(9)), None);
        let cut = [&4_u64.to_le_bytes()[..], b"cut"].concat();
        let far = [&u64::MAX.to_le_bytes()[..], b"cut"].concat();
        assert_eq!([&cut[..], &far, b"short"].map(|operand| parts(CompareAndSetValue, operand)), [None; 3]);
    }
}
