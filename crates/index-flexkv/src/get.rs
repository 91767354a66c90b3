//! GETs, side by side.

use std::cell::RefCell;

use farsight_fabric::QueuePair;
use farsight_index::Answers;

use crate::look::{Looked, value_of};
use crate::{FlexError, FlexSession};

/// GETs side by side.
const GETS: usize = 64;

impl FlexSession {
    /// The values of `keys` into `answers`.
    ///
    /// # Errors
    /// [`FlexError`]; then `answers` is undefined.
    pub fn multi_get<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), FlexError> {
        let fixed_bytes = self.fixed_bytes();
        match fixed_bytes {
            Some(value_bytes) => answers.reset(keys.len(), value_bytes),
            None => answers.reset_any_length(keys.len()),
        }
        self.count(|counters| counters.gets += keys.len() as u64);
        let answers = RefCell::new(answers);
        let numbered = keys.iter().copied().enumerate();
        self.run(queues, GETS, numbered, &async |slot, (index, key): (usize, u64)| {
            let mut object = self.object_buffer();
            let Looked::Present { version, .. } = self.look(&slot, key, &mut object).await? else {
                return Ok(());
            };
            let (value, mut answers) = (value_of(&object), answers.borrow_mut());
            match fixed_bytes {
                None => answers.set_value(index, version, value),
                Some(value_bytes) => {
                    check_value(key, value, value_bytes)?;
                    answers.value_mut(index).copy_from_slice(value);
                    answers.set_version(index, version);
                }
            }
            Ok(())
        })
    }
}

/// Refuses a value of another size than the table's, which no compute node writes.
fn check_value(key: u64, value: &[u8], value_bytes: usize) -> Result<(), FlexError> {
    if value.len() == value_bytes {
        return Ok(());
    }
    Err(FlexError::Operand { key, got_bytes: value.len(), max_bytes: value_bytes })
}
