//! Get: values of keys, by the tree.

use farsight_index::LeafFormat;
use farsight_protocol::{ServerError, Words};

use crate::engine::{Call, Executed};
use crate::x_store::Part;

impl<F: LeafFormat> Part<F> {
    pub(super) fn get(&self, keys: Words<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let scratch = &mut *call.scratch;
        scratch.keys.clear();
        scratch.keys.extend(keys.iter());
        let found = self.tree.get_many(&scratch.keys, &mut scratch.answers);
        found.map_err(|error| self.contended(&error))?;
        scratch.value.clear();
        scratch.value.resize(self.value_bytes, 0);
        for found in scratch.answers.iter() {
            let (value, version) = found.unwrap_or((&scratch.value, 0));
            call.answer.push_value(version, value);
        }
        call.answer.set(keys.len() as u32, 0);
        Ok(Executed::operations(keys.len() as u64))
    }
}
