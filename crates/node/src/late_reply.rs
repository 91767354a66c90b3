//! Calls that an engine answers later: what it keeps of each, and the worker to which the reply goes.
//!
//! Invariant: a call that was put off gets one reply: what stood in its answer then, or a refusal if the
//! engine lets go of it. A client that has ended gets none; if its call may be repeated, the reply is noted.
//!
//! Protocol:
//! 1. While it executes a call, the engine writes the answer and puts it off ([`Call::answer_later`]).
//! 2. The port parks the call. The worker goes on with others.
//! 3. Any thread sends the [`LateReply`]. It joins the worker's queue. Then the worker is woken, unless it is
//!    in a step, at whose end it looks at its queue.
//! 4. The worker finishes the call by its ticket in this step or the next. It looks at its queue again before
//!    it sleeps, because a step may take the wake and see no reply.
//!
//! Bounds: each fabric bounds the calls that a client has parked, and so the replies that wait.

use std::sync::{Arc, PoisonError};

use farsight_base::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use farsight_fabric::{Listener, ServerPort, Ticket};
use farsight_protocol::{CallId, ErrorCode, HEADER_BYTES, ReplyWriter, ServerError};

use crate::authors::Noting;
#[cfg(any(loom, shuttle))]
use crate::injected;

/// What a call that nobody answers any more is refused with.
const LET_GO: &str = "the table let go of this call before it answered: nobody knows how far it came";
/// Bytes of the reply that says so, or more.
const LET_GO_BYTES: usize = 128;

/// The replies that go to one worker.
pub(crate) struct LateReplies {
    sent: Mutex<Sent>,
    /// True while there are any: lets the worker pass by the lock.
    is_any: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// What was sent.
#[derive(Default)]
struct Sent {
    replies: Vec<(Ticket, Vec<u8>)>,
    /// The worker is in a step, and looks here at its end.
    is_awake: bool,
}

impl LateReplies {
    /// None yet; the worker is one of this listener's.
    pub(crate) fn new(listener: Arc<dyn Listener>) -> Arc<Self> {
        Self::waking(move || listener.wake_ports())
    }

