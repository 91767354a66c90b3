//! A client that performs a program's steps, and the server's processor that rewrites lines for it.

use std::collections::VecDeque;
use std::sync::Arc;

use farsight_base::sync::Ordering;
use farsight_base::words::{begin_write, end_write};
use farsight_base::{ClientId, LINE_BYTES, Line, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::{Answer, CallHandler, QueuePair, ReadMode, Region, ServerPort, Slot, Ticket};

use super::{CHANGING, LINES, Step, TORN};
use crate::fabric::harness::{at, wait_for};

/// The word of a line that atomics and WRITEs of a word change.
pub(super) const WORD: usize = 1;

/// What a posted verb yields.
#[derive(Clone, Copy)]
enum Yield {
    Nothing,
    Reply,
    Found,
    Word,
    Lines(usize, ReadMode),
}

/// A client in the middle of one run.
struct Performer<'q, Q> {
    queues: &'q mut [Q],
    queue: usize,
    /// Verbs posted and not yet taken, and the slots of each queue that were not yet waited for.
    posted: Vec<(usize, Slot, Yield)>,
    unrung: [Vec<Slot>; 2],
    /// A READ may execute when it is taken: other orders of taking, other outcomes.
    takes_backwards: bool,
    registers: Vec<u64>,
}

/// Performs `steps` over the lines at `base`. Returns the registers, in the order of posting.
pub(super) fn perform<Q: QueuePair>(
    steps: &[Step],
    queues: &mut [Q],
    base: RemoteAddress,
    takes_backwards: bool,
) -> Vec<u64> {
    let posted = Vec::with_capacity(steps.len());
    let mut performer = Performer {
        queues,
        queue: 0,
        posted,
        unrung: [const { Vec::new() }; 2],
        takes_backwards,
        registers: Vec::new(),
    };
    for (slot, step) in steps.iter().enumerate() {
        performer.step(slot, *step, base);
    }
    performer.complete();
    performer.take();
    performer.registers
}

/// Queue pairs that a client with these steps needs.
pub(super) fn queue_count(steps: &[Step]) -> usize {
    if steps.iter().any(|step| matches!(step, Step::OtherQueue)) { 2 } else { 1 }
}

impl<Q: QueuePair> Performer<'_, Q> {
    fn step(&mut self, slot: Slot, step: Step, base: RemoteAddress) {
        let line_at = |line: usize| at(base.region, base.offset_bytes + (line * LINE_BYTES) as u64);
        let word_at = |line: usize| at(base.region, line_at(line).offset_bytes + 8 * WORD as u64);
        let queue = &mut self.queues[self.queue];
        let yields = match step {
            Step::Read { line, count, mode } => {
                queue.post_read(slot, line_at(line), count, mode);
                Yield::Lines(count, mode)
            }
            Step::ReadWord(line) => {
                queue.post_read(slot, line_at(line), 1, ReadMode::Plain);
                Yield::Word
            }
            Step::Write { line, count, value } => {
                queue.post_write(slot, line_at(line), &vec![value; count * WORDS_PER_LINE]);
                Yield::Nothing
            }
            Step::WriteWord(line, value) => {
                queue.post_write(slot, word_at(line), &[value]);
                Yield::Nothing
            }
            Step::CompareSwap { line, expected, new } => {
                queue.post_compare_swap(slot, word_at(line), expected, new);
                Yield::Found
            }
            Step::FetchAdd(line, delta) => {
                queue.post_fetch_add(slot, word_at(line), delta);
                Yield::Found
            }
            Step::Rewrite(lines) => {
                queue.post_call(slot, &request(base, lines)).expect("a short request");
                Yield::Reply
            }
            Step::RewriteLater(lines) => {
                let request = [&request(base, lines)[..], &[LATER]].concat();
                queue.post_call(slot, &request).expect("a short request");
                Yield::Reply
            }
            Step::OtherQueue => return self.queue = 1 - self.queue,
            Step::Complete => return self.complete(),
            Step::Take => {
                self.complete();
                return self.take();
            }
        };
        self.posted.push((self.queue, slot, yields));
        self.unrung[self.queue].push(slot);
    }

    /// Rings every queue pair to which something was posted, then waits for all of it.
    fn complete(&mut self) {
        let queues = self.queues.iter_mut().zip(&mut self.unrung);
        for (queue, _) in queues.filter(|(_, slots)| !slots.is_empty()) {
            queue.doorbell().expect("the doorbell rings");
        }
        for (queue, slots) in self.queues.iter_mut().zip(&mut self.unrung) {
            wait_for(queue, &std::mem::take(slots));
        }
    }

    fn take(&mut self) {
        let posted = std::mem::take(&mut self.posted);
        let mut taken = vec![Vec::new(); posted.len()];
        let mut order: Vec<usize> = (0..posted.len()).collect();
        if self.takes_backwards {
            order.reverse();
        }
        for index in order {
            let (queue, slot, yields) = posted[index];
            taken[index] = take_one(&mut self.queues[queue], slot, yields);
        }
        self.registers.extend(taken.into_iter().flatten());
    }
}

