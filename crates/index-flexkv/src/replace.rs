//! Replacements of a batch, all in one round trip: those whose addresses are known.
//!
//! Invariant: as in [`crate::recall`]. What does not succeed here changed nothing, and is written on its own.

use farsight_fabric::{FabricError, QueuePair};
use farsight_index::Writes;
use farsight_layout::hash_index::{Candidate, HashSlot};

use crate::addresses::Address;
use crate::get::{ring, slots};
#[cfg(injected)]
use crate::injected;
use crate::object::NewObject;
use crate::session::{Done, Written, absorbed_by};
use crate::table::KeyLines;
use crate::write::replaces_any_value;
use crate::{FlexError, FlexSession};

/// Replacements side by side.
const REPLACEMENTS: usize = 64;

/// A replacement under way.
struct Replacement {
    /// Its number in the batch.
    index: usize,
    key: u64,
    of: KeyLines,
    address: Address,
    /// What it replaces, and by which word.
    swap: (Candidate, HashSlot),
    object: NewObject,
}

impl FlexSession {
    /// Replaces the pairs of a batch whose addresses are known. What became of those is in `done`, by their
    /// numbers.
    pub(crate) fn replace_batch<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_>, &[u64]),
        done: &mut [Done],
    ) -> Result<(), FabricError> {
        if !replaces_any_value(writes.operation) || !Q::GUARANTEES.atomic_after_write {
            return Ok(());
        }
        let mut rest = writes;
        while !rest.keys.is_empty() {
            let first = writes.keys.len() - rest.keys.len();
            let (now, later) = rest.split_at(REPLACEMENTS.min(rest.keys.len()));
            let mut posted = self.post_replacements(queues, (now, absorbed), first);
            if let Err(error) = ring(queues) {
                // Nobody knows whether slots name these objects.
                for replacement in &mut posted {
                    replacement.object.forget();
                }
                return Err(error);
            }
            for (number, replacement) in posted.into_iter().enumerate() {
                let index = replacement.index;
                done[index].0 = self.take_replacement(queues, number, replacement);
            }
            rest = later;
        }
        Ok(())
    }

    /// Posts a WRITE and a swap of each whose address is known.
    fn post_replacements<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_>, &[u64]),
        first: usize,
    ) -> Vec<Replacement> {
        let lines_of = |key: &u64| {
            let of = self.table.lines_of(&key.to_le_bytes());
            self.addresses.borrow().sets().prefetch(of.hash);
            of
        };
        let of_keys: Vec<KeyLines> = writes.keys.iter().map(lines_of).collect();
        let now = queues[0].now();
        let known: Vec<Option<Address>> =
            writes.keys.iter().zip(&of_keys).map(|(key, of)| self.known_address(*key, *of)).collect();
        let mut posted = Vec::with_capacity(writes.keys.len());
        // All words are known by now: other sessions may learn newer ones at any time.
        if self.is_late() {
            return posted;
        }
        for (index, (((key, operand), of), known)) in writes.iter().zip(of_keys).zip(known).enumerate() {
            let Some(address) = known else { continue };
            // What is refused here is refused again where it is written on its own.
            let Ok(operand) = self.operand(writes, key, operand) else { continue };
            let mut object = NewObject::absorbing(absorbed_by(absorbed, first + index));
            if self.prepare(now, &mut object, of.node, (key, operand.value), address.version).is_err() {
                continue;
            }
            let Some(swap) = self.begin_replacement((key, of), &object, address) else {
                self.abandon(of.node, &mut object);
                continue;
            };
            let [write, compare] = slots(posted.len());
            let (to, words) = self.object_words(&object, of.node);
            queues[of.node].post_write(write, to, words);
            let at = self.table.slot_address(of.node, address.place);
            queues[of.node].post_compare_swap(compare, at, address.word.0, swap.1.0);
            posted.push(Replacement { index: first + index, key, of, address, swap, object });
        }
        posted
    }

    /// Takes what became of a replacement; `None` if it has to be written on its own.
    fn take_replacement<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        number: usize,
        Replacement { key, of, address, swap, mut object, .. }: Replacement,
    ) -> Option<Written> {
        let ([write, compare], queue) = (slots(number), &mut queues[of.node]);
        let found = queue.take_word(compare).map_err(|source| FlexError::of_swap(key, source));
        let is_swapped = found.and_then(|found| {
            queue.take_word(write)?;
            Ok(found == address.word.0)
        });
        match is_swapped {
            Err(error) => {
                object.forget();
                Some(Err(error))
            }
            Ok(is_swapped) => {
                #[cfg(injected)]
                let is_swapped = is_swapped || injected::UNSWAPPED_ANSWERED.is_injected();
                let outcome = self.end_replacement((key, of), &mut object, address, swap, is_swapped);
                self.abandon(of.node, &mut object);
                outcome.map(Ok)
            }
        }
    }
}
