//! Lookup, the fallback: a value, and what the client lacks of the model to find it next time.

use farsight_index::LeafFormat;
use farsight_protocol::ServerError;

use super::sub_models::send_slot;
use crate::engine::{Call, Executed};
use crate::x_store::Part;

impl<F: LeafFormat> Part<F> {
    pub(super) fn lookup(
        &self,
        key: u64,
        known: u32,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let value = &mut call.scratch.value;
        value.clear();
        value.resize(self.value_bytes, 0);
        let version = self.tree.get(key, value).map_err(|error| self.contended(&error))?;
        call.answer.push_value(version.unwrap_or(0), value);
        let Some(model) = self.models.current() else {
            call.answer.set(0, 0);
            return Ok(Executed::operations(1));
        };
        let path = model.path(key);
        let mut sent = send_slot(&model, path.sub_model, call);
        if path.sub_model != known {
            // What the client knows may be a branch by now: that, and all below it, is new.
            let new = path.branches.iter().position(|(number, _)| *number == known).unwrap_or(0);
            for (number, _) in path.branches[new..].iter().rev() {
                sent += send_slot(&model, *number, call);
            }
        }
        call.answer.set(sent, model.generation());
        Ok(Executed::operations(1))
    }
}
