//! Calls that are answered later: parked by their port until the test has them finished.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Line};
use farsight_fabric::{
    Answer, CallHandler, Connection, Departure, Host, QueuePair, ReadMode, Region, RegionRights, ServerPort,
    Ticket,
};

use super::FabricUnderTest;
use super::harness::{
    FORMAT, NOTICE, PATIENCE, QueueOf, Running, assert_dies, assert_disconnected, at, call, pattern, read,
    ring_and_wait, wait_for,
};

/// The first byte of a request that is parked. Who asks and a number follow, and the longest reply: four
/// bytes each. Any other request is answered at once, with itself.
const PARK: u8 = 0x9a;
/// Bytes of a reply that most tests need.
const SHORT: u32 = 16;

fn park_request(who: u32, number: u32, reply_bytes_max: u32) -> Vec<u8> {
    let numbers = [who, number, reply_bytes_max];
    std::iter::once(PARK).chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect()
}

/// A call that is parked.
#[derive(Clone, Copy, Debug)]
struct Call {
    ticket: Ticket,
    client: ClientId,
    who: u32,
    number: u32,
    reply_bytes_max: usize,
}

impl Call {
    /// What answers it and no other.
    fn reply(&self) -> Vec<u8> {
        pattern(self.reply_bytes_max, self.who * 10_007 + self.number)
    }
}

/// What the worker and its test tell each other.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    /// Steps of the worker.
    steps: AtomicU64,
}

#[derive(Default)]
struct State {
    /// In the order of their arrival.
    parked: Vec<Call>,
    orders: Vec<(Ticket, Vec<u8>)>,
    outcomes: Vec<(Ticket, bool)>,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the test has ordered.
    fn finish_ordered(&self, port: &mut impl ServerPort) -> usize {
        let orders = std::mem::take(&mut self.state().orders);
        let outcomes = orders.iter().map(|(ticket, reply)| (*ticket, port.finish(*ticket, reply)));
        let outcomes: Vec<(Ticket, bool)> = outcomes.collect();
        self.state().outcomes.extend_from_slice(&outcomes);
        outcomes.len()
    }
}

/// The worker's handler.
struct Parker(Arc<Desk>);

impl CallHandler for Parker {
    fn handle(&mut self, client: ClientId, ticket: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let [PARK, arguments @ ..] = request else {
            reply.extend_from_slice(request);
            return Answer::Now;
        };
        let numbers = arguments.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let numbers: Vec<u32> = numbers.collect();
        let [who, number, reply_bytes_max] = numbers[..] else {
            panic!("no request of this test: {request:?}")
        };
        let reply_bytes_max = reply_bytes_max as usize;
        self.0.state().parked.push(Call { ticket, client, who, number, reply_bytes_max });
        reply.extend_from_slice(b"this counts for nothing");
        Answer::Later { reply_bytes_max }
    }
}

/// A server with one worker, which parks calls.
struct Server<F: FabricUnderTest> {
    running: Running<F::Host>,
    desk: Arc<Desk>,
}

impl<F: FabricUnderTest> Server<F> {
    fn start(subject: &F) -> Self {
        let desk = Arc::new(Desk::default());
        let running = Running::run(subject.listen(FORMAT), 1, || {
            let (desk, mut parker) = (Arc::clone(&desk), Parker(Arc::clone(&desk)));
            move |port: &mut <F::Host as Host>::Port| {
                // Relaxed: a counter.
                desk.steps.fetch_add(1, Ordering::Relaxed);
                desk.finish_ordered(port) + port.serve(256, &mut parker)
            }
        });
        Self { running, desk }
    }

