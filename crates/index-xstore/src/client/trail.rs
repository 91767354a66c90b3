//! Where walks ended: leaves that a session found right of those that its model names.
//!
//! Where a table grows faster than it is trained, chains of leaves stand between what the model knows and
//! what there is. A walk along such a chain notes the leaf in which it ended, by its low fence. The next walk
//! goes there at once if that leaf begins nearer to its key, so that walks stay short however long the chain
//! gets. Nothing has to be asked of the server, whose processor the writers use.
//!
//! Invariant: a note is a guess, as all that a client caches: the leaf's own fences decide. It costs nothing
//! where the model is up to date, for then nobody walks.

use farsight_base::LeafNumber;

/// Leaves that are known at most; then the ones noted longest ago give way.
const NOTES_MAX: usize = 512;

/// The notes of one session, in the order of their low fences.
pub(super) struct Trail {
    notes: Vec<Note>,
    noted: u32,
}

#[derive(Clone, Copy)]
struct Note {
    low: u64,
    leaf: LeafNumber,
    /// Which note of the session it is.
    number: u32,
}

impl Default for Trail {
    /// With room for all notes: a warm session allocates no memory.
    fn default() -> Self {
        Self { notes: Vec::with_capacity(NOTES_MAX), noted: 0 }
    }
}

impl Trail {
    /// The leaf that begins nearest before `key`, if not before `above`.
    pub(super) fn find(&self, key: u64, above: u64) -> Option<LeafNumber> {
        let behind = self.notes.partition_point(|note| note.low <= key);
        let note = self.notes[..behind].last().filter(|note| note.low >= above)?;
        Some(note.leaf)
    }

    /// Notes that `leaf` begins at `low`.
    pub(super) fn note(&mut self, low: u64, leaf: LeafNumber) {
        self.noted = self.noted.wrapping_add(1);
        let note = Note { low, leaf, number: self.noted };
        match self.notes.binary_search_by_key(&low, |note| note.low) {
            Ok(place) => self.notes[place] = note,
            Err(place) => {
                let place = if self.notes.len() < NOTES_MAX { place } else { place - self.make_room(place) };
                self.notes.insert(place, note);
            }
        }
    }

    /// Forgets the note of longest ago; one if that stood before `place`, otherwise zero.
    fn make_room(&mut self, place: usize) -> usize {
        let age = |(_, note): &(usize, &Note)| self.noted.wrapping_sub(note.number);
        let oldest = self.notes.iter().enumerate().max_by_key(age).map_or(0, |(oldest, _)| oldest);
        self.notes.remove(oldest);
        usize::from(oldest < place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_leaf_before_a_key_is_found() {
        let mut trail = Trail::default();
        for low in [50, 10, 30] {
            trail.note(low, LeafNumber(low as u32));
        }
        let found = [0, 10, 29, 30, 49, 1_000].map(|key| trail.find(key, 0).map(|leaf| leaf.0));
        assert_eq!(found, [None, Some(10), Some(10), Some(30), Some(30), Some(50)]);
        assert_eq!(trail.find(29, 11), None, "the model knows a leaf that is nearer");
        trail.note(30, LeafNumber(7));
        assert_eq!(trail.find(40, 20), Some(LeafNumber(7)), "the last leaf that began there");
    }

    #[test]
    fn the_oldest_notes_give_way() {
        let mut trail = Trail::default();
        let most = NOTES_MAX as u64;
        for turn in 0..3 * most {
            // Any order: 7 has no divisor in common with the count.
            let low = turn * 7 % (3 * most);
            trail.note(low, LeafNumber(turn as u32));
            assert!(trail.notes.len() <= NOTES_MAX && trail.notes.is_sorted_by_key(|note| note.low));
            assert_eq!(trail.find(low, low), Some(LeafNumber(turn as u32)));
        }
        assert!(trail.notes.iter().all(|note| u64::from(note.leaf.0) >= 2 * most), "the last ones are kept");
    }
}
