//! When the driver of an asynchronous table ends, and who is told if it ends early.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use farsight::{AsyncTable, Options};

use crate::server::TestServer;

/// More than any of these tests takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and its table; what the table's driver holds is the server's only client.
fn opened() -> (TestServer, AsyncTable<u64>) {
    let server = TestServer::start(1 << 20);
    let table = server.connect().create_table::<u64>("t", 8).expect("a table");
    let table = table.asynchronous(Options::default()).expect("a driver");
    (server, table)
}

fn await_no_client(server: &TestServer) {
    let begun = Instant::now();
    while server.server.stats().clients > 0 {
        assert!(begun.elapsed() < PATIENCE, "the driver lives on without a table");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_driver_ends_with_the_last_clone() {
    let (server, table) = opened();
    let clone = table.clone();
    drop(table);
    assert!(pollster::block_on(clone.get(1)).expect("a read succeeds").is_none());
    assert_eq!(server.server.stats().clients, 1, "the driver's session");
    drop(clone);
    await_no_client(&server);
}

/// A task's waker with a bug.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the test's panics, as it should");
    }
}

#[test]
fn no_future_waits_for_a_driver_that_panicked() {
    let (_server, table) = opened();
    let waker = Waker::from(Arc::new(Panics));
    let mut pending = Box::pin(table.get(1));
    assert!(pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // A future that waits when it happens is told, and so is one that comes later.
    for _ in 0..2 {
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
            loop {
                pollster::block_on(table.get(2)).expect("until the driver is gone it answers");
            }
        }));
        let payload = ended.expect_err("the loop ends by a panic");
        let text = payload.downcast_ref::<&str>().copied().unwrap_or_default();
        assert_eq!(text, "the driver of this table has panicked");
    }
    // What was answered before can still be dropped.
    drop(pending);
}

/// A task whose last handle is dropped by the thread that wakes it.
struct Owner(Mutex<Option<AsyncTable<u64>>>, mpsc::Sender<ThreadId>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("nobody panics").take());
        self.1.send(std::thread::current().id()).expect("the test listens");
    }
}

#[test]
fn the_driver_may_drop_the_last_clone_itself() {
    let (server, table) = opened();
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Owner(Mutex::new(Some(table.clone())), sender)));
    let mut pending = Box::pin(table.get(1));
    assert!(pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Forgotten, so that the driver has somebody to wake.
    std::mem::forget(pending);
    drop(table);
    drop(waker);
    let waker_thread = woken.recv_timeout(PATIENCE).expect("it is woken");
    assert_ne!(waker_thread, std::thread::current().id());
    await_no_client(&server);
}
