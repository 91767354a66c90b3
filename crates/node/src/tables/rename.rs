//! Other names for tables. What they hold, and their numbers, stay.

use farsight_protocol::{ErrorCode, ServerError, check_table_name};

use super::{Tables, lock};
use crate::Listeners;

impl Tables {
    /// Gives the table called `from` the name `to`.
    pub(crate) fn rename(&self, listeners: &Listeners, from: &str, to: &str) -> Result<(), ServerError> {
        check_table_name(to)?;
        let changing = lock(&self.changing);
        let table = self.open(from)?;
        if from != to && self.find(to).is_some() {
            let text =
                format!("table {from:?} cannot be called {to:?}: another table is. Drop it, or swap both");
            return Err(ServerError::new(ErrorCode::TableExists, text));
        }
        if let Some(durable) = &self.durable {
            durable.rename_tables(&[(table.id(), to)])?;
        }
        self.change(|catalogue| {
            table.name().set(to);
            catalogue.by_name.remove(from);
            catalogue.by_name.insert(to.to_owned(), table.id());
            catalogue.name_changes += 1;
        });
        self.tell_name_changes(listeners, &changing);
        Ok(())
    }

    /// Lets two tables exchange their names, at one instant.
    pub(crate) fn swap(&self, listeners: &Listeners, first: &str, second: &str) -> Result<(), ServerError> {
        let changing = lock(&self.changing);
        let (one, other) = (self.open(first)?, self.open(second)?);
        if let Some(durable) = &self.durable {
            durable.rename_tables(&[(one.id(), second), (other.id(), first)])?;
        }
        self.change(|catalogue| {
            one.name().set(second);
            other.name().set(first);
            catalogue.by_name.insert(first.to_owned(), other.id());
            catalogue.by_name.insert(second.to_owned(), one.id());
            catalogue.name_changes += 1;
        });
        self.tell_name_changes(listeners, &changing);
        Ok(())
    }
}
