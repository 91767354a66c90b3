//! The thread that executes the requests of a table's futures.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use farsight_client::Session;

use super::held_key::HeldKey;
use super::round::Round;
use super::shared::{Next, Shared};

/// How long the driver polls for requests before it sleeps. That is about the time in which woken tasks send
/// the next ones. It is far less than it takes to fall asleep and be woken a thousand times a second.
const LOOKING_MAX: Duration = Duration::from_micros(50);
/// How long none must arrive before what has arrived is executed, and how long that goes on at most.
const PAUSE_MAX: Duration = Duration::from_micros(1);
const GATHERING_MAX: Duration = Duration::from_micros(30);
/// Looks between two at the clock.
const LOOKS: usize = 32;

/// Drives `session` for the futures that `shared` knows, until the table is closed.
pub(super) fn run<H: HeldKey>(shared: &Arc<Shared<H>>, mut session: Session, table: String) {
    let mut guard = TellsOnPanic { shared, wakers: Vec::new() };
    let mut round = Round::new(table, session.table().values());
    loop {
        match shared.begin(&mut round) {
            Next::Execute => {
                gather(shared, &mut round);
                round.execute(&mut session);
                shared.deliver(&mut round, &mut guard.wakers, session.counters(), session.meters());
            }
            Next::Sleep if finds_requests(shared, LOOKING_MAX) => {}
            Next::Sleep => shared.sleep(),
            Next::End => break,
        }
    }
}

/// Takes what arrives while requests keep arriving: tasks that were woken together come back together, and
/// one batch serves all of them.
fn gather<H: HeldKey>(shared: &Shared<H>, round: &mut Round<H>) {
    let begun = Instant::now();
    while begun.elapsed() < GATHERING_MAX && finds_requests(shared, PAUSE_MAX) && shared.take(round) {}
}

/// Looks for requests that long. True if there may be one.
fn finds_requests<H: HeldKey>(shared: &Shared<H>, limit: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        for _ in 0..LOOKS {
            if shared.is_waiting() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}

/// Lets no future wait for a driver that has panicked.
struct TellsOnPanic<'a, H: HeldKey> {
    shared: &'a Shared<H>,
    /// Of futures that were answered and not woken yet.
    wakers: Vec<Waker>,
}

impl<H: HeldKey> Drop for TellsOnPanic<'_, H> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.driver_is_gone();
            self.wakers.drain(..).for_each(Waker::wake);
        }
    }
}
