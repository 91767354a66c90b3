//! One client program: a connection and a cache that its sessions share.
//!
//! Invariant: at most one of the program's processes opens a connection at a time; the others wait for it.
//! No lock is held while time passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_client::Table;
use farsight_fabric_sim::{Kind, SimConnection, Simulation};

use crate::client::{End, end_of_connecting, end_of_opening};
use crate::journal::Journal;
use crate::node::connect;

/// Between two looks at a connection that another process is opening.
const LOOK_AGAIN: Duration = Duration::from_micros(3);
/// Looks, after which opening hangs.
const LOOKS_MAX: usize = 1 << 20;

/// A program of a scenario, by its number and what its processes share.
pub(crate) struct Program<K: Kind> {
    /// Its group in the simulation.
    pub(crate) group: usize,
    connection: Mutex<Opened<K>>,
}

enum Opened<K: Kind> {
    Nothing,
    ByAnother,
    Open { number: u64, table: Table<SimConnection<K>> },
}

/// The programs of a scenario that have started; one that was killed has a successor.
pub(crate) struct Programs<K: Kind>(Mutex<Vec<Arc<Program<K>>>>);

impl<K: Kind> Default for Programs<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Kind> Programs<K> {
    /// The program of this number, started if need be.
    pub(crate) fn get(&self, group: usize) -> Arc<Program<K>> {
        let mut programs = lock(&self.0);
        if let Some(program) = programs.iter().find(|program| program.group == group) {
            return Arc::clone(program);
        }
        programs.push(Arc::new(Program { group, connection: Mutex::new(Opened::Nothing) }));
        Arc::clone(programs.last().expect("just pushed"))
    }

    /// Closes every program's connection.
    pub(crate) fn close(&self) {
        let programs = std::mem::take(&mut *lock(&self.0));
        drop(programs);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Kind> Program<K> {
    /// The table over a connection later than number `broken`, and that connection's number.
    pub(crate) fn table(
        &self,
        simulation: &Simulation,
        journal: &Journal,
        (address, name): (&str, &str),
        broken: u64,
    ) -> Result<(u64, Table<SimConnection<K>>), End> {
        for _ in 0..LOOKS_MAX {
            {
                let mut opened = lock(&self.connection);
                match &*opened {
                    Opened::Open { number, table } if *number > broken => {
                        return Ok((*number, table.clone()));
                    }
                    Opened::Nothing | Opened::Open { .. } => {
                        *opened = Opened::ByAnother;
                        break;
                    }
                    Opened::ByAnother => {}
                }
            }
            if simulation.is_killed() {
                return Err(End::Lost);
            }
            simulation.sleep(LOOK_AGAIN);
        }
        let made = connect::<K>(simulation, address).map_err(|error| end_of_connecting(journal, &error));
        let made =
            made.and_then(|client| client.open_table(name).map_err(|error| end_of_opening(journal, &error)));
        let mut opened = lock(&self.connection);
        match made {
            Ok(table) => {
                *opened = Opened::Open { number: broken + 1, table: table.clone() };
                Ok((broken + 1, table))
            }
            Err(end) => {
                *opened = Opened::Nothing;
                Err(end)
            }
        }
    }
}
