//! GET by the server's processor: the same optimistic reading as a client's, after a descent instead of a
//! prediction. Takes no latch.

use farsight_base::LeafNumber;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_index::{Answers, Backoff, Contended, LeafAnswer, LeafFormat, Waited};
use farsight_protocol::WriteEntry;

use super::descend::BATCH_MAX;
use super::tree::XTree;

/// What a look at a key's leaf tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// The key's leaf.
    pub leaf: LeafNumber,
    /// Where in it the key's pair is, if it has one.
    pub slot: Option<usize>,
    /// The hint led to the key's leaf.
    pub is_hinted: bool,
}

impl<F: LeafFormat> XTree<F> {
    /// Copies the value of `key` `into` place and returns its version; `None` if the key is absent.
    ///
    /// # Errors
    /// [`Contended`].
    ///
    /// # Panics
    /// If `into` is not of the table's value size.
    pub fn get(&self, key: u64, into: &mut [u8]) -> Result<Option<u64>, Contended> {
        self.get_from(key, None, into)
    }

    /// [`XTree::get`] that looks first at the leaf where a client believes the key to be. The caller sees to
    /// it that no load begins meanwhile.
    ///
    /// # Errors
    /// [`Contended`].
    ///
    /// # Panics
    /// As [`XTree::get`].
    pub fn get_hinted(&self, key: u64, hint: LeafNumber, into: &mut [u8]) -> Result<Option<u64>, Contended> {
        self.get_from(key, self.leaf_hinted(key, hint), into)
    }

    /// Asks for the lines of keys of hinted leaves, for looks and writes that come next.
    pub fn prefetch_keys(&self, hints: impl Iterator<Item = LeafNumber>) {
        hints.filter_map(|hint| self.hinted_block(hint)).for_each(|words| self.format.prefetch_keys(words));
    }

    /// The same, and for those of values.
    pub fn prefetch_hinted(&self, entries: &[WriteEntry<'_>]) {
        self.prefetch_keys(entries.iter().map(|entry| entry.hint));
        let hinted = entries.iter().filter_map(|entry| Some((entry.key, self.hinted_block(entry.hint)?)));
        for (key, words) in hinted {
            // Where the key is not there, an insert comes to it.
            if !self.format.prefetch_value(words, key) {
                let _ = self.format.prefetch_insert(words);
            }
        }
    }

    /// The leaves to which these keys belong, found by all of them together, as hints.
    pub fn leaves_of(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        hints.clear();
        let mut routes = [None; BATCH_MAX];
        for keys in keys.chunks(BATCH_MAX) {
            self.descend_many(keys, &mut routes);
            let leaves = routes[..keys.len()].iter().map(|route| route.map(|route| route.leaf));
            hints.extend(leaves.map(|leaf| leaf.unwrap_or(LeafNumber::NONE)));
        }
    }

    /// Looks up `keys`, all of them going down the tree together; `answers` has one answer a key.
    ///
    /// # Errors
    /// [`Contended`]; the answers are then incomplete.
    pub fn get_many(&self, keys: &[u64], answers: &mut Answers) -> Result<(), Contended> {
        answers.reset(keys.len(), self.format.value_bytes());
        let mut routes = [None; BATCH_MAX];
        for (batch, keys) in keys.chunks(BATCH_MAX).enumerate() {
            self.descend_many(keys, &mut routes);
            for (index, (key, route)) in keys.iter().zip(&routes).enumerate() {
                let answer = batch * BATCH_MAX + index;
                let leaf = route.map(|route| route.leaf);
                let version = self.get_from(*key, leaf, answers.value_mut(answer))?;
                answers.set_version(answer, version.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Where `key` has a pair, if it has one, found as by [`XTree::get_hinted`]. Prefetches the lines that
    /// its write touches.
    ///
    /// # Errors
    /// [`Contended`].
    #[inline]
    pub fn look_hinted(&self, key: u64, hint: LeafNumber) -> Result<Sighting, Contended> {
        let hinted = self.leaf_hinted(key, hint);
        let (leaf, found) = self.ask(key, hinted, |words| self.format.look(words, key))?;
        Ok(Sighting { leaf, slot: found, is_hinted: hinted == Some(leaf) })
    }

    /// The hinted leaf, if it may be that of `key`.
    #[inline]
    fn leaf_hinted(&self, key: u64, hint: LeafNumber) -> Option<LeafNumber> {
        let words = self.hinted_block(hint).filter(|words| self.format.may_hold(words, key));
        // Acquire: leaves of a load are not in the tree yet, and answer nobody. Partner: as in
        // `latch_guessed`.
        (words.is_some() && self.loads.load(Ordering::Acquire) == 0).then_some(hint)
    }

    #[inline]
    fn get_from(
        &self,
        key: u64,
        leaf: Option<LeafNumber>,
        into: &mut [u8],
    ) -> Result<Option<u64>, Contended> {
        self.ask(key, leaf, |words| self.format.get(words, key, into)).map(|(_, version)| version)
    }

    /// What the leaf of `key` answers, and which it is. It is looked for from `leaf` on, or from the root.
    #[inline]
    fn ask<T>(
        &self,
        key: u64,
        leaf: Option<LeafNumber>,
        mut ask: impl FnMut(&[AtomicU64]) -> LeafAnswer<T>,
    ) -> Result<(LeafNumber, Option<T>), Contended> {
        let mut backoff = Backoff::new();
        let mut next = leaf;
        loop {
            let leaf = match next.take() {
                Some(leaf) => leaf,
                None => self.descend(key)?.leaf,
            };
            match self.slab.block(leaf).map_or(LeafAnswer::Elsewhere, &mut ask) {
                LeafAnswer::Found(found) => return Ok((leaf, Some(found))),
                LeafAnswer::Absent => return Ok((leaf, None)),
                LeafAnswer::Right(right) => next = Some(right),
                LeafAnswer::Changing => {
                    if backoff.is_time_to_look() {
                        self.scrub(leaf);
                    }
                    next = Some(leaf);
                }
                LeafAnswer::Elsewhere => {}
            }
            backoff.pause(key, Waited::Leaf(leaf))?;
        }
    }
}
