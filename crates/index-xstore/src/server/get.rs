//! GET by the server's processor: the same optimistic reading as a client's, after a descent instead of a
//! prediction. Takes no latch.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{Answers, Backoff, Contended, LeafAnswer, LeafFormat, Waited};
use farsight_protocol::WriteEntry;

use super::descend::BATCH_MAX;
use super::tree::XTree;

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
        let words = self.hinted_block(hint).filter(|words| self.format.may_hold(words, key));
        // Acquire: leaves of a load are not in the tree yet, and answer nobody. Partner: as in
        // `latch_guessed`.
        let is_hinted = words.is_some() && self.loads.load(Ordering::Acquire) == 0;
        self.get_from(key, is_hinted.then_some(hint), into)
    }

    /// Asks for the lines of keys and values of hinted leaves, for looks and writes that come next.
    pub fn prefetch_hinted(&self, entries: &[WriteEntry<'_>]) {
        let hinted = || entries.iter().filter_map(|entry| Some((entry.key, self.hinted_block(entry.hint)?)));
        hinted().for_each(|(_, words)| self.format.prefetch_keys(words));
        for (key, words) in hinted() {
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

    #[inline]
    fn get_from(
        &self,
        key: u64,
        leaf: Option<LeafNumber>,
        into: &mut [u8],
    ) -> Result<Option<u64>, Contended> {
        let mut backoff = Backoff::new();
        let mut next = leaf;
        loop {
            let leaf = match next.take() {
                Some(leaf) => leaf,
                None => self.descend(key)?.leaf,
            };
            let answer = self
                .slab
                .block(leaf)
                .map_or(LeafAnswer::Elsewhere, |words| self.format.get(words, key, into));
            match answer {
                LeafAnswer::Found { version } => return Ok(Some(version)),
                LeafAnswer::Absent => return Ok(None),
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
