//! One queue pair from the server's side: frames in, results out, and how far the batch at hand has come.
//!
//! Invariant: nothing executes but under the queue's gate. What a queue holds between visits is bounded: one
//! buffer of input that is not executed yet, one of output that the client has not read. While there is
//! output, the queue takes no input. A parked call keeps room for its reply behind that output.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use farsight_base::words::bytes_of;
use farsight_base::{ClientId, LINE_BYTES};
use farsight_fabric::{Answer, CallHandler, Parked, Parking, Reserved};
use farsight_fabric_host::{Gate, Gated, lock, os};

use crate::MESSAGE_BYTES_MAX;
use crate::execute::{Cursor, Progress};
use crate::frames::{Batch, FRAME_BYTES_MAX, HEADER_BYTES, Heading, first_frame, lines_of_bytes};
use crate::grants::Grants;
use crate::output::{OUTPUT_LINES, Output, REPLY_LINES_MAX};
use farsight_fabric_net::{Received, Stream};

/// Bytes taken from one queue before the next has its turn. Whatever a queue has left over from a visit, a
/// frame fits beside it.
const INPUT_BYTES: usize = 2 * FRAME_BYTES_MAX;
/// From so many lines on, a batch's results do not wait for those of the next: the client takes them
/// meanwhile.
const SENT_LINES_MIN: usize = 512;
/// A request from this length on takes so long that results gathered so far do not wait for its own.
const LONG_REQUEST_BYTES: usize = 1024;
/// Bytes of replies that a queue's parked calls keep room for, the next call's among them.
const PARKED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// Bytes that a queue may hold between two visits: input that is not executed, output that the client has not
/// read, and replies behind that.
pub(crate) const QUEUE_BYTES_MAX: usize = FRAME_BYTES_MAX + OUTPUT_LINES * LINE_BYTES + PARKED_BYTES_MAX;

/// What the host keeps of a queue, to end it: its socket for as long as it is open. So a queue which has
/// ended holds no descriptor, however long the host remembers it.
#[derive(Debug)]
pub(crate) struct QueueHandle {
    pub(crate) gate: Gate,
    socket: Mutex<Option<Arc<OwnedFd>>>,
}

impl QueueHandle {
    fn new(socket: Arc<OwnedFd>) -> Self {
        Self { gate: Gate::default(), socket: Mutex::new(Some(socket)) }
    }

    /// No request executes any more but the one that executes now, and the client sees the end.
    pub(crate) fn end(&self) {
        self.gate.close();
        if let Some(socket) = lock(&self.socket).take() {
            os::hang_up(&socket);
        }
    }

    /// True until it has ended.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.socket).is_some()
    }
}

impl Gated for QueueHandle {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Gated for ServerQueue {
    fn gate(&self) -> &Gate {
        &self.handle.gate
    }
}

/// A queue pair as its port serves it.
pub(crate) struct ServerQueue {
    pub(crate) client: ClientId,
    pub(crate) handle: Arc<QueueHandle>,
    grants: Arc<Grants>,
    stream: Stream,
    /// What it may hold.
    _reserved: Option<Reserved>,
    /// What arrived and is not executed.
    input: Vec<u8>,
    /// What the client has not read.
    unsent: Vec<u8>,
    /// The batch at hand, the first in `input`, if some of it is done.
    cursor: Option<Cursor>,
    last_sequence: u64,
    parking: Parking,
    pub(crate) awaits: Awaits,
    /// The client hung up while its queue waited for the worker.
    pub(crate) has_hung_up: bool,
}

/// What has to come before a visit comes to anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// The client sends, or hangs up.
    Input,
    /// The client reads.
    Reader,
    /// The worker finishes a parked call, or the client hangs up.
    Finish,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(crate) struct ParkedCall {
    /// The place of its queue at the port.
    pub(crate) place: usize,
    /// Its batch, and its place there.
    sequence: u64,
    verb: u32,
    reply_bytes_max: usize,
}

/// What a visit came to.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Visit {
    /// Everything that had arrived is answered.
    Idle,
    /// There is more to do at once.
    More,
    /// The client has to read first.
    Blocked,
    /// The next call has to wait until the worker has finished one that is parked.
    Full,
    /// The client has closed the queue, or the gate is closed.
    Ended,
    /// The client was told why, and the queue ends.
    Denied,
    /// The client broke the protocol.
    Disorder(String),
}

