//! What the keys of one writer may hold, in one life of the server.

use farsight::Epoch;
use farsight_conformance::engine::witness::Witness;

/// The keys of one writer, which nobody else writes.
pub(crate) struct Oracle {
    first: u64,
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
    pub(crate) fn new(first: u64, count: usize, epoch: Epoch) -> Self {
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
    pub(crate) fn acknowledge(&mut self, key: u64, written: Option<u64>) {
        let possible = &mut self.keys[(key - self.first) as usize];
        *possible = Possible { acknowledged: written, unknown: Vec::new() };
    }

    /// A write of `key` may have been executed.
    pub(crate) fn suspect(&mut self, key: u64, written: Option<u64>) {
        self.keys[(key - self.first) as usize].unknown.push(written);
    }

    /// Judges what a read found at `key`.
    pub(crate) fn judge(&self, key: u64, value: Option<&[u8]>) {
        let found = value.map(|value| {
            let witness = Witness::read(value).unwrap_or_else(|| panic!("key {key}: a torn value"));
            assert_eq!(witness.number, key, "the value of another key");
            witness.sequence
        });
        let Possible { acknowledged, unknown } = &self.keys[(key - self.first) as usize];
        assert!(
            found == *acknowledged || unknown.contains(&found),
            "key {key} in {}: found {found:?}, acknowledged {acknowledged:?}, unknown {unknown:?}",
            self.epoch
        );
    }
}
