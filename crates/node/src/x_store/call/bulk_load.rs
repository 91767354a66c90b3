//! Bulk load: one piece of ascending pairs; the last makes the table visible and has it trained.

use farsight_index::LeafFormat;
use farsight_protocol::ServerError;

use crate::bulk_load::Piece;
use crate::engine::{Call, Executed};
use crate::x_store::Part;

impl<F: LeafFormat> Part<F> {
    pub(in super::super) fn bulk_load(
        &self,
        piece: Piece<'_>,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let loaded = self.loading.take(&self.name, call.client, piece, || self.begin_load(None))?;
        call.answer.set(piece.pairs(), loaded);
        if piece.last {
            self.want_training();
        }
        Ok(Executed { operations: piece.pairs().into(), wakes_background: piece.last })
    }
}