/// What a visit needs besides its queue: buffers of the port, and who executes calls.
pub(crate) struct Work<'w> {
    /// The place of the queue at the port.
    pub(crate) place: usize,
    pub(crate) handler: &'w mut dyn CallHandler,
    pub(crate) parked: &'w mut Parked<ParkedCall>,
    pub(crate) buffers: &'w mut Buffers,
    /// Calls that may still be executed.
    pub(crate) budget: usize,
    /// Batches and calls executed.
    pub(crate) done: usize,
}

/// Buffers that all queues of a port share: a queue that waits has none.
pub(crate) struct Buffers {
    input: Box<[u8]>,
    output: Output,
    reply: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { input: vec![0; INPUT_BYTES].into(), output: Output::new(), reply: Vec::new() }
    }
}

impl ServerQueue {
    /// A queue over `stream`, for which memory was set aside if it is limited.
    pub(crate) fn new(
        client: ClientId,
        grants: Arc<Grants>,
        stream: Stream,
        reserved: Option<Reserved>,
    ) -> Self {
        let handle = QueueHandle::new(Arc::clone(stream.socket()));
        Self {
            client,
            handle: Arc::new(handle),
            grants,
            stream,
            _reserved: reserved,
            input: Vec::new(),
            unsent: Vec::new(),
            cursor: None,
            last_sequence: 0,
            parking: Parking::default(),
            awaits: Awaits::Input,
            has_hung_up: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.handle.gate.is_closed()
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        self.stream.socket()
    }

    /// Executes what has arrived, as far as the client reads and the budget goes.
    pub(crate) fn visit(&mut self, work: &mut Work<'_>) -> Visit {
        let handle = Arc::clone(&self.handle);
        let Some(_serving) = handle.gate.enter() else { return Visit::Ended };
        // A socket that fails is a client that is gone.
        self.serve(work).unwrap_or(Visit::Ended)
    }

    fn serve(&mut self, work: &mut Work<'_>) -> io::Result<Visit> {
        if !self.send_rest()? {
            return Ok(Visit::Blocked);
        }
        work.buffers.output.notice = self.grants.notice();
        if self.awaits == Awaits::Finish && !self.has_room_for_call() {
            return Ok(if self.has_hung_up { Visit::Ended } else { Visit::Full });
        }
        // What was left over, and behind it what arrives now.
        let mut filled = self.input.len();
        work.buffers.input[..filled].copy_from_slice(&self.input);
        // Behind whole frames that were left over there may be more, decrypted and unseen by epoll.
        let mut is_more = true;
        if !matches!(first_frame(&self.input), Ok(Some(_))) {
            match self.stream.receive(&mut work.buffers.input[filled..])? {
                Received::Bytes(length_bytes) => filled += length_bytes,
                Received::Nothing => {}
                Received::End => return Ok(Visit::Ended),
            }
            is_more = filled == work.buffers.input.len();
        }
        let input = std::mem::take(&mut work.buffers.input);
        let mut at = 0;
        let outcome = self.execute_frames(&input[..filled], &mut at, work);
        self.input.clear();
        self.input.extend_from_slice(&input[at..filled]);
        work.buffers.input = input;
        let is_sent = work.buffers.output.flush(&mut self.stream);
        work.buffers.output.move_rest(&mut self.unsent);
        Ok(match outcome? {
            _ if self.is_closed() => Visit::Ended,
            visit @ (Visit::Idle | Visit::Full) => match visit {
                _ if !is_sent? => Visit::Blocked,
                Visit::Idle if is_more => Visit::More,
                visit => visit,
            },
            visit => visit,
        })
    }

    /// Sends what the client had not read. False if it still does not.
    fn send_rest(&mut self) -> io::Result<bool> {
        if !self.unsent.is_empty() || self.stream.has_unsent() {
            let sent = self.stream.send(&self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(self.unsent.is_empty() && !self.stream.has_unsent())
    }

    /// True if the reply of another call will find room, whenever it is answered.
    fn has_room_for_call(&self) -> bool {
        let reply_bytes = self.parking.reply_bytes() + MESSAGE_BYTES_MAX;
        !self.parking.is_full() && reply_bytes <= PARKED_BYTES_MAX
    }

    /// Answers a call that was parked here, at the next visit. False if the gate is closed.
    pub(crate) fn finish(&mut self, call: &ParkedCall, reply: &[u8]) -> bool {
        let (got, most) = (reply.len(), call.reply_bytes_max);
        assert!(got <= most, "a reply of {got} B to a call that was to get {most} B at most");
        self.parking.remove(most);
        if self.is_closed() {
            return false;
        }
        let (sequence, verb) = (call.sequence, call.verb);
        let (length_bytes, notice) = (got as u32, self.grants.notice());
        let heading = Heading::Reply { sequence, verb, length_bytes, notice }.encode();
        self.unsent.extend_from_slice(bytes_of(&[heading]));
        self.unsent.extend_from_slice(reply);
        let padding = lines_of_bytes(got) * LINE_BYTES - got;
        self.unsent.resize(self.unsent.len() + padding, 0);
        true
    }

    fn execute_frames(&mut self, input: &[u8], at: &mut usize, work: &mut Work<'_>) -> io::Result<Visit> {
        loop {
            let (header, body) = match first_frame(&input[*at..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(Visit::Idle),
                Err(error) => return Ok(Visit::Disorder(error.to_string())),
            };
            let batch = match Batch::decode(header, body) {
                Ok(batch) => batch,
                Err(error) => return Ok(Visit::Disorder(error.to_string())),
            };
            if header.sequence != self.last_sequence + 1 {
                let (last, got) = (self.last_sequence, header.sequence);
                return Ok(Visit::Disorder(format!("batch {got} follows batch {last}")));
            }
            let mut cursor = self.cursor.take().unwrap_or_default();
            if let Some(pause) = self.execute(&batch, &mut cursor, work)? {
                self.cursor = Some(cursor);
                return Ok(pause);
            }
            self.last_sequence = header.sequence;
            *at += HEADER_BYTES + body.len();
            if work.buffers.output.used_lines() >= SENT_LINES_MIN {
                // What the client does not take now goes with what follows.
                work.buffers.output.flush(&mut self.stream)?;
            }
        }
    }

    /// Executes one batch. `None` once all of it is answered.
    fn execute(
        &mut self,
        batch: &Batch<'_>,
        cursor: &mut Cursor,
        work: &mut Work<'_>,
    ) -> io::Result<Option<Visit>> {
        let Buffers { output, reply, .. } = &mut *work.buffers;
        match cursor.run_verbs(batch, &self.grants, output, &mut self.stream)? {
            Progress::Done => {}
            Progress::Blocked => return Ok(Some(Visit::Blocked)),
            Progress::Denied => return Ok(Some(Visit::Denied)),
        }
        if cursor.is_at_end(batch) {
            work.done += usize::from(batch.one_sided == batch.len());
            return Ok(None);
        }
        loop {
            if work.budget == 0 {
                return Ok(Some(Visit::More));
            }
            if output.room() < REPLY_LINES_MAX && !output.flush(&mut self.stream)? {
                return Ok(Some(Visit::Blocked));
            }
            if !self.has_room_for_call() && !cursor.is_at_end(batch) {
                return Ok(Some(Visit::Full));
            }
            let Some((index, request)) = cursor.next_call(batch) else { return Ok(None) };
            if request.len() >= LONG_REQUEST_BYTES {
                // What does not go out now goes behind the reply, for which there is room.
                output.flush(&mut self.stream)?;
            }
            reply.clear();
            let ticket = work.parked.give_ticket();
            let answer = work.handler.handle(self.client, ticket, request, reply);
            let got = match answer {
                Answer::Now => reply.len(),
                Answer::Later { reply_bytes_max } => reply_bytes_max,
            };
            if got > MESSAGE_BYTES_MAX {
                return Ok(Some(Visit::Disorder(format!("the server's reply to it has {got} B"))));
            }
            let (place, sequence, verb, reply_bytes_max) = (work.place, batch.header.sequence, index, got);
            if answer == Answer::Now {
                output.push_reply(sequence, verb, reply);
            } else {
                self.parking.add(reply_bytes_max);
                work.parked.park(ticket, ParkedCall { place, sequence, verb, reply_bytes_max });
            }
            work.budget -= 1;
            work.done += 1;
        }
    }
}
