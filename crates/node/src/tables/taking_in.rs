//! Tables of a node that takes the place of a lost one, and of the nodes whose pool takes one in.

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_protocol::{Blocks, ErrorCode, PoolPlace, ServerError, TableId, TableLayout};

use super::drop::withdraw;
use super::{Catalogue, Tables, lock};
use crate::Listeners;
use crate::table::Table;

impl Tables {
    /// Begins empty at this place, which a lost node had. What an earlier attempt brought goes.
    pub(crate) fn receive(
        &self,
        listeners: &Listeners,
        place: PoolPlace,
        pool: Epoch,
    ) -> Result<(), ServerError> {
        if self.durable.is_some() {
            let text = "this node keeps its tables in a directory of data, and takes no lost node's place";
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        self.check_place(&place)?;
        if *self.pool.get_or_init(|| pool) != pool {
            let text = format!("this node was to be one of another pool than {pool}");
            return Err(ServerError::new(ErrorCode::OtherPool, text));
        }
        let _changing = lock(&self.changing);
        let mut left = Catalogue::default();
        self.change(|catalogue| std::mem::swap(catalogue, &mut left));
        self.set_place(Some(place));
        for table in left.by_id.into_values() {
            withdraw(listeners, table);
        }
        Ok(())
    }

    /// Makes a table that the pool has, which its maker has numbered.
    pub(crate) fn receive_table(
        &self,
        listeners: &Listeners,
        id: TableId,
        layout: TableLayout,
    ) -> Result<Arc<Table>, ServerError> {
        layout.definition.check_names()?;
        self.check_memory(&layout)?;
        let _changing = lock(&self.changing);
        let Some(place) = self.place() else {
            let text = "this node takes nobody's place yet";
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        };
        if let Some(table) = self.read().by_id.get(&id) {
            let text = format!("table {:?} has number {} here already", table.name(), id.0);
            return Err(ServerError::new(ErrorCode::TableExists, text));
        }
        let hosting = self.hosting(&layout, &place)?;
        self.make(listeners, &hosting, layout, (*place).clone(), id, |_, _| Ok(()))
    }

    /// Makes no table of a number below `next` from now on: the pool has had those. All others that it has
    /// lost their part with the node that was lost; their numbers are `left`.
    pub(crate) fn end_receiving(&self, next: u32, left: &[TableId]) {
        let _changing = lock(&self.changing);
        let is_coordinator = self.place().is_some_and(|place| place.index == 0);
        self.change(|catalogue| {
            let mut first = 0;
            let numbers: Vec<u32> = catalogue.by_id.keys().map(|id| id.0).collect();
            for number in numbers.into_iter().chain(std::iter::once(next)) {
                if number > first {
                    catalogue.forgotten.insert(Blocks { first, count: number - first }, ());
                }
                first = number + 1;
            }
            catalogue.next_id = catalogue.next_id.max(next);
            if is_coordinator {
                // No name leads to them any more. The others are told with the next change.
                catalogue.dropped.extend(left);
            }
        });
    }

    /// A number above that of any table that there is, or was.
    pub(crate) fn next_table(&self) -> u32 {
        let catalogue = self.read();
        let there = catalogue.by_id.keys().next_back().map_or(0, |id| id.0 + 1);
        let forgotten = catalogue.forgotten.iter().last();
        let gone = forgotten.map_or(0, |(run, ())| run.first.saturating_add(run.count));
        catalogue.next_id.max(there).max(gone)
    }

    /// Has another list of nodes, in which one is new. Names stay where they led, for who asks by the former
    /// list: it learns of the new one from the table.
    pub(crate) fn take_in(&self, place: PoolPlace) {
        let _changing = lock(&self.changing);
        self.all().iter().for_each(|table| table.take_in(&place));
        self.set_place(Some(place));
    }
}
