//! Replacements of a batch, all in one round trip: those whose addresses are known.
//!
//! Invariant: as in [`crate::recall`]. What does not succeed here changed nothing, and is written on its own.

use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Key, Writes};
use farsight_layout::hash_index::{Candidate, HashSlot};

use crate::addresses::Address;
use crate::get::{ring, slots};
#[cfg(injected)]
use crate::injected;
use crate::object::NewObject;
use crate::session::{Done, Written, absorbed_by};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// Replacements side by side.
const REPLACEMENTS: usize = 64;

/// A replacement under way.
struct Replacement<'w> {
    /// Its number in the batch.
    index: usize,
    key: Key<'w>,
    of: KeyLines,
    address: Address,
    /// What it replaces, and by which word.
    swap: (Candidate, HashSlot),
    object: NewObject,
    /// Whether the head's slot was swapped.
    is_swapped: Result<bool, FlexError>,
}

impl FlexSession {
    /// Replaces the pairs of a batch whose addresses are known. What became of those is in `done`, by their
    /// numbers.
    pub(crate) fn replace_batch<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_, Key<'_>>, &[u64]),
        done: &mut [Done],
    ) -> Result<(), FabricError> {
        if !self.is_blind(writes.operation) || !Q::GUARANTEES.atomic_after_write {
            return Ok(());
        }
        let mut rest = writes;
        while !rest.keys.is_empty() {
            let first = writes.keys.len() - rest.keys.len();
            let (now, later) = rest.split_at(REPLACEMENTS.min(rest.keys.len()));
            let mut posted = self.post_replacements(queues, (now, absorbed), first);
            if let Err(error) = self.execute(queues, &mut posted) {
                // Nobody knows whether slots name these objects.
                for replacement in &mut posted {
                    replacement.object.forget();
                }
                return Err(error);
            }
            for replacement in posted {
                let index = replacement.index;
                done[index].0 = self.end(replacement);
            }
            rest = later;
        }
        Ok(())
    }

    /// Posts a WRITE of each whose address is known, and of one without replicas the swap.
    fn post_replacements<'w, Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_, Key<'w>>, &[u64]),
        first: usize,
    ) -> Vec<Replacement<'w>> {
        let lines_of = |key: &Key<'_>| {
            let of = self.table.lines_of(*key);
            self.addresses.borrow().sets().prefetch(of.hash);
            of
        };
        let of_keys: Vec<KeyLines> = writes.keys.iter().map(lines_of).collect();
        let now = queues[0].now();
        let known: Vec<Option<Address>> = of_keys.iter().map(|of| self.known_address(*of)).collect();
        let mut posted = Vec::with_capacity(writes.keys.len());
        // All words are known by now: other sessions may learn newer ones at any time.
        if self.is_late() {
            return posted;
        }
        for (index, (((key, operand), of), known)) in writes.iter().zip(of_keys).zip(known).enumerate() {
            let Some(address) = known.filter(|_| !self.doubts.is_doubtful(of.hash)) else { continue };
            // What is refused here is refused again where it is written on its own.
            let Ok(operand) = self.operand(writes, key, operand) else { continue };
            let mut object = NewObject::absorbing(absorbed_by(absorbed, first + index));
            if self.prepare(now, &mut object, of.shard, (key, operand.value), address.version).is_err() {
                continue;
            }
            let Some(swap) = self.begin_replacement((key, of), &object, address) else {
                self.abandon(of.shard, &mut object);
                continue;
            };
            let [write, compare] = slots(posted.len());
            for at in self.table.chain(of.shard) {
                let (to, words) = object.words_at(at);
                queues[at.node].post_write(write, to, words);
            }
            if !self.table.is_replicated(of.shard) {
                let at = self.table.head(of.shard);
                let slot = at.slot_address(address.place);
                queues[at.node].post_compare_swap(compare, slot, address.word.0, swap.1.0);
            }
            let (index, is_swapped) = (first + index, Ok(false));
            posted.push(Replacement { index, key, of, address, swap, object, is_swapped });
        }
        posted
    }

    /// Sends what was posted, and what has to wait for that.
    fn execute<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        posted: &mut [Replacement<'_>],
    ) -> Result<(), FabricError> {
        ring(queues)?;
        for (number, replacement) in posted.iter_mut().enumerate() {
            replacement.is_swapped = self.take_written_at(queues, number, replacement);
        }
        let replicas = |replacement: &Replacement<'_>| self.table.chain(replacement.of.shard).len();
        let longest = posted.iter().map(replicas).max().filter(|longest| *longest > 1).unwrap_or(0);
        for position in 0..longest {
            self.swap_at(queues, posted, position)?;
        }
        Ok(())
    }

    /// Takes the completions of an object's WRITEs, and of its swap where that was posted behind them.
    fn take_written_at<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        number: usize,
        Replacement { key, of, address, .. }: &Replacement<'_>,
    ) -> Result<bool, FlexError> {
        let ([write, compare], chain) = (slots(number), self.table.chain(of.shard));
        let mut is_swapped = Ok(false);
        if let [head] = chain {
            let found = queues[head.node].take_word(compare);
            is_swapped =
                found.map(|found| found == address.word.0).map_err(|source| FlexError::of_swap(*key, source));
        }
        for at in chain {
            queues[at.node].take_word(write)?;
        }
        is_swapped
    }

    /// Swaps slots at one position of their chains, of those that have it: the head's, or where a replica
    /// follows the head.
    fn swap_at<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        posted: &mut [Replacement<'_>],
        position: usize,
    ) -> Result<(), FabricError> {
        let takes_part = |replacement: &Replacement<'_>| {
            let chain = self.table.chain(replacement.of.shard);
            let follows = matches!(replacement.is_swapped, Ok(is_swapped) if is_swapped == (position > 0));
            chain.get(position).copied().filter(|_| chain.len() > 1 && follows)
        };
        let at: Vec<_> = posted.iter().map(takes_part).collect();
        for ((number, replacement), at) in posted.iter().enumerate().zip(&at) {
            let Some(at) = at else { continue };
            let (place, before, after) =
                (replacement.address.place, replacement.address.word, replacement.swap.1);
            let [_, compare] = slots(number);
            queues[at.node].post_compare_swap(compare, at.slot_address(place), before.0, after.0);
        }
        ring(queues)?;
        for ((number, replacement), at) in posted.iter_mut().enumerate().zip(&at) {
            let Some(at) = at else { continue };
            let [_, compare] = slots(number);
            // Another word than before: behind the head, somebody was quicker.
            replacement.is_swapped = match queues[at.node].take_word(compare) {
                Ok(found) => Ok(position > 0 || found == replacement.address.word.0),
                Err(source) => Err(FlexError::of_swap(replacement.key, source)),
            };
        }
        Ok(())
    }

    /// What became of a replacement; `None` if it has to be written on its own.
    fn end(&self, replacement: Replacement<'_>) -> Option<Written> {
        let Replacement { of, address, swap, mut object, is_swapped, .. } = replacement;
        match is_swapped {
            Err(error) => {
                object.forget();
                Some(Err(error))
            }
            Ok(is_swapped) => {
                object.note_written();
                #[cfg(injected)]
                let is_swapped = is_swapped || injected::UNSWAPPED_ANSWERED.is_injected();
                let outcome = self.end_replacement(of, &mut object, address, swap, is_swapped);
                self.abandon(of.shard, &mut object);
                outcome.map(Ok)
            }
        }
    }
}
