//! Bulk load: one piece of ascending pairs; the last makes the table visible and has it trained.

use farsight_index::LeafFormat;
use farsight_protocol::ServerError;

use crate::bulk_load::Piece;
use crate::engine::{Call, Executed};
use crate::x_store::{Part, refused_load};

impl<F: LeafFormat> Part<F> {
    pub(super) fn bulk_load(
        &self,
        piece: Piece<'_>,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let begin = || self.tree.begin_bulk_load().map_err(|error| refused_load(&error));
        let loaded = self.loading.take(&self.name, call.client, piece, begin)?;
        call.answer.set(piece.entries.len() as u32, loaded);
        if piece.last {
            self.want_training();
        }
        Ok(Executed { operations: piece.entries.len() as u64, wakes_background: piece.last })
    }
}
