//! GET by the server's processor: the same optimistic reading as a client's, after a descent instead of a
//! prediction. Takes no latch.

use farsight_base::LeafNumber;
use farsight_index::{Answers, Backoff, Contended, LeafAnswer, LeafFormat, Waited};

use super::descend::{BATCH_MAX, DescentEnd};
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
                let version = self.get_from(*key, *route, answers.value_mut(answer))?;
                answers.set_version(answer, version.unwrap_or(0));
            }
        }
        Ok(())
    }

    #[inline]
    fn get_from(
        &self,
        key: u64,
        route: Option<DescentEnd>,
        into: &mut [u8],
    ) -> Result<Option<u64>, Contended> {
        let mut backoff = Backoff::new();
        let mut next: Option<LeafNumber> = route.map(|route| route.leaf);
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
