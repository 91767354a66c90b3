//! A bulk load of an XStore-D table: one part after the other, each as a server's table is loaded.
//!
//! Invariant: no part shows a pair before [`PartsLoad::finish`]: the last piece of each is held back until
//! then.

use std::sync::Arc;

use farsight_fabric::Connection;

use super::Nodes;
use crate::LoadError;
use crate::bulk_load::{Pieces, Sequence};
use crate::table::Place;

/// A load under way.
pub(crate) struct PartsLoad<C: Connection + 'static> {
    place: Place<Nodes<C>>,
    boundaries: Arc<[u64]>,
    parts: Vec<Pieces>,
    sequence: Sequence,
    /// The part that takes pairs now.
    part: usize,
}

impl<C: Connection + 'static> PartsLoad<C> {
    pub(crate) fn new(place: Place<Nodes<C>>, boundaries: Arc<[u64]>) -> Self {
        let parts = place.open.infos.iter().map(|info| Pieces::new(&info.part())).collect();
        Self { place, boundaries, parts, sequence: Sequence::default(), part: 0 }
    }

    pub(crate) fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let definition = &self.place.open.info.definition;
        self.sequence.next(&definition.name, usize::from(definition.value_bytes), key, value)?;
        while self.boundaries.get(self.part).is_some_and(|boundary| *boundary <= key) {
            self.part += 1;
        }
        let part = self.part;
        let pushed = self.parts[part].push(&mut self.place.queues[part], key, value);
        pushed.map_err(|error| self.with_all_pairs(part, error))
    }

    pub(crate) fn finish(mut self) -> Result<u64, LoadError> {
        // Parts without a pair, too: whether they are empty is seen there.
        for part in 0..self.parts.len() {
            let finished = self.parts[part].finish(&mut self.place.queues[part]);
            finished.map_err(|error| self.with_all_pairs(part, error))?;
        }
        Ok(self.sequence.pairs)
    }

    /// A part's error, which knows of that part's pairs alone.
    fn with_all_pairs(&self, failed: usize, error: LoadError) -> LoadError {
        let others = self.parts.iter().enumerate().filter(|(part, _)| *part != failed);
        let pairs_of_others: u64 = others.map(|(_, part)| part.acknowledged_pairs()).sum();
        match error {
            LoadError::Fabric { table, pairs, source } => {
                LoadError::Fabric { table, pairs: pairs + pairs_of_others, source }
            }
            other => other,
        }
    }
}