fn take_one<Q: QueuePair>(queue: &mut Q, slot: Slot, yields: Yield) -> Vec<u64> {
    let mut lines = [Line::ZERO; LINES];
    match yields {
        Yield::Nothing => {
            queue.take_word(slot).expect("a WRITE");
            Vec::new()
        }
        Yield::Reply => {
            queue.take_reply(slot, &mut Vec::new()).expect("a reply");
            Vec::new()
        }
        Yield::Found => vec![queue.take_word(slot).expect("an atomic")],
        Yield::Word => {
            queue.take_read(slot, &mut lines[..1]).expect("a READ");
            vec![lines[0].0[WORD]]
        }
        Yield::Lines(count, mode) => {
            queue.take_read(slot, &mut lines[..count]).expect("a READ");
            lines[..count].iter().map(|line| register(line, mode)).collect()
        }
    }
}

/// The one value of a line's words behind the stamp. A stamped line's version has grown by two for each.
fn register(line: &Line, mode: ReadMode) -> u64 {
    let value = line.0[WORD];
    match mode {
        ReadMode::Stamped if line.stamp().is_changing() => CHANGING,
        ReadMode::Stamped if u64::from(line.stamp().version()) != 2 * value => TORN,
        _ if line.0[WORD..].iter().any(|word| *word != value) => TORN,
        _ => value,
    }
}

fn request(base: RemoteAddress, lines: &[usize]) -> Vec<u8> {
    let first = base.offset_bytes / LINE_BYTES as u64;
    lines.iter().flat_map(|line| (first + *line as u64).to_le_bytes()).collect()
}

/// What a request ends with that is answered later.
const LATER: u8 = 1;

/// The server's processor: adds one to every word of the lines that a request names, at once or later.
pub(super) struct Rewriter {
    region: Arc<dyn Region>,
    parked: VecDeque<(Ticket, Vec<u8>)>,
}

impl Rewriter {
    pub(super) fn new(region: &Arc<dyn Region>) -> Self {
        Self { region: Arc::clone(region), parked: VecDeque::new() }
    }

    /// One turn of a worker: answers the oldest parked call, then serves up to `budget_calls`. Returns what
    /// it did, and what is left to do.
    pub(super) fn turn(&mut self, port: &mut impl ServerPort, budget_calls: usize) -> usize {
        if let Some((ticket, request)) = self.parked.pop_front() {
            self.rewrite(&request);
            port.finish(ticket, &[]);
        }
        port.serve(budget_calls, self) + self.parked.len()
    }

    /// True if a call waits for its answer.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    fn rewrite(&self, request: &[u8]) {
        for number in request.as_chunks().0 {
            let first = u64::from_le_bytes(*number) as usize * WORDS_PER_LINE;
            let line = &self.region.words()[first..first + WORDS_PER_LINE];
            let stamp = begin_write(line);
            for word in &line[1..] {
                // Relaxed: ordered by the line's stamp.
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            end_write(line, stamp);
        }
    }
}

impl CallHandler for Rewriter {
    fn handle(&mut self, _: ClientId, ticket: Ticket, request: &[u8], _reply: &mut Vec<u8>) -> Answer {
        if request.as_chunks::<8>().1 == [LATER] {
            self.parked.push_back((ticket, request.to_vec()));
            return Answer::Later { reply_bytes_max: 0 };
        }
        self.rewrite(request);
        Answer::Now
    }
}
