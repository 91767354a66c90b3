//! What the keys of one writer may hold, in one life of the server.

use farsight::Epoch;
use farsight_conformance::engine::witness::Witness;
use farsight_oracles::Identity;

/// The keys of one writer, which nobody else writes.
pub(crate) struct Oracle {
    first: Identity,
    epoch: Epoch,
    keys: Vec<Possible>,
}

/// What one key may hold: the sequence number of a value, or nothing.
#[derive(Clone, Default)]
struct Possible {
    acknowledged: Option<u64>,
    /// Writes since then whose outcome is unknown.
    unknown: Vec<Option<u64>>,
}

impl Oracle {
    /// Keys from `first` on, none of which was ever written.
    pub(crate) fn new(first: Identity, count: usize, epoch: Epoch) -> Self {
        Self { first, epoch, keys: vec![Possible::default(); count] }
    }

    /// Takes note of the life that the last call was executed in: another one begins without the keys.
    /// Returns whether it is another.
    pub(crate) fn enter(&mut self, epoch: Epoch) -> bool {
        if epoch == self.epoch {
            return false;
        }
        self.epoch = epoch;
        self.keys.fill(Possible::default());
        true
    }

    /// A write of `key` was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: Identity, written: Option<u64>) {
        let place = self.place(key);
        self.keys[place] = Possible { acknowledged: written, unknown: Vec::new() };
    }

    /// A write of `key` may have been executed.
    pub(crate) fn suspect(&mut self, key: Identity, written: Option<u64>) {
        let place = self.place(key);
        self.keys[place].unknown.push(written);
    }

    fn place(&self, key: Identity) -> usize {
        (key.0 - self.first.0) as usize
    }

    /// Judges what a read found at `key`.
    pub(crate) fn judge(&self, key: Identity, value: Option<&[u8]>) {
        let found = value.map(|value| Witness::sequence_of(key, value));
        let Possible { acknowledged, unknown } = &self.keys[self.place(key)];
        assert!(
            found == *acknowledged || unknown.contains(&found),
            "key {key} in {}: found {found:?}, acknowledged {acknowledged:?}, unknown {unknown:?}",
            self.epoch
        );
    }
}
