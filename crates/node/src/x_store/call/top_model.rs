//! Top model: its words from some place on, as many as one reply carries.

use crate::engine::{Call, Executed};
use crate::x_store::Part;
use farsight_index::LeafFormat;

impl<F: LeafFormat> Part<F> {
    pub(super) fn top_model(&self, first_word: u32, call: &mut Call<'_, '_>) -> Executed {
        let Some(model) = self.models.current() else {
            call.answer.set(0, 0);
            return Executed::default();
        };
        let words = model.top_words();
        let wanted = words.get(first_word as usize..).unwrap_or(&[]);
        let fitting = call.room_bytes() / 8;
        call.answer.push_words(wanted.iter().copied().take(fitting));
        call.answer.set(words.len() as u32, model.generation());
        Executed::default()
    }
}
