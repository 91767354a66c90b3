//! Sub-models: consecutive ones with their table entries, as many as wanted and as one reply carries.

use farsight_protocol::{ReplyWriter, ServerError, TableId};

use super::{Calls, sub_model_bytes};

/// How far ahead of their sending sub-models are asked for.
const PREFETCHED: usize = 8;

impl Calls {
    pub(super) fn sub_models(
        &mut self,
        table: TableId,
        first: u32,
        limit: u8,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        let Some(model) = table.model() else {
            answer.set(0, 0);
            return Ok(0);
        };
        let limit = if limit == 0 { usize::MAX } else { usize::from(limit) };
        let mut sent = 0;
        for index in (first..model.sub_model_count()).take(limit.min(PREFETCHED)) {
            model.prefetch_sub_model(index);
        }
        for index in (first..model.sub_model_count()).take(limit) {
            model.prefetch_sub_model(index + PREFETCHED as u32);
            let image = model.sub_model(index);
            if sub_model_bytes(&image) > self.room_bytes(answer) {
                break;
            }
            answer.push_sub_model(index, &image.record, &image.entries);
            sent += 1;
        }
        answer.set(sent, model.generation());
        Ok(0)
    }
}
