//! Get: values of keys, by the tree.

use farsight_protocol::{ErrorCode, ReplyWriter, ServerError, TableId, Words, padded};

use super::Calls;

impl Calls {
    pub(super) fn get(
        &mut self,
        table: TableId,
        keys: Words<'_>,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        let fitting = self.room_bytes(answer) / (8 + padded(table.value_bytes()));
        if keys.len() > fitting {
            let text = format!(
                "a reply carries {fitting} values of {} B, {} were asked for: send fewer keys a call",
                table.value_bytes(),
                keys.len()
            );
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        self.keys.clear();
        self.keys.extend(keys.iter());
        table.get_many(&self.keys, &mut self.answers)?;
        self.value.clear();
        self.value.resize(table.value_bytes(), 0);
        for found in self.answers.iter() {
            let (value, version) = found.unwrap_or((&self.value, 0));
            answer.push_value(version, value);
        }
        answer.set(keys.len() as u32, 0);
        Ok(keys.len() as u64)
    }
}
