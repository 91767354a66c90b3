use std::collections::{BTreeSet, VecDeque};

use farsight_base::prng::SplitMix64;

use super::*;

fn call(author: AuthorId, sequence: u64) -> CallId {
    CallId { author, connection: 0, sequence, unanswered: 1 }
}

/// Executes the call if it is to be; what it was answered.
fn run(authors: &Arc<Authors>, id: CallId) -> Result<Option<Box<[u8]>>, ErrorCode> {
    match authors.begin(id).map_err(|error| error.code)? {
        Begun::Again(reply) => Ok(Some(reply)),
        Begun::First(noting) => {
            noting.note(&id.sequence.to_le_bytes());
            Ok(None)
        }
    }
}

#[test]
fn a_repeated_call_gets_the_answer_of_the_first() {
    let authors = Arc::new(Authors::new(None, Epoch(1), u64::MAX));
    let author = authors.add();
    assert_eq!(run(&authors, call(author, 1)), Ok(None));
    let again = CallId { connection: 1, ..call(author, 1) };
    assert_eq!(run(&authors, again), Ok(Some(1_u64.to_le_bytes().into())));
    assert_eq!(run(&authors, call(author, 2)), Err(ErrorCode::Forgotten), "a late first copy");
    assert_eq!(run(&authors, CallId { connection: 1, ..call(author, 2) }), Ok(None));
    assert_eq!(run(&authors, again), Err(ErrorCode::Forgotten), "its answer came");
    assert_eq!(run(&authors, call(AuthorId(!author.0), 1)), Err(ErrorCode::Forgotten), "a stranger");
}

#[test]
fn a_call_that_is_being_executed_is_asked_for_again() {
    let authors = Arc::new(Authors::new(None, Epoch(1), u64::MAX));
    let author = authors.add();
    let Ok(Begun::First(noting)) = authors.begin(call(author, 1)) else { panic!("it is new") };
    assert_eq!(run(&authors, call(author, 1)), Err(ErrorCode::Executing));
    noting.note(b"done");
    assert_eq!(run(&authors, call(author, 1)), Ok(Some((*b"done").into())));
}

#[test]
fn no_author_has_more_calls_than_it_may() {
    let authors = Arc::new(Authors::new(None, Epoch(1), u64::MAX));
    let author = authors.add();
    let unanswered = |sequence| CallId { unanswered: sequence as u16, ..call(author, sequence) };
    let most = CALLS_UNANSWERED_MAX as u64;
    assert!((1..=most).all(|sequence| run(&authors, unanswered(sequence)) == Ok(None)));
    let more = CallId { unanswered: 1 + CALLS_UNANSWERED_MAX as u16, ..call(author, most + 1) };
    assert_eq!(run(&authors, more), Err(ErrorCode::BadRequest));
    assert_eq!(run(&authors, call(author, most + 1)), Ok(None), "the others were answered");
}

#[test]
fn quiet_authors_are_forgotten_first() {
    let authors = Arc::new(Authors::new(None, Epoch(1), u64::MAX));
    let all: Vec<AuthorId> = (0..AUTHORS_MAX).map(|_| authors.add()).collect();
    assert!(all.iter().rev().all(|author| run(&authors, call(*author, 1)) == Ok(None)));
    let newcomer = authors.add();
    let (kept, quiet) = all.split_at(AUTHORS_MAX - AUTHORS_MAX / FORGOTTEN_ONE_IN);
    assert!(quiet.iter().all(|author| run(&authors, call(*author, 2)) == Err(ErrorCode::Forgotten)));
    assert!(kept.iter().chain([&newcomer]).all(|author| run(&authors, call(*author, 2)) == Ok(None)));
}

#[test]
fn replies_are_kept_within_their_bound() {
    replies_are_kept_within(REPLIES_BYTES_MAX, u64::MAX);
    replies_are_kept_within(1 << 20, 1 << 20);
}

fn replies_are_kept_within(most: usize, given: u64) {
    let authors = Arc::new(Authors::new(None, Epoch(1), given));
    let reply = vec![0; most / 8];
    for _ in 0..3 * FORGOTTEN_ONE_IN {
        let author = authors.add();
        let Ok(Begun::First(noting)) = authors.begin(call(author, 1)) else { panic!("it is new") };
        noting.note(&reply);
        assert!(authors.lock().replies_bytes <= most);
    }
    let known = authors.lock();
    let outcomes = known.authors.values().flat_map(|author| &author.calls);
    assert_eq!(known.replies_bytes, outcomes.map(|(_, outcome)| outcome.bytes()).sum::<usize>());
}

