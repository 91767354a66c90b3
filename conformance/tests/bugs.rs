//! A server that meets a bug in a call: what clients are told of that call, and of those after it.

use std::sync::Arc;

use farsight::{EngineError, Options, ReadError, WriteError, WriteOperation};
use farsight_base::ClientId;
use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_conformance::engine::harness::{Directory, connect};
use farsight_fabric::{Answer, CallHandler, ServerPort, Ticket};
use farsight_fabric_shm::{ListenOptions, ShmHost};
use farsight_index_xstore::client::XStoreError;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Failure, Listeners, Service, Threads, answer};
use farsight_node::{NodeOptions, NodeState};
use farsight_protocol::{ErrorCode, Request};

const TABLE_BYTES: u64 = 8 << 20;
const BUG: &str = "no leaf 7";

/// A server with a bug, in writes, once it is armed.
struct Buggy {
    state: Arc<NodeState>,
    is_armed: AtomicBool,
}

/// What executes its calls.
struct Calls {
    server: Arc<Buggy>,
    inner: farsight_node::Calls,
}

impl Service for Buggy {
    type Calls = Calls;

    fn listeners(&self) -> &Listeners {
        self.state.listeners()
    }

    fn failure(&self) -> &Arc<Failure> {
        Service::failure(&*self.state)
    }

    fn calls(self: &Arc<Self>, listener: usize, name: &str) -> Calls {
        Calls { server: Arc::clone(self), inner: self.state.calls(listener, name) }
    }

    fn note_departed(&self, clients: Vec<ClientId>) {
        self.state.note_departed(clients);
    }
}

impl CallHandler for Calls {
    /// The panic comes when the write is done: nobody but this test can know that it is.
    fn handle(&mut self, client: ClientId, ticket: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let when = self.inner.handle(client, ticket, request, reply);
        let is_write = matches!(Request::decode(request), Ok(Request::Write { .. }));
        // Relaxed: the flag carries nothing with it.
        if is_write && self.server.is_armed.swap(false, Ordering::Relaxed) {
            let limit_bytes = self.server.listeners().get(0).message_bytes_max();
            answer(Service::failure(&*self.server), "worker 0", limit_bytes, reply, |_| panic!("{BUG}"));
        }
        when
    }
}

impl farsight_node::Executor for Calls {
    fn begin(&mut self, now: MonotonicNs) {
        self.inner.begin(now);
    }

    fn finish_late(&mut self, port: &mut dyn ServerPort) -> usize {
        self.inner.finish_late(port)
    }

    fn end(&mut self, port: &mut dyn ServerPort, served: usize) -> usize {
        self.inner.end(port, served)
    }

    fn has_late(&self) -> bool {
        self.inner.has_late()
    }
}

#[test]
fn the_write_that_met_a_bug_is_indeterminate_and_later_ones_are_refused() {
    let directory = Directory::new();
    let socket = directory.file("socket");
    let host = Arc::new(ShmHost::listen(&socket, ListenOptions::new(FORMAT_VERSION)).expect("a server"));
    let clock = SystemClock::new();
    let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
    let state = NodeState::new(vec![host.clone()], &options, clock.now()).expect("a server");
    let server = Arc::new(Buggy { state, is_armed: AtomicBool::new(false) });
    let mut threads = Threads::new(Arc::clone(Service::failure(&*server)), move || {
        farsight_fabric::Host::wake(&*host);
    });
    threads.serve(&server, 1, &clock).expect("threads");

    let table = connect(&socket).create_table::<u64>("t", 8).expect("a table");
    let mut session = table.session(Options::default()).expect("a session");
    session.put(1, b"before..").expect("a put");
    let mut by_calls = table.session(Options { access: farsight::Access::Rpc }).expect("a session");
    server.is_armed.store(true, Ordering::Relaxed);
    let error = session.put(2, b"the bug.").expect_err("the server met a bug");
    let WriteError::Indeterminate { operation: WriteOperation::Put, entries: 1, source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(code_of(source), ErrorCode::Bug);
    assert!(source.to_string().contains(BUG), "{source}");
    // It was executed: to call it refused would have been a lie.
    let pairs = || server.state.stats(clock.now()).tables[0].part().tree.pairs;
    assert_eq!(pairs(), 2);

    let error = session.put(3, b"after...").expect_err("the server refuses");
    let WriteError::Engine { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(code_of(source), ErrorCode::OutOfResources);
    assert_eq!(pairs(), 2, "what is refused is not executed");
    assert!(matches!(by_calls.get(1), Err(ReadError::Engine { .. })));
    let opened = table.session(Options::default()).err().expect("nobody says where the name leads");
    assert!(farsight::with_causes(&opened).contains(BUG), "{opened:?}");
}

fn code_of(error: &EngineError) -> ErrorCode {
    let Some(XStoreError::Server(refusal)) = error.of() else { panic!("{error:?}") };
    refusal.code
}
