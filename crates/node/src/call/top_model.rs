//! Top model: its words from some place on, as many as one reply carries.

use farsight_protocol::{ReplyWriter, ServerError, TableId};

use super::Calls;

impl Calls {
    pub(super) fn top_model(
        &mut self,
        table: TableId,
        first_word: u32,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        let Some(model) = table.model() else {
            answer.set(0, 0);
            return Ok(0);
        };
        let words = model.top_words();
        let wanted = words.get(first_word as usize..).unwrap_or(&[]);
        let fitting = self.room_bytes(answer) / 8;
        answer.push_words(wanted.iter().copied().take(fitting));
        answer.set(words.len() as u32, model.generation());
        Ok(0)
    }
}
