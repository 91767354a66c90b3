//! The name of a table, which may change while the table is used.

use std::fmt;
use std::sync::{PoisonError, RwLock};

/// A name that a table and what belongs to it share.
pub struct TableName(RwLock<String>);

impl TableName {
    pub(crate) fn new(name: &str) -> Self {
        Self(RwLock::new(name.to_owned()))
    }

    /// The name now.
    #[must_use]
    pub fn get(&self) -> String {
        // One assignment is all that is done under it.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the table another name.
    pub(crate) fn set(&self, name: &str) {
        name.clone_into(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for TableName {
    /// Quoted, as errors show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}