    /// The same of a worker that is woken so.
    fn waking(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            sent: Mutex::new(Sent::default()),
            is_any: AtomicBool::new(false),
            wake: Box::new(wake),
        })
    }

    /// True if a reply waits for the worker.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        // Acquire: the reply is seen. Partner: the Release store in `push`.
        self.is_any.load(Ordering::Acquire)
    }

    /// Finishes the calls whose replies wait. Returns how many these were.
    #[inline]
    pub(crate) fn finish(&self, port: &mut dyn ServerPort) -> usize {
        if self.is_any() { self.finish_all(port) } else { 0 }
    }

    #[cold]
    fn finish_all(&self, port: &mut dyn ServerPort) -> usize {
        let sent = {
            let mut sent = self.lock();
            // Relaxed: ordered by the lock, under which it is set.
            self.is_any.store(false, Ordering::Relaxed);
            std::mem::take(&mut sent.replies)
        };
        for (ticket, reply) in &sent {
            // A client that has left misses its reply.
            port.finish(*ticket, reply);
        }
        sent.len()
    }

    fn push(&self, ticket: Ticket, reply: Vec<u8>) {
        #[cfg(any(loom, shuttle))]
        if injected::WOKEN_BEFORE_REPLY.is_injected() {
            (self.wake)();
        }
        let mut sent = self.lock();
        let wakes = sent.replies.is_empty() && !sent.is_awake;
        sent.replies.push((ticket, reply));
        // Release: the reply comes first. Partner: the Acquire load in `is_any`.
        self.is_any.store(true, Ordering::Release);
        drop(sent);
        // Whoever sent the first one wakes the worker, which takes all.
        #[cfg(any(loom, shuttle))]
        let wakes = wakes && !injected::WOKEN_BEFORE_REPLY.is_injected();
        if wakes {
            (self.wake)();
        }
    }

    /// The worker begins a step: until its end nobody needs to wake it.
    pub(crate) fn begin_step(&self) {
        self.lock().is_awake = true;
    }

    /// The worker ends a step. True if replies wait, for which nobody will wake it.
    pub(crate) fn end_step(&self) -> bool {
        let mut sent = self.lock();
        sent.is_awake = false;
        !sent.replies.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        // A push or a take is never half done.
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply of a call that is answered later. Dropped, it refuses the call.
pub struct LateReply {
    ticket: Ticket,
    /// `None` once it was sent.
    reply: Option<Vec<u8>>,
    bytes_max: usize,
    worker: Arc<LateReplies>,
    noting: Option<Noting>,
}

impl LateReply {
    pub(crate) fn new(
        ticket: Ticket,
        reply: Vec<u8>,
        worker: Arc<LateReplies>,
        noting: Option<Noting>,
    ) -> Self {
        let bytes_max = reply.len().max(LET_GO_BYTES);
        Self { ticket, reply: Some(reply), bytes_max, worker, noting }
    }

    fn push(&self, reply: Vec<u8>) {
        if let Some(noting) = &self.noting {
            noting.note(&reply);
        }
        self.worker.push(self.ticket, reply);
    }

    /// Which call it is, if that may be repeated.
    pub(crate) fn call_id(&self) -> Option<CallId> {
        self.noting.as_ref().map(Noting::id)
    }

    /// The log has this reply, as long as the call is not refused.
    pub(crate) fn set_logged(&mut self) {
        self.noting.iter_mut().for_each(|noting| noting.set_logged(true));
    }

    /// What the call is answered by as it stands there now.
    pub(crate) fn written(&self) -> &[u8] {
        self.reply.as_deref().unwrap_or_default()
    }

    /// Bytes that the call is answered by at most.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Answers the call.
    pub fn send(mut self) {
        if let Some(reply) = self.reply.take() {
            self.push(reply);
        }
    }

    /// Puts what `write` writes in the place of what was put off. It is no longer than that.
    pub fn write(&mut self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        if let Some(reply) = &mut self.reply {
            write(&mut ReplyWriter::new(reply));
        }
    }

    /// Answers the call by what `write` writes, instead of what was put off. It is no longer than that.
    pub fn answer(mut self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        self.write(write);
        self.send();
    }

    /// Refuses the call. The words are cut where what was put off is shorter.
    pub fn refuse(mut self, error: &ServerError) {
        self.noting.iter_mut().for_each(|noting| noting.set_logged(false));
        if let Some(reply) = &mut self.reply {
            let room_bytes = self.bytes_max - HEADER_BYTES;
            let end =
                (0..=room_bytes.min(error.text.len())).rev().find(|end| error.text.is_char_boundary(*end));
            let text = &error.text[..end.unwrap_or(0)];
            ReplyWriter::new(reply).refuse(&ServerError::new(error.code, text));
        }
        self.send();
    }
}

impl Drop for LateReply {
    fn drop(&mut self) {
        if let Some(mut reply) = self.reply.take() {
            self.noting.iter_mut().for_each(|noting| noting.set_logged(false));
            ReplyWriter::new(&mut reply).refuse(&ServerError::new(ErrorCode::Bug, LET_GO.to_owned()));
            self.push(reply);
        }
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod models {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use farsight_base::injection::assert_found;
    use farsight_base::sync::model::{WakeUp, check, thread};
    use farsight_fabric::{CallHandler, Parked};

    use super::*;

    /// A port that has parked calls, each known by the only reply that may answer it.
    #[derive(Default)]
    struct Port {
        parked: Parked<&'static str>,
        answered: BTreeMap<&'static str, usize>,
    }

    impl Port {
        /// Takes a call, which an engine answers later.
        fn park(&mut self, worker: &Arc<LateReplies>, call: &'static str) -> LateReply {
            let ticket = self.parked.give_ticket();
            self.parked.park(ticket, call);
            LateReply::new(ticket, call.as_bytes().to_vec(), Arc::clone(worker), None)
        }

        /// Takes a call that an engine puts off and then fails in: it is answered at once.
        fn fail(&mut self, worker: &Arc<LateReplies>, call: &'static str) -> LateReply {
            let ticket = self.parked.give_ticket();
            LateReply::new(ticket, call.as_bytes().to_vec(), Arc::clone(worker), None)
        }
    }

    impl ServerPort for Port {
        fn serve(&mut self, _: usize, _: &mut dyn CallHandler) -> usize {
            0
        }

        fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool {
            let Some(call) = self.parked.take(ticket) else { return false };
            assert_eq!(call.as_bytes(), reply, "a call gets the reply of another one");
            *self.answered.entry(call).or_default() += 1;
            true
        }

        fn wait(&mut self, _: Duration) {}
    }

    /// Steps of the worker until no call is parked; between two of them it sleeps as a worker does.
    fn serve_all(port: &mut Port, worker: &LateReplies, woken: &WakeUp) {
        loop {
            worker.begin_step();
            worker.finish(port);
            worker.end_step();
            if port.parked.is_empty() {
                return;
            }
            if !worker.is_any() {
                woken.wait();
            }
        }
    }

    fn worker() -> (Arc<LateReplies>, Arc<WakeUp>) {
        let woken = Arc::new(WakeUp::new());
        let waker = Arc::clone(&woken);
        (LateReplies::waking(move || waker.send()), woken)
    }

    /// Two threads answer two calls. The client of one leaves, and a newcomer's call takes its place.
    fn the_next_owner_of_a_place_gets_its_own_reply() {
        let (worker, woken) = worker();
        let mut port = Port::default();
        let [gone, other] = ["gone", "other"].map(|call| port.park(&worker, call));
        let answering = thread::spawn(move || gone.send());
        worker.finish(&mut port);
        port.parked.forget(|call| *call == "gone");
        let newcomer = port.park(&worker, "newcomer");
        let answering_others = thread::spawn(move || {
            other.send();
            newcomer.send();
        });
        serve_all(&mut port, &worker, &woken);
        answering.join().unwrap();
        answering_others.join().unwrap();
        worker.finish(&mut port);
        assert_eq!(port.answered.remove("other"), Some(1));
        assert_eq!(port.answered.remove("newcomer"), Some(1));
        assert!(port.answered.values().all(|count| *count == 1));
    }

    /// A call is put off and fails, and its reply comes all the same: while the next call is parked.
    fn a_reply_of_a_call_that_was_not_parked_answers_nobody() {
        let (worker, woken) = worker();
        let mut port = Port::default();
        let failed = port.fail(&worker, "failed");
        let late = thread::spawn(move || failed.send());
        let next = port.park(&worker, "next");
        let answering = thread::spawn(move || next.send());
        serve_all(&mut port, &worker, &woken);
        late.join().unwrap();
        answering.join().unwrap();
        worker.finish(&mut port);
        assert_eq!(port.answered, BTreeMap::from([("next", 1)]));
    }

    #[test]
    fn replies_find_their_calls() {
        check(2, the_next_owner_of_a_place_gets_its_own_reply);
    }

    #[test]
    fn replies_of_calls_that_failed_find_none() {
        check(2, a_reply_of_a_call_that_was_not_parked_answers_nobody);
    }

    #[test]
    fn a_ticket_by_its_place_alone_answers_another_call() {
        assert_found(&farsight_fabric::injected::TICKET_OUTLIVES_CLIENT, || {
            check(2, the_next_owner_of_a_place_gets_its_own_reply);
        });
    }

    #[test]
    fn a_ticket_that_is_given_twice_answers_another_call() {
        assert_found(&farsight_fabric::injected::TICKET_GIVEN_AGAIN, || {
            check(2, a_reply_of_a_call_that_was_not_parked_answers_nobody);
        });
    }

    #[test]
    fn a_wake_up_before_the_reply_is_too_early() {
        assert_found(&injected::WOKEN_BEFORE_REPLY, || {
            check(2, the_next_owner_of_a_place_gets_its_own_reply);
        });
    }
}
