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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::{Listener, ServerPort, Ticket};
use farsight_protocol::{ErrorCode, HEADER_BYTES, ReplyWriter, ServerError};

use crate::authors::Noting;

/// What a call that nobody answers any more is refused with.
const LET_GO: &str = "the table let go of this call before it answered: nobody knows how far it came";
/// Bytes of the reply that says so, or more.
const LET_GO_BYTES: usize = 128;

/// The replies that go to one worker.
pub(crate) struct LateReplies {
    sent: Mutex<Sent>,
    /// True while there are any: lets the worker pass by the lock.
    is_any: AtomicBool,
    listener: Arc<dyn Listener>,
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
        Arc::new(Self { sent: Mutex::default(), is_any: AtomicBool::new(false), listener })
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
        let mut sent = self.lock();
        let wakes = sent.replies.is_empty() && !sent.is_awake;
        sent.replies.push((ticket, reply));
        // Release: the reply comes first. Partner: the Acquire load in `is_any`.
        self.is_any.store(true, Ordering::Release);
        drop(sent);
        // Whoever sent the first one wakes the worker, which takes all.
        if wakes {
            self.listener.wake_ports();
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
            ReplyWriter::new(&mut reply).refuse(&ServerError::new(ErrorCode::Bug, LET_GO.to_owned()));
            self.push(reply);
        }
    }
}