    /// Waits until so many calls have been parked in all, and returns all of them.
    fn await_parked(&self, count: usize) -> Vec<Call> {
        let started = Instant::now();
        loop {
            let parked = self.desk.state().parked.clone();
            if parked.len() >= count {
                return parked;
            }
            assert!(started.elapsed() < PATIENCE, "{} calls of {count} are parked", parked.len());
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits likewise while `queue` polls for completions: a client may send a call only once it has seen
    /// another answered.
    fn await_parked_of<Q: QueuePair>(&self, count: usize, queue: &mut Q) -> Vec<Call> {
        let started = Instant::now();
        while self.desk.state().parked.len() < count {
            queue.poll().expect("the server lives");
            assert!(
                started.elapsed() < PATIENCE,
                "{} calls of {count} are parked",
                self.desk.state().parked.len()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
        self.desk.state().parked.clone()
    }

    /// Has parked calls finished, in this order, and returns which of them had an owner.
    fn finish(&self, replies: impl IntoIterator<Item = (Ticket, Vec<u8>)>) -> Vec<bool> {
        let orders: Vec<(Ticket, Vec<u8>)> = replies.into_iter().collect();
        let count = orders.len();
        self.desk.state().orders.extend(orders);
        self.running.host().wake();
        let started = Instant::now();
        loop {
            let mut state = self.desk.state();
            if state.outcomes.len() == count {
                return std::mem::take(&mut state.outcomes).into_iter().map(|(_, is_sent)| is_sent).collect();
            }
            drop(state);
            assert!(started.elapsed() < PATIENCE, "the worker finishes nothing");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn finish_all(&self, calls: &[Call]) -> Vec<bool> {
        self.finish(calls.iter().map(|call| (call.ticket, call.reply())))
    }

    fn await_clients(&self, count: usize) {
        let started = Instant::now();
        while self.running.host().client_count() != count {
            assert!(started.elapsed() < NOTICE, "{} clients", self.running.host().client_count());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Posts calls that are parked, the number of each in the slot of that number, and rings.
fn post<Q: QueuePair>(queue: &mut Q, who: u32, count: usize, reply_bytes_max: u32) {
    for slot in 0..count {
        let asked = park_request(who, slot as u32, reply_bytes_max);
        queue.post_call(slot, &asked).expect("the request fits");
    }
    queue.doorbell().expect("the doorbell rings");
}

fn take<Q: QueuePair>(queue: &mut Q, slot: usize) -> Vec<u8> {
    let mut reply = b"left over".to_vec();
    queue.take_reply(slot, &mut reply).expect("a reply");
    reply
}

fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for index in (1..items.len()).rev() {
        items.swap(index, random.below(index as u64 + 1) as usize);
    }
}

/// Calls of one queue are parked and answered in any order, each alone, while others are answered at once.
pub fn parked_calls_are_answered_in_any_order<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let count = 12;
    for round in 0..10 {
        post(&mut queue, round, count, SHORT + round);
        let mut calls = server.await_parked(count);
        server.desk.state().parked.clear();
        assert_eq!(call(&mut queue, 100, b"at once"), b"at once");
        shuffle(&mut calls, &mut SplitMix64::new(u64::from(round)));
        while let Some(next) = calls.pop() {
            assert_eq!(server.finish_all(&[next]), [true]);
            wait_for(&mut queue, &[next.number as usize]);
            assert_eq!(take(&mut queue, next.number as usize), next.reply());
            let others = calls.iter().filter(|call| queue.is_complete(call.number as usize));
            assert_eq!(others.count(), 0, "a call is complete that nobody finished");
            assert_eq!(call(&mut queue, 100, &[next.number as u8]), [next.number as u8]);
        }
    }
}

/// A reply may be as long as the handler said, or shorter, or empty.
pub fn a_parked_call_of_each_length<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let most = QueueOf::<F>::MESSAGE_BYTES_MAX;
    for (round, length_bytes) in [0, 1, 63, 64, 65, 4096, most - 1, most].into_iter().enumerate() {
        queue.post_call(3, &park_request(0, 0, most as u32)).expect("the request fits");
        queue.doorbell().expect("the doorbell rings");
        let parked = server.await_parked(round + 1)[round];
        let reply = pattern(length_bytes, round as u32);
        assert_eq!(server.finish([(parked.ticket, reply.clone())]), [true]);
        assert_eq!(server.finish([(parked.ticket, reply.clone())]), [false], "it is answered once");
        wait_for(&mut queue, &[3]);
        assert!(take(&mut queue, 3) == reply, "a reply of {length_bytes} B");
    }
}

/// Of each queue as many calls are parked as the port keeps, the others wait at the client; nothing is lost.
pub fn parked_calls_are_bounded<F: FabricUnderTest>(subject: &F) {
    const QUEUES: usize = 4;
    const BEYOND: usize = 20;
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let (most, count) = (subject.parked_max(), subject.parked_max() + BEYOND);
    let mut queues: Vec<_> = (0..QUEUES).map(|_| connection.open_queue().expect("a queue")).collect();
    for (who, queue) in queues.iter_mut().enumerate() {
        post(queue, who as u32, count, SHORT);
    }
    server.await_parked(QUEUES * most);
    // The port would take more by now, if it took more.
    std::thread::sleep(Duration::from_millis(30));
    let mut random = SplitMix64::new(5);
    let (mut seen, mut open, mut finished) = (0, Vec::new(), BTreeMap::<u32, usize>::new());
    while finished.values().sum::<usize>() < QUEUES * count {
        let parked = server.desk.state().parked.clone();
        open.extend_from_slice(&parked[seen..]);
        seen = parked.len();
        for who in 0..QUEUES as u32 {
            let of_queue = open.iter().filter(|call: &&Call| call.who == who).count();
            assert!(of_queue <= most, "{of_queue} calls of a queue are parked, and {most} is its most");
        }
        shuffle(&mut open, &mut random);
        let some: Vec<Call> = open.drain(..open.len().min(1 + random.below(9) as usize)).collect();
        assert!(server.finish_all(&some).into_iter().all(|is_sent| is_sent), "an owner is gone");
        for call in some {
            let (queue, slot) = (&mut queues[call.who as usize], call.number as usize);
            wait_for(queue, &[slot]);
            assert_eq!(take(queue, slot), call.reply());
            *finished.entry(call.who).or_default() += 1;
        }
    }
    assert_eq!(seen, QUEUES * count, "each call was executed once");
}

/// Each parked call finds room for the longest reply, though its client reads nothing and wants more than any
/// buffer holds.
pub fn parked_replies_find_room<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let most = QueueOf::<F>::MESSAGE_BYTES_MAX;
    let (count, echo) = (24, pattern(most, 3));
    for slot in 0..count {
        let asked = if slot % 2 == 0 { park_request(0, slot as u32, most as u32) } else { echo.clone() };
        queue.post_call(slot, &asked).expect("the request fits");
    }
    queue.doorbell().expect("the doorbell rings");
    let mut seen = 0;
    while seen < count / 2 {
        let parked = server.await_parked(seen + 1);
        // What the port takes beside them, it has taken by now.
        std::thread::sleep(Duration::from_millis(10));
        assert!(server.finish_all(&parked[seen..]).into_iter().all(|is_sent| is_sent), "an owner is gone");
        for call in &parked[seen..] {
            wait_for(&mut queue, &[call.number as usize]);
            assert!(take(&mut queue, call.number as usize) == call.reply(), "another reply");
        }
        seen = parked.len();
    }
    for slot in (0..count).filter(|slot| slot % 2 == 1) {
        wait_for(&mut queue, &[slot]);
        assert!(take(&mut queue, slot) == echo, "the reply in slot {slot} differs");
    }
}

/// Calls of `old` are dead, those of `new` are not: each of these gets its own answer.
fn assert_dead<F: FabricUnderTest>(
    server: &Server<F>,
    queue: &mut QueueOf<F>,
    old: &[Call],
    new: &[Call],
    knows: bool,
) {
    let sent = server.finish(old.iter().map(|call| (call.ticket, b"before".to_vec())));
    assert!(!knows || !sent.contains(&true), "an answer went to a client that has left");
    // Behind it whatever was sent has come.
    assert_eq!(call(queue, 200, b"at once"), b"at once");
    for call in new {
        let slot = call.number as usize;
        assert!(!queue.is_complete(slot), "the newcomer got an answer of the one before: slot {slot}");
    }
    assert!(server.finish_all(new).into_iter().all(|is_sent| is_sent), "the newcomer is here");
    for call in new {
        wait_for(queue, &[call.number as usize]);
        assert_eq!(take(queue, call.number as usize), call.reply());
    }
}

/// A client leaves with parked calls, or is fenced; the next one has its place when they are finished.
pub fn a_newcomer_gets_no_answer_of_the_one_before<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let count = 8;
    for round in 0..10_u32 {
        server.desk.state().parked.clear();
        let connection = subject.connect(FORMAT).expect("a connection");
        let mut queue = connection.open_queue().expect("a queue");
        post(&mut queue, round, count, SHORT);
        let old = server.await_parked(count);
        if round % 2 == 0 {
            drop((queue, connection));
        } else {
            server.running.host().fence(old[0].client).expect("a fence");
        }
        server.await_clients(0);
        if round % 3 == 0 {
            // The port has noticed nothing yet, perhaps.
            let sent = server.finish(old.iter().take(1).map(|call| (call.ticket, Vec::new())));
            assert_eq!(sent, [false], "its client has left");
        }
        server.desk.state().parked.clear();
        let next = subject.connect(FORMAT).expect("a connection");
        let mut queue = next.open_queue().expect("a queue");
        post(&mut queue, 1_000 + round, count, SHORT);
        let new = server.await_parked(count);
        assert_dead(&server, &mut queue, &old, &new, true);
        drop((queue, next));
        server.await_clients(0);
    }
}

/// A queue leaves with parked calls, and its client stays: the next queue gets none of their answers.
pub fn a_queue_that_ends_takes_its_parked_calls_along<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    // Full or not: a full queue's client is not listened to.
    for (round, count) in [8, subject.parked_max(), 8, subject.parked_max()].into_iter().enumerate() {
        server.desk.state().parked.clear();
        let mut queue = connection.open_queue().expect("a queue");
        post(&mut queue, round as u32, count, SHORT);
        let old = server.await_parked(count);
        drop(queue);
        server.desk.state().parked.clear();
        let mut queue = connection.open_queue().expect("a queue");
        post(&mut queue, 1_000 + round as u32, 8, SHORT);
        let new = server.await_parked(8);
        assert_dead(&server, &mut queue, &old, &new, false);
    }
}

/// Parked calls execute no more: a client that is told to leave has gone, whether they are finished or not.
pub fn a_client_with_parked_calls_departs_at_once<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    post(&mut queue, 0, 8, SHORT);
    let calls = server.await_parked(8);
    let started = Instant::now();
    while server.running.host().dismiss(calls[0].client).expect("a dismissal") != Departure::Gone {
        assert!(started.elapsed() < PATIENCE, "a client stays because of its parked calls");
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(server.finish_all(&calls), [false; 8], "its calls have gone with it");
    assert_eq!(server.running.host().client_count(), 0);
}

/// A client waits for a parked call for as long as it likes, and uses the slot again: the late answer is
/// nobody's.
pub fn a_parked_call_may_be_given_up<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let region = server.running.host().create_region(1 << 12, RegionRights::ReadOnly).expect("a region");
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    queue.attach(region.id()).expect("the region attaches");
    for round in 0..10 {
        post(&mut queue, round, 4, SHORT);
        let calls = server.await_parked(4);
        server.desk.state().parked.clear();
        queue.wait(Duration::from_millis(2)).expect("waiting");
        assert!((0..4).all(|slot| !queue.is_complete(slot)), "nobody has answered");
        assert_eq!(call(&mut queue, 0, b"another"), b"another");
        read(&mut queue, at(region.id(), 0), ReadMode::Plain, &mut [Line::ZERO]).expect("a READ in slot 0");
        queue.post_call(1, &park_request(77, 1, SHORT)).expect("the request fits");
        queue.doorbell().expect("the doorbell rings");
        let again = server.await_parked(1);
        assert_eq!(server.finish_all(&calls), [true; 4]);
        wait_for(&mut queue, &[2, 3]);
        assert_eq!(call(&mut queue, 200, b"behind them"), b"behind them");
        assert!(!queue.is_complete(1), "a late answer stands in for another");
        assert_eq!(server.finish_all(&again), [true]);
        wait_for(&mut queue, &[1]);
        assert_eq!(take(&mut queue, 1), again[0].reply());
        server.desk.state().parked.clear();
    }
}

/// A parked call whose server dies ends in `Disconnected`, as one that executes does.
pub fn peer_death_ends_a_parked_call<F: FabricUnderTest>(subject: &F) {
    let mut server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    post(&mut queue, 0, 4, SHORT);
    server.await_parked(4);
    server.running.die();
    assert_dies(&mut queue);
    assert_disconnected(&queue.take_reply(0, &mut Vec::new()).expect_err("nobody answered"));
}

/// One client has all its calls parked for as long as another has a thousand answered, at the same worker.
pub fn others_are_served_beside_parked_calls<F: FabricUnderTest>(subject: &F) {
    let server = Server::start(subject);
    let connections = [(); 2].map(|()| subject.connect(FORMAT).expect("a connection"));
    let [mut waits, mut goes_on] = [0, 1].map(|index| connections[index].open_queue().expect("a queue"));
    let most = subject.parked_max();
    post(&mut waits, 0, most + 1, SHORT);
    let calls = server.await_parked(most);
    let slots: Vec<usize> = (0..10).collect();
    for round in 0..subject.rounds(100) {
        for slot in &slots {
            goes_on.post_call(*slot, &[round as u8, *slot as u8]).expect("the request fits");
        }
        ring_and_wait(&mut goes_on, &slots);
        for slot in &slots {
            assert_eq!(take(&mut goes_on, *slot), [round as u8, *slot as u8]);
        }
    }
    assert_eq!(server.desk.state().parked.len(), most, "a full queue waits");
    assert!((0..=most).all(|slot| !waits.is_complete(slot)), "nobody has answered");
    assert_eq!(server.finish_all(&calls), vec![true; most]);
    let last = server.await_parked_of(most + 1, &mut waits).split_off(most);
    assert_eq!(server.finish_all(&last), [true], "the last is taken then");
    let slots: Vec<usize> = (0..=most).collect();
    wait_for(&mut waits, &slots);
}

/// A port sleeps while calls are parked, and while others wait because no more can be.
pub fn parked_calls_let_the_port_sleep<F: FabricUnderTest>(subject: &F) {
    /// A port that does not sleep takes more steps, on any machine.
    const STEPS_MAX: u64 = 3_000;
    let server = Server::start(subject);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let most = subject.parked_max();
    post(&mut queue, 0, most + 5, SHORT);
    let calls = server.await_parked(most);
    let steps = || server.desk.steps.load(Ordering::Relaxed);
    let before = steps();
    std::thread::sleep(Duration::from_millis(400));
    let taken = steps() - before;
    assert!(taken < STEPS_MAX, "{taken} steps of a port that has nothing to do");
    assert_eq!(server.finish_all(&calls), vec![true; most]);
    let last = server.await_parked_of(most + 5, &mut queue).split_off(most);
    assert_eq!(server.finish_all(&last), [true; 5]);
    let slots: Vec<usize> = (0..most + 5).collect();
    wait_for(&mut queue, &slots);
}