/// One author's calls, and what came of the copies that its node got.
struct Caller {
    id: AuthorId,
    authors: Arc<Authors>,
    /// What is under way over each connection, the oldest first.
    sent: Vec<VecDeque<CallId>>,
    /// The newest connection over which the node has heard the author.
    heard: u32,
    numbered: u64,
    /// Numbers of calls whose answers are awaited.
    awaited: VecDeque<u64>,
    acted: BTreeSet<u64>,
}

impl Caller {
    fn new(authors: &Arc<Authors>) -> Self {
        Self {
            id: authors.add(),
            authors: Arc::clone(authors),
            sent: vec![VecDeque::new()],
            heard: 0,
            numbered: 0,
            awaited: VecDeque::new(),
            acted: BTreeSet::new(),
        }
    }

    /// The node gets a copy. True if it answers it.
    fn deliver(&mut self, id: CallId) -> bool {
        let outcome = run(&self.authors, id);
        if id.connection < self.heard {
            assert_eq!(outcome, Err(ErrorCode::Forgotten), "a late copy of call {}", id.sequence);
            return false;
        }
        self.heard = id.connection;
        match outcome {
            Ok(None) => assert!(self.acted.insert(id.sequence), "call {} acted twice", id.sequence),
            Ok(Some(reply)) => {
                assert!(self.acted.contains(&id.sequence), "call {} never acted", id.sequence);
                assert_eq!(*reply, id.sequence.to_le_bytes(), "another call's answer");
            }
            Err(code) => panic!("call {} was refused: {code:?}", id.sequence),
        }
        true
    }

    /// The next copy of some connection comes.
    fn deliver_some(&mut self, random: &mut SplitMix64) {
        let connection = random.below(self.sent.len() as u64) as usize;
        let Some(id) = self.sent[connection].pop_front() else { return };
        let is_answered = self.deliver(id);
        // The answer comes, or is lost; answers come in order.
        if is_answered && self.awaited.front() == Some(&id.sequence) && random.below(4) > 0 {
            self.awaited.pop_front();
        }
    }

    fn send(&mut self) {
        self.numbered += 1;
        self.awaited.push_back(self.numbered);
        let connection = self.sent.len() as u32 - 1;
        let unanswered = (self.numbered + 1 - self.awaited[0]) as u16;
        let id = CallId { author: self.id, connection, sequence: self.numbered, unanswered };
        self.sent.last_mut().expect("a connection").push_back(id);
    }

    /// Repeats what is awaited over the next connection, one call at a time, while late copies come.
    fn repeat(&mut self, random: &mut SplitMix64) {
        let connection = self.sent.len() as u32;
        for sequence in std::mem::take(&mut self.awaited) {
            if random.below(2) == 0 {
                self.deliver_some(random);
            }
            let repeated = CallId { author: self.id, connection, sequence, unanswered: 1 };
            assert!(self.deliver(repeated), "call {sequence} is answered");
        }
        self.sent.push(VecDeque::new());
    }
}

/// Calls of some authors, whose copies come in any order that connections allow.
fn send_copies() {
    let mut random = SplitMix64::fresh();
    let authors = Arc::new(Authors::new(None, Epoch(1), u64::MAX));
    for _ in 0..200 {
        let mut author = Caller::new(&authors);
        for _ in 0..200 {
            match random.below(16) {
                0 if author.sent.len() < 20 => author.repeat(&mut random),
                1..8 if author.awaited.len() < CALLS_UNANSWERED_MAX => author.send(),
                _ => author.deliver_some(&mut random),
            }
        }
    }
}

#[test]
fn no_call_acts_twice_in_whatever_order_copies_come() {
    send_copies();
}

#[cfg(injected)]
#[test]
fn bugs_that_are_injected_are_found() {
    use farsight_base::injection::assert_found;
    assert_found(&injected::REPLY_NOT_KEPT, send_copies);
    assert_found(&injected::OLD_CONNECTION_HEARD, send_copies);
    assert_found(&injected::ANSWERED_TOO_EARLY, send_copies);
}
