//! Conditional writes of values of any length.
//!
//! Protocol: as that of other writes, with a look between.
//! 1. The latch's holder copies the block that is there.
//! 2. It decides ([`LatchedLeaf::decide`](farsight_index::LatchedLeaf) of `block_leaf.rs`).
//! 3. It stores the reference of the draft, or leaves all as it is.
//!
//! So no other write of the key comes between. The draft of a sum is written anew under the latch, for nobody
//! knows the sum before.
//!
//! The operand that the tree hands on is the draft's reference, and behind it what the write expects or adds.
//! A swap has the number of bytes that its answer has room for there. One that finds a longer value does
//! nothing, and so do all behind it.

use farsight_blocks::BlockWriter;
use farsight_index::Undecided;
use farsight_protocol::{INTEGER_BYTES, Operand, WriteEntry, WriteOperation, WriteOutcome};

use super::block_draft::Draft;
use super::block_tree::{BlockTree, BlockWriteError};
use super::error::WriteError;

/// Conditional writes that are drafted together.
const TOGETHER: usize = 128;

/// What became of a write.
pub struct Exchanged<'o> {
    /// The outcome.
    pub outcome: Result<WriteOutcome, BlockWriteError>,
    /// Whether the entry had a hint, and its key was elsewhere.
    pub is_hint_wrong: bool,
    /// The value before, where the operation returns it and there was one.
    pub old: Option<&'o [u8]>,
}

impl BlockTree {
    /// Does writes that look at the pair before them in their order, as
    /// [`XTree::exchange_many`](super::tree::XTree::exchange_many) does. `done` returns how many bytes the
    /// next value before may have, `room_bytes` is that of the first. What is longer is not swapped: the
    /// writes end before it. Returns how many were done.
    ///
    /// # Panics
    /// If an entry's value is none of the operation's operands, or that brings no value.
    pub fn exchange_many<'e>(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        entries: impl IntoIterator<Item = WriteEntry<'e>>,
        mut room_bytes: usize,
        mut done: impl FnMut(Exchanged<'_>) -> usize,
    ) -> usize {
        let mut entries = entries.into_iter();
        // What an answer has room for is known of one swap at a time.
        let together = if operation == WriteOperation::Swap { 1 } else { TOGETHER };
        let mut batch = Vec::with_capacity(together);
        let mut count = 0;
        loop {
            batch.clear();
            batch.extend(entries.by_ref().take(together));
            if batch.is_empty() {
                return count;
            }
            let mut has_room = true;
            self.exchange_batch(writer, operation, &batch, room_bytes, |exchanged| {
                if let Err(BlockWriteError::Tree(WriteError::Undecided {
                    source: Undecided::NoRoom { .. },
                    ..
                })) = exchanged.outcome
                {
                    has_room = false;
                    return;
                }
                count += 1;
                room_bytes = done(exchanged);
            });
            if !has_room {
                return count;
            }
        }
    }

    fn exchange_batch(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        batch: &[WriteEntry<'_>],
        room_bytes: usize,
        mut done: impl FnMut(Exchanged<'_>),
    ) {
        let mut operands = Vec::new();
        let drafts: Vec<_> = batch
            .iter()
            .map(|entry| {
                let begin = operands.len();
                let draft = draft(writer, operation, *entry, room_bytes, &mut operands)?;
                Ok((draft, begin..operands.len()))
            })
            .collect();
        let drafted = batch.iter().zip(&drafts).filter_map(|(entry, draft)| {
            let (_, operand) = draft.as_ref().ok()?;
            Some(WriteEntry { value: &operands[operand.clone()], ..*entry })
        });
        let mut left = drafts.iter();
        // Refusals of entries that have no draft, up to the next one that has.
        let mut next = |done: &mut dyn FnMut(Exchanged<'_>)| {
            for draft in left.by_ref() {
                match draft {
                    Ok((draft, _)) => return Some(draft.place),
                    Err(error) => {
                        let error: &BlockWriteError = error;
                        done(Exchanged { outcome: Err(error.clone()), is_hint_wrong: false, old: None });
                    }
                }
            }
            None
        };
        self.tree().exchange_many(operation, drafted, |outcome, is_hint_wrong, old| {
            let place = next(&mut done).expect("an outcome a draft");
            if !matches!(outcome, Ok(WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_))) {
                writer.give_back(place);
            }
            let is_old = operation.returns_value() && matches!(outcome, Ok(WriteOutcome::Replaced(_)));
            let outcome = outcome.map_err(BlockWriteError::from);
            done(Exchanged { outcome, is_hint_wrong, old: is_old.then_some(old) });
        });
        next(&mut done);
    }
}

/// Drafts the block of an entry, and appends the operand that its leaf decides by.
fn draft(
    writer: &mut BlockWriter,
    operation: WriteOperation,
    entry: WriteEntry<'_>,
    room_bytes: usize,
    operands: &mut Vec<u8>,
) -> Result<Draft, BlockWriteError> {
    let Operand { argument, value } =
        Operand::of_any_length(operation, entry.value).expect("the caller has looked at its operands");
    let draft = if operation == WriteOperation::FetchAdd {
        // Zeros where the sum will stand, behind its deadline.
        Draft::write(writer, entry.key, &[value, &[0; INTEGER_BYTES]].concat())?
    } else {
        Draft::write(writer, entry.key, value)?
    };
    operands.extend_from_slice(&draft.reference);
    if operation == WriteOperation::Swap {
        operands.extend_from_slice(&(room_bytes as u64).to_le_bytes());
    } else {
        operands.extend_from_slice(argument);
    }
    Ok(draft)
}
