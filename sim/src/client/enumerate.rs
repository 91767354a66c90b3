//! Walks over all pairs of a table whose keys have no order. Each key is read by such a walk, found or not.

use std::collections::HashSet;

use farsight_client::PairsCursor;

use super::{Asked, Client, End};
use crate::cluster::Cluster;
use crate::store::Found;

impl<C: Cluster> Client<C> {
    /// Walks over all pairs. A key that does not come was absent at some moment between begin and end. One
    /// that comes had its value at some moment since its page was requested.
    pub(super) fn enumerate(&mut self) -> Result<(), End> {
        let mut cursor = PairsCursor::new(&self.store.session);
        let mut came = HashSet::new();
        let (walk_begin, mut page_begin) = (self.plan.journal.moment(), 0);
        loop {
            let reads = self.store.session.meters().reads;
            let mut pair = None;
            let asked = self.ask(|own| {
                pair = own.store.next_pair(&mut cursor)?;
                Ok(())
            })?;
            if self.store.session.meters().reads != reads {
                page_begin = asked.begin;
            }
            let Some(Found { key, value, version }) = pair else {
                let asked = Asked { begin: walk_begin, ..asked };
                let absent = self.plan.keys.iter().filter(|key| !came.contains(*key));
                absent.for_each(|key| self.note_read(*key, &asked, None));
                return Ok(());
            };
            let asked = Asked { begin: page_begin, ..asked };
            match key {
                Ok(key) if came.insert(key) => self.note_read(key, &asked, Some((&value, version))),
                Ok(key) => self.plan.journal.complain(format!("a walk over all pairs gave {key} twice")),
                Err(key) => {
                    let text = format!("a walk over all pairs gave the key {key:#x}, which is nobody's");
                    self.plan.journal.complain(text);
                }
            }
        }
    }
}
