//! One client program: a connection and a cache that its sessions share.
//!
//! Invariant: one of the program's processes opens the table; the others wait for it. No lock is held while
//! time passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_client::Table;
use farsight_fabric_sim::{Kind, SimConnection};

/// Between the first two looks at what another process is doing; it doubles.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_micros(3);
/// The longest pause between two looks: who opens a table may wait for seconds.
pub(crate) const LOOK_AGAIN_MAX: Duration = Duration::from_millis(1);

/// A program of a scenario.
pub(crate) struct Program<K: Kind> {
    group: usize,
    table: Mutex<Opened<K>>,
}

pub(crate) enum Opened<K: Kind> {
    /// Not yet: whoever sees this opens it.
    Nothing,
    ByAnother,
    Open(Table<SimConnection<K>>),
}

/// The programs of a scenario that have started; one that was killed has a successor.
pub(crate) struct Programs<K: Kind>(Mutex<Vec<Arc<Program<K>>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Kind> Default for Programs<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Kind> Programs<K> {
    /// The program that is this group in the simulation; started if need be.
    pub(crate) fn get(&self, group: usize) -> Arc<Program<K>> {
        let mut programs = lock(&self.0);
        if let Some(program) = programs.iter().find(|program| program.group == group) {
            return Arc::clone(program);
        }
        programs.push(Arc::new(Program { group, table: Mutex::new(Opened::Nothing) }));
        Arc::clone(programs.last().expect("just pushed"))
    }

    /// Closes every program's connection.
    pub(crate) fn close(&self) {
        let programs = std::mem::take(&mut *lock(&self.0));
        drop(programs);
    }
}

impl<K: Kind> Program<K> {
    /// The table, or who is to open it: the caller, if nobody is at it.
    pub(crate) fn table(&self) -> Opened<K> {
        let mut table = lock(&self.table);
        match &*table {
            Opened::Open(open) => Opened::Open(open.clone()),
            Opened::ByAnother => Opened::ByAnother,
            Opened::Nothing => {
                *table = Opened::ByAnother;
                Opened::Nothing
            }
        }
    }

    /// Puts the table there, or lets another try.
    pub(crate) fn set_table(&self, table: Opened<K>) {
        *lock(&self.table) = table;
    }
}
