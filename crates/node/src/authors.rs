//! What became of the last calls of each author: a repeated call is answered from here, and never acts twice.
//!
//! Invariant: a call with an identity is executed at most once in an epoch of the node. [`Authors::begin`]
//! lets one call of each number pass. It lets none pass of an author that is not known, of a connection
//! before the author's newest, or with a number that is answered and forgotten. Numbers of authors are drawn,
//! and none is drawn again. So a first copy that comes late, behind its repetition, finds its answer here, or
//! nobody who knows it.
//!
//! Protocol (docs/protocol/repeats.md):
//! 1. A session becomes an author ([`Authors::add`]).
//! 2. Each call that writes names its author and number. The first one of a number is noted as being
//!    executed. Its reply, whatever it says, is kept once it is there.
//! 3. A later one of that number gets the kept reply, or is told to ask again.
//! 4. A call says from which number on the author awaits answers: what is below is forgotten.
//!
//! A node with a log notes there what it knows, and a restart finds it ([`notes`]).
//!
//! Bounds: [`AUTHORS_MAX`] authors, of each as many calls as it may have unanswered, and
//! [`REPLIES_BYTES_MAX`] of replies, or what a smaller memory limit leaves for them. Beyond, the authors that
//! were quiet for longest are forgotten, all they had with them.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, RandomState};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::Epoch;
use farsight_protocol::{AuthorId, CALLS_UNANSWERED_MAX, CallId, ErrorCode, ServerError};

mod notes;

#[cfg(injected)]
use crate::injected;

/// Authors that a node knows at most.
pub(crate) const AUTHORS_MAX: usize = 4096;
/// Bytes of replies that a node keeps for authors at most.
pub(crate) const REPLIES_BYTES_MAX: usize = 32 << 20;
/// Beyond a bound, one author in so many is forgotten at once: to find those that were quiet is a walk.
const FORGOTTEN_ONE_IN: usize = 16;

/// The authors of one node's calls.
pub(crate) struct Authors {
    known: Mutex<Known>,
    /// Bytes of replies that are kept at most.
    replies_bytes_max: usize,
    /// Their numbers are drawn from this, so that nobody else foresees them.
    secret: u64,
}

#[derive(Default)]
struct Known {
    authors: HashMap<AuthorId, Author>,
    /// Authors so far.
    drawn: u64,
    /// Counts whatever authors said: when each was last heard.
    moments: u64,
    replies_bytes: usize,
}

#[derive(Default)]
struct Author {
    /// Its newest connection.
    connection: u32,
    /// The least number that may be unanswered.
    first_unanswered: u64,
    heard: u64,
    calls: Vec<(u64, Outcome)>,
}

/// What is known of a call.
enum Outcome {
    Executing,
    Answered {
        reply: Box<[u8]>,
        /// The log has it, too.
        is_logged: bool,
    },
}

impl Outcome {
    fn bytes(&self) -> usize {
        if let Self::Answered { reply, .. } = self { reply.len() } else { 0 }
    }
}

/// What to do with a call.
pub(crate) enum Begun {
    /// It is to be executed, and its reply noted.
    First(Noting),
    /// It was executed; this is the reply.
    Again(Box<[u8]>),
}

/// Where the reply of a call that is being executed is to be noted.
#[derive(Clone)]
pub(crate) struct Noting {
    authors: Arc<Authors>,
    id: CallId,
    /// The log has what becomes of it.
    is_logged: bool,
}

impl Noting {
    /// The call was answered so.
    pub(crate) fn note(&self, reply: &[u8]) {
        self.authors.note(self.id, reply, self.is_logged);
    }

    /// The call.
    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Says whether the log has the reply that will be noted.
    pub(crate) fn set_logged(&mut self, is_logged: bool) {
        self.is_logged = is_logged;
    }
}

impl Authors {
    /// None yet, and of replies so many bytes at most, up to [`REPLIES_BYTES_MAX`]. Their numbers follow from
    /// `given` and the epoch, if it is given.
    pub(crate) fn new(given: Option<u64>, epoch: Epoch, replies_bytes_max: u64) -> Self {
        let secret = given.map_or_else(|| RandomState::new().hash_one(epoch), |given| of(given, epoch));
        let most = usize::try_from(replies_bytes_max).unwrap_or(usize::MAX);
        Self { known: Mutex::default(), replies_bytes_max: most.min(REPLIES_BYTES_MAX), secret }
    }

    /// Bytes of replies that are kept.
    pub(crate) fn replies_bytes(&self) -> u64 {
        self.lock().replies_bytes as u64
    }

    /// A new author.
    pub(crate) fn add(&self) -> AuthorId {
        let mut known = self.lock();
        if known.authors.len() >= AUTHORS_MAX {
            known.forget_quiet();
        }
        loop {
            known.drawn += 1;
            let id = AuthorId(of(self.secret, known.drawn));
            if !known.authors.contains_key(&id) {
                let heard = known.next_moment();
                known.authors.insert(id, Author { heard, ..Author::default() });
                return id;
            }
        }
    }

