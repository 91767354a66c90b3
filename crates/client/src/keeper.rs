//! Who hears which of the values that a process keeps count no more.
//!
//! Invariant: it keeps neither the client nor its connections alive for longer than [`ATTENDED`]. It follows
//! its table's name as sessions do: to the backend that the client has now.

use std::sync::{Arc, Weak};
use std::time::Duration;

use farsight_base::clock::Clock;
use farsight_protocol::TableId;

use crate::backend::Backend;
use crate::engine::AwaitRecalls;
use crate::reconnect::Shared;

/// How long it waits before it looks whether it is needed yet.
const ATTENDED: Duration = Duration::from_millis(100);
/// How long it waits where there is nobody to hear.
const PAUSE: Duration = Duration::from_millis(20);

/// Hears what one node recalls of a table.
pub struct Keeper {
    shared: Weak<Shared>,
    table: String,
    node: usize,
    clock: Arc<dyn Clock>,
}

/// The way to a node's recalls, in one epoch.
struct Listening {
    backend: Weak<dyn Backend>,
    table: TableId,
    recalls: Box<dyn AwaitRecalls>,
}

impl Keeper {
    pub(crate) fn new(shared: Weak<Shared>, table: &str, node: usize, clock: Arc<dyn Clock>) -> Self {
        Self { shared, table: table.to_owned(), node, clock }
    }

    /// Hears, as long as the client is there and it `goes_on`.
    pub fn run(self, goes_on: impl Fn() -> bool) {
        let mut way: Option<Listening> = None;
        while goes_on() {
            let Some(shared) = self.shared.upgrade() else { return };
            way = self.current(&shared, way);
            drop(shared);
            let Some(current) = &mut way else {
                self.clock.sleep(PAUSE);
                continue;
            };
            // While something comes nothing else is looked at.
            let attended = loop {
                match current.recalls.attend(ATTENDED) {
                    Ok(true) if goes_on() => {}
                    other => break other,
                }
            };
            if attended.is_err() {
                way = None;
                self.clock.sleep(PAUSE);
            }
        }
    }

    /// The way in the epoch of now, if there is one.
    fn current(&self, shared: &Shared, known: Option<Listening>) -> Option<Listening> {
        let backend = shared.current();
        let open = Arc::clone(&backend).opened(&self.table)?;
        let table = open.info().id;
        let is_it = |way: &Listening| std::ptr::addr_eq(way.backend.as_ptr(), Arc::as_ptr(&backend));
        if let Some(way) = known.filter(|way| is_it(way) && way.table == table) {
            return Some(way);
        }
        // Whatever is wrong sessions tell.
        let recalls = open.recalls(self.node).ok()??;
        Some(Listening { backend: Arc::downgrade(&backend), table, recalls })
    }
}
