//! What the log needs of an XStore table: of values of one size, or of any length.

use std::ops::{ControlFlow, RangeInclusive};

use farsight_base::{ClientId, LeafNumber};
use farsight_index::{LeafFormat, Pair, Pairs};
use farsight_index_xstore::server::{
    BlockReadError, BlockRoom, BlockTree, Sighting, StagedReference, VersionedWrite, WriteError,
};
use farsight_protocol::{Direction, ServerError, StagedWrite, WriteEntry};

use super::block_part::BlockPart;
use super::{Part, code_of};
use crate::logged::{LoggedTable, PairVisitor, VersionedLoad};

impl<F: LeafFormat> Part<F> {
    fn refused(&self, error: &WriteError) -> ServerError {
        ServerError::new(code_of(error), format!("table {:?}, {error}", self.name))
    }
}

impl<F: LeafFormat + 'static> LoggedTable for Part<F> {
    fn leaves_of(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        self.tree.leaves_of(keys, hints);
    }

    fn leaves_of_run(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        self.tree.leaves_of_run(keys, hints);
    }

    fn prefetch(&self, entries: &[WriteEntry<'_>]) {
        self.tree.prefetch_hinted(entries);
    }

    fn prefetch_keys(&self, entries: &[WriteEntry<'_>]) {
        self.tree.prefetch_keys(entries.iter().map(|entry| entry.hint));
    }

    #[inline]
    fn look(&self, key: u64, hint: LeafNumber) -> Result<Sighting, ServerError> {
        self.tree.look_hinted(key, hint).map_err(|error| self.contended(&error))
    }

    fn pair_of(
        &self,
        key: u64,
        hint: LeafNumber,
        _wanted: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, ServerError> {
        value.resize(self.value_bytes, 0);
        self.tree.get_hinted(key, hint, value).map_err(|error| self.contended(&error))
    }

    fn reserve(&self, inserts: u64) -> Result<(), ServerError> {
        // One insert splits one leaf at most.
        let reserved = self.tree.slab().reserve(inserts);
        reserved.map_err(|full| self.refused(&WriteError::RegionFull { key: 0, full }))
    }

    fn draw_versions(&self, key: u64, count: u64) -> Result<u64, ServerError> {
        self.tree.draw_versions(key, count).map_err(|error| self.refused(&error))
    }

    fn version_max(&self) -> u64 {
        self.tree.version_max()
    }

    fn apply(&self, writes: &[VersionedWrite<'_>], done: &mut dyn FnMut(bool)) -> Result<(), ServerError> {
        let applied = self.tree.apply_many(writes, |applied| done(applied.is_hinted));
        applied.map_err(|error| self.refused(&error))
    }

    fn scan(
        &self,
        keys: RangeInclusive<u64>,
        limit: usize,
        visit: &mut PairVisitor<'_>,
    ) -> Result<Option<u64>, ServerError> {
        let mut pairs = Pairs::default();
        pairs.reset(self.value_bytes);
        let scanned = self.tree.scan(Direction::Ascending, *keys.start(), limit, &mut pairs);
        let next = scanned.map_err(|error| self.contended(&error))?;
        let found = (0..pairs.len()).map(|index| pairs.pair(index));
        for Pair { key, version, value } in found.take_while(|pair| keys.contains(&pair.key)) {
            visit(key, version, value);
        }
        Ok(next.filter(|key| keys.contains(key)))
    }

    fn begin_load(&self, pairs: Option<u64>) -> Result<Box<dyn VersionedLoad>, ServerError> {
        Ok(Box::new(self.begin_load(pairs)?))
    }

    fn want_training(&self) {
        Self::want_training(self);
    }

    fn wants_training(&self) -> bool {
        self.models.pending() > 0
    }
}

impl LoggedTable for BlockPart {
    fn leaves_of(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        self.part.leaves_of(keys, hints);
    }

    fn leaves_of_run(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        self.part.leaves_of_run(keys, hints);
    }

    fn prefetch(&self, entries: &[WriteEntry<'_>]) {
        self.part.prefetch(entries);
    }

    fn prefetch_replaced(&self, entries: &[WriteEntry<'_>]) {
        self.tree.prefetch_replaced(entries);
    }

    fn write_over(&self, write: VersionedWrite<'_>) -> Result<bool, ServerError> {
        self.tree.write_over(write).map_err(|error| self.part.refused(&error))
    }

    fn prefetch_keys(&self, entries: &[WriteEntry<'_>]) {
        self.part.prefetch_keys(entries);
    }

    fn look(&self, key: u64, hint: LeafNumber) -> Result<Sighting, ServerError> {
        self.part.look(key, hint)
    }

    fn now_ms(&self) -> Option<u64> {
        self.tree.now_ms()
    }

    fn pair_of(
        &self,
        key: u64,
        hint: LeafNumber,
        wanted: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, ServerError> {
        value.clear();
        if !wanted {
            return self.tree.version_of(key, hint).map_err(|error| self.part.contended(&error));
        }
        let mut room = BlockRoom::default();
        let found = self.tree.get(key, &mut room).map_err(|error| self.refused_read(&error))?;
        Ok(found.map(|(found, version)| {
            value.extend_from_slice(found);
            version
        }))
    }

    fn stage(&self, key: u64, value: &[u8]) -> Result<Option<StagedReference>, ServerError> {
        let staged = self.with_writer(|writer| BlockTree::stage(writer, key, value));
        staged.map(Some).map_err(|error| self.refused_block(&error))
    }

    fn take_staged(
        &self,
        client: ClientId,
        write: &StagedWrite,
        value: &mut Vec<u8>,
    ) -> Result<StagedReference, ServerError> {
        let (staged, value_bytes) = BlockPart::take_staged(self, client, write)?;
        self.copy_draft(staged, value_bytes, value);
        Ok(staged)
    }

    fn unstage(&self, staged: StagedReference) {
        self.with_writer(|writer| BlockTree::unstage(writer, staged));
    }

    fn reserve(&self, inserts: u64) -> Result<(), ServerError> {
        self.part.reserve(inserts)
    }

    fn draw_versions(&self, key: u64, count: u64) -> Result<u64, ServerError> {
        self.part.draw_versions(key, count)
    }

    fn version_max(&self) -> u64 {
        self.part.version_max()
    }

    fn apply(&self, writes: &[VersionedWrite<'_>], done: &mut dyn FnMut(bool)) -> Result<(), ServerError> {
        self.tree.tree().prefetch_keys(writes.iter().map(|write| write.hint));
        let applied = self.with_writer(|writer| {
            writes.iter().try_for_each(|write| {
                done(self.tree.apply(writer, *write)?.is_hinted);
                Ok(())
            })
        });
        applied.map_err(|error| self.part.refused(&error))
    }

    fn release_at_hand(&self) {
        BlockPart::release_at_hand(self);
    }

    fn take_damaged(&self) -> Vec<(u64, u64)> {
        self.damaged.take()
    }

    fn repair(&self, key: u64, version: u64, value: &[u8]) -> Result<bool, ServerError> {
        let repaired = self.with_writer(|writer| self.tree.repair(writer, key, version, value));
        repaired.map_err(|error| self.refused_block(&error))
    }

    fn scan(
        &self,
        keys: RangeInclusive<u64>,
        limit: usize,
        visit: &mut PairVisitor<'_>,
    ) -> Result<Option<u64>, ServerError> {
        let mut room = BlockRoom::default();
        let (from, last) = keys.into_inner();
        let scanned = self.tree.scan(Direction::Ascending, from, limit, &mut room, |key, version, value| {
            if key > last {
                return ControlFlow::Break(());
            }
            visit(key, version, value);
            ControlFlow::Continue(())
        });
        let next = match scanned {
            // Pairs come in order: all of the range were visited before this one.
            Err(BlockReadError::Damaged { key, .. }) if key > last => None,
            scanned => scanned.map_err(|error| self.refused_read(&error))?,
        };
        Ok(next.filter(|key| *key <= last))
    }

    fn begin_load(&self, pairs: Option<u64>) -> Result<Box<dyn VersionedLoad>, ServerError> {
        Ok(Box::new(self.part.begin_load(pairs)?))
    }

    fn want_training(&self) {
        self.part.want_training();
    }

    fn wants_training(&self) -> bool {
        self.part.wants_training()
    }
}