    /// Says what to do with a call.
    ///
    /// # Errors
    /// [`ErrorCode::Forgotten`], [`ErrorCode::Executing`]; [`ErrorCode::BadRequest`] for one call too many.
    pub(crate) fn begin(self: &Arc<Self>, id: CallId) -> Result<Begun, ServerError> {
        let mut known = self.lock();
        let heard = known.next_moment();
        let Known { authors, replies_bytes, .. } = &mut *known;
        let Some(author) = authors.get_mut(&id.author) else {
            #[cfg(injected)]
            if injected::STRANGER_EXECUTED.is_injected() {
                return Ok(Begun::First(Noting { authors: Arc::clone(self), id, is_logged: false }));
            }
            return Err(forgotten("this node does not know the call's author, or not any more"));
        };
        author.heard = heard;
        author.check_connection(id)?;
        *replies_bytes -= author.forget_answered(id.first_unanswered());
        if id.sequence < author.first_unanswered {
            return Err(forgotten("the call's answer was received, and is forgotten"));
        }
        match author.calls.iter().find(|(sequence, _)| *sequence == id.sequence) {
            Some((_, Outcome::Executing)) => {
                let text = "the call is being executed: ask for its answer again";
                return Err(ServerError::new(ErrorCode::Executing, text));
            }
            Some((_, Outcome::Answered { reply, .. })) => return Ok(Begun::Again(reply.clone())),
            None => {}
        }
        if author.calls.len() == CALLS_UNANSWERED_MAX {
            let text = format!("an author has {CALLS_UNANSWERED_MAX} calls unanswered at most");
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        author.calls.push((id.sequence, Outcome::Executing));
        Ok(Begun::First(Noting { authors: Arc::clone(self), id, is_logged: false }))
    }

    /// Keeps the reply of a call, unless its author is forgotten.
    fn note(&self, id: CallId, reply: &[u8], is_logged: bool) {
        let mut known = self.lock();
        let Known { authors, replies_bytes, .. } = &mut *known;
        let Some(author) = authors.get_mut(&id.author) else { return };
        #[cfg(injected)]
        if injected::REPLY_NOT_KEPT.is_injected() {
            author.calls.retain(|(sequence, _)| *sequence != id.sequence);
            return;
        }
        let call = author.calls.iter_mut().find(|(sequence, _)| *sequence == id.sequence);
        let Some((_, outcome)) = call else { return };
        *replies_bytes -= outcome.bytes();
        *outcome = Outcome::Answered { reply: reply.into(), is_logged };
        *replies_bytes += reply.len();
        if *replies_bytes > self.replies_bytes_max {
            known.forget_quiet();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No change is half done where anything may panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Author {
    /// Refuses a call of an older connection than the newest.
    fn check_connection(&mut self, id: CallId) -> Result<(), ServerError> {
        #[cfg(injected)]
        if injected::OLD_CONNECTION_HEARD.is_injected() {
            return Ok(());
        }
        if id.connection < self.connection {
            return Err(forgotten("the call's author has a newer connection"));
        }
        self.connection = id.connection;
        Ok(())
    }

    /// Forgets the calls below this number. Returns the bytes of their replies.
    fn forget_answered(&mut self, first_unanswered: u64) -> usize {
        if first_unanswered <= self.first_unanswered {
            return 0;
        }
        self.first_unanswered = first_unanswered;
        let mut bytes = 0;
        self.calls.retain(|(sequence, outcome)| {
            let is_kept = *sequence >= first_unanswered;
            #[cfg(injected)]
            let is_kept = is_kept && !injected::ANSWERED_TOO_EARLY.is_injected();
            bytes += if is_kept { 0 } else { outcome.bytes() };
            is_kept
        });
        bytes
    }
}

impl Known {
    fn next_moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Forgets the authors that were quiet for longest, one in [`FORGOTTEN_ONE_IN`].
    #[cold]
    fn forget_quiet(&mut self) {
        let mut heard: Vec<u64> = self.authors.values().map(|author| author.heard).collect();
        let count = heard.len().div_ceil(FORGOTTEN_ONE_IN);
        let Some(last) = count.checked_sub(1) else { return };
        let (_, last, _) = heard.select_nth_unstable(last);
        let last = *last;
        let mut bytes = 0;
        self.authors.retain(|_, author| {
            let is_kept = author.heard > last;
            if !is_kept {
                bytes += author.calls.iter().map(|(_, outcome)| outcome.bytes()).sum::<usize>();
            }
            is_kept
        });
        self.replies_bytes -= bytes;
    }
}

/// What follows from a secret and something else.
fn of(secret: u64, other: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (secret, other).hash(&mut hasher);
    hasher.finish()
}

fn forgotten(text: &str) -> ServerError {
    ServerError::new(ErrorCode::Forgotten, text)
}

#[cfg(test)]
mod tests;
