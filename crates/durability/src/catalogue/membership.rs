//! What a directory of data keeps of its lives, and of the pool that its node belongs to.
//!
//! Invariant: a directory is the same node in every life of a server there: that of its *origin*, the epoch
//! of the first life. A life is known by its number and its epoch, of which a copy of the directory has
//! another one.
//!
//! Words, in this order: origin; lives and their epochs; nodes of the pool; the own index. Then for each node
//! its origin, and number and epoch of the life that was met last. Then dropped tables, and forgotten runs.

use std::collections::BTreeSet;

use super::Fields;
use crate::frame::FrameFault;

/// Lives that are remembered.
const LIVES_MAX: usize = 1_024;
/// Nodes, dropped tables and forgotten runs at most that a catalogue is believed to have.
const ENTRIES_MAX: u64 = 1 << 20;

/// Who a directory's node is, and among whom.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The epoch of the first life: the node's in every life.
    pub origin: u64,
    /// The epochs of its lives, of which the last is the newest: 1,024 at most.
    pub lives: Vec<u64>,
    /// The nodes of its pool, in their order: none before the first table.
    pub nodes: Vec<PoolNode>,
    /// Which of them it is.
    pub index: u32,
    /// At the coordinator: tables that were dropped, and at the other nodes perhaps not yet.
    pub dropped: BTreeSet<u32>,
    /// At the others: runs of numbers of dropped tables, of which none is made again. First and count.
    pub forgotten: Vec<(u32, u32)>,
}

/// A life of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryLife {
    /// Which one it is, from one.
    pub number: u64,
    /// Its epoch.
    pub epoch: u64,
}

/// A node of a pool, as another one knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolNode {
    /// Its origin.
    pub origin: u64,
    /// The newest of its lives that this node has been told of.
    pub met: Option<DirectoryLife>,
}

impl Membership {
    /// Begins a life.
    pub(crate) fn begin_life(&mut self, epoch: u64) {
        if self.lives.is_empty() {
            self.origin = epoch;
        }
        if self.lives.len() >= LIVES_MAX {
            self.lives.remove(0);
        }
        self.lives.push(epoch);
    }

    pub(super) fn put(&self, put: &mut impl FnMut(u64)) {
        put(self.origin);
        put(self.lives.len() as u64);
        self.lives.iter().copied().for_each(&mut *put);
        put(self.nodes.len() as u64);
        put(self.index.into());
        for node in &self.nodes {
            let DirectoryLife { number, epoch } = node.met.unwrap_or_default();
            [node.origin, number, epoch].into_iter().for_each(&mut *put);
        }
        put(self.dropped.len() as u64);
        for number in &self.dropped {
            put((*number).into());
        }
        put(self.forgotten.len() as u64);
        for (first, count) in &self.forgotten {
            put((*first).into());
            put((*count).into());
        }
    }
}

impl Fields<'_> {
    pub(super) fn membership(&mut self) -> Result<Membership, FrameFault> {
        let origin = self.word()?;
        let lives = (0..self.count("lives, at most")?).map(|_| self.word()).collect::<Result<_, _>>()?;
        let (nodes, index) = (self.count("nodes, at most")?, self.half("index of a node, at most")?);
        let nodes = (0..nodes).map(|_| self.node()).collect::<Result<_, _>>()?;
        let dropped = self.count("dropped tables, at most")?;
        let dropped = (0..dropped).map(|_| self.half("number of a dropped table, at most"));
        let dropped = dropped.collect::<Result<_, _>>()?;
        let forgotten = self.count("forgotten runs, at most")?;
        let forgotten = (0..forgotten)
            .map(|_| Ok((self.half("first of a run, at most")?, self.half("count of a run, at most")?)));
        let forgotten = forgotten.collect::<Result<_, FrameFault>>()?;
        Ok(Membership { origin, lives, nodes, index, dropped, forgotten })
    }

    fn node(&mut self) -> Result<PoolNode, FrameFault> {
        let (origin, met) = (self.word()?, DirectoryLife { number: self.word()?, epoch: self.word()? });
        Ok(PoolNode { origin, met: (met.number > 0).then_some(met) })
    }

    fn count(&mut self, what: &'static str) -> Result<u64, FrameFault> {
        match self.word()? {
            got if got > ENTRIES_MAX => Err(FrameFault::Field { what, expected: ENTRIES_MAX, got }),
            count => Ok(count),
        }
    }
}
