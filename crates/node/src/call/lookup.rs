//! Lookup, the fallback: a value, and the sub-model with the table entries that find it next time.

use farsight_protocol::{ReplyWriter, ServerError, TableId};

use super::{Calls, sub_model_bytes};

impl Calls {
    pub(super) fn lookup(
        &mut self,
        table: TableId,
        key: u64,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        self.value.clear();
        self.value.resize(table.value_bytes(), 0);
        let version = table.get(key, &mut self.value)?;
        answer.push_value(version.unwrap_or(0), &self.value);
        let Some(model) = table.model() else {
            answer.set(0, 0);
            return Ok(1);
        };
        let index = model.dispatch(key);
        let image = model.sub_model(index);
        let fits = sub_model_bytes(&image) <= self.room_bytes(answer);
        if fits {
            answer.push_sub_model(index, &image.record, &image.entries);
        }
        answer.set(u32::from(fits), model.generation());
        Ok(1)
    }
}
