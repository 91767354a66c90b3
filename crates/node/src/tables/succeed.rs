//! A coordinator that is lost, and the node that takes its place.

use std::collections::HashMap;

use farsight_protocol::TableId;

use super::Tables;

impl Tables {
    /// Has names lead to the tables that have them, as far as this node has heard. A name that two of them
    /// have, because their change was not heard of whole, leads nowhere.
    pub(crate) fn succeed_coordinator(&self) {
        self.change(|catalogue| {
            let mut by_name: HashMap<String, Vec<TableId>> = HashMap::new();
            for (id, table) in &catalogue.by_id {
                by_name.entry(table.name().get()).or_default().push(*id);
            }
            let single = by_name.into_iter().filter(|(_, ids)| ids.len() == 1);
            catalogue.by_name = single.map(|(name, ids)| (name, ids[0])).collect();
        });
    }
}
