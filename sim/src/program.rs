//! One client program: a connection and a cache that its sessions share.
//!
//! Invariant: one of the program's processes opens the table; the others wait for it. No lock is held while
//! time passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_client::Table;

/// Between the first two looks at what another process is doing; it doubles.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_micros(3);
/// The longest pause between two looks: who opens a table may wait for seconds.
pub(crate) const LOOK_AGAIN_MAX: Duration = Duration::from_millis(1);

/// A program of a scenario.
pub(crate) struct Program {
    group: usize,
    state: Mutex<State>,
}

struct State {
    table: Opened,
    /// Counts the openings of the table.
    openings: u64,
}

pub(crate) enum Opened {
    /// Not yet: a program that sees this opens it.
    Nothing,
    ByAnother,
    /// Here it is, and which opening that was.
    Open(Table, u64),
}

/// The programs of a scenario that have started; one that was killed has a successor.
#[derive(Default)]
pub(crate) struct Programs {
    started: Mutex<Vec<Arc<Program>>>,
    /// No process has work left.
    are_done: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Programs {
    /// The program that is this group in the simulation; started if need be.
    pub(crate) fn get(&self, group: usize) -> Arc<Program> {
        let mut programs = lock(&self.started);
        if let Some(program) = programs.iter().find(|program| program.group == group) {
            return Arc::clone(program);
        }
        let state = State { table: Opened::Nothing, openings: 0 };
        programs.push(Arc::new(Program { group, state: Mutex::new(state) }));
        Arc::clone(programs.last().expect("just pushed"))
    }

    /// Forgets a program: its connection ends with the last of its sessions.
    pub(crate) fn leave(&self, group: usize) {
        let mut programs = lock(&self.started);
        let known = programs.iter().position(|program| program.group == group);
        let left = known.map(|index| programs.swap_remove(index));
        drop(programs);
        drop(left);
    }

    /// Notes that no process has work left.
    pub(crate) fn end_work(&self) {
        // Relaxed, here and below: all of it happens on one thread.
        self.are_done.store(true, Ordering::Relaxed);
    }

    /// True until then.
    pub(crate) fn have_work(&self) -> bool {
        !self.are_done.load(Ordering::Relaxed)
    }

    /// Closes every program's connection.
    pub(crate) fn close(&self) {
        let programs = std::mem::take(&mut *lock(&self.started));
        drop(programs);
    }
}

impl Program {
    /// The table, or who is to open it: the caller, if nobody is at it.
    pub(crate) fn table(&self) -> Opened {
        let mut state = lock(&self.state);
        match &state.table {
            Opened::Open(open, opening) => Opened::Open(open.clone(), *opening),
            Opened::ByAnother => Opened::ByAnother,
            Opened::Nothing => {
                state.table = Opened::ByAnother;
                Opened::Nothing
            }
        }
    }

    /// Puts the table there, or lets another try. Returns which opening this was.
    pub(crate) fn set_table(&self, table: Option<Table>) -> u64 {
        let mut state = lock(&self.state);
        state.openings += 1;
        let opening = state.openings;
        state.table = table.map_or(Opened::Nothing, |table| Opened::Open(table, opening));
        opening
    }

    /// Gives a table up whose connection nobody wants any more, unless another one is there already.
    pub(crate) fn close(&self, opening: u64) {
        let mut state = lock(&self.state);
        let is_known = matches!(state.table, Opened::Open(_, known) if known == opening);
        let closed = is_known.then(|| std::mem::replace(&mut state.table, Opened::Nothing));
        drop(state);
        // Its end talks to the simulation.
        drop(closed);
    }
}
