//! What the log notes of authors and their calls, and what a restart makes of that.
//!
//! Invariant: of an author that a restart knows, it knows each call that the log has changes of and whose
//! answer may be awaited. So a repeated call that it does not know has changed nothing that is there, and
//! nothing of its author's that came behind it has.
//!
//! That is so for three reasons:
//! - The frame that has a call's records has its note. It also has notes of the author's calls before that
//!   one which changed nothing, or were refused: they would be decided anew behind it otherwise.
//! - An author is noted before it is told its number. Notes of authors that are not known are passed over. So
//!   a log that has lost its begin knows of an author all that it had, or nothing.
//! - Before a round of snapshots removes segments, all that memory has is noted anew, in one frame that makes
//!   whatever was noted before count no more.
//!
//! What memory forgets for its bounds the log has still, until the next round: all of it.

use farsight_durability::{FrameWriter, Note, NotedReply};
use farsight_protocol::{AuthorId, CALLS_UNANSWERED_MAX, CallId};

use super::{AUTHORS_MAX, Author, Authors, Known, Outcome};

impl Authors {
    /// Appends notes of all authors, and of their calls that are answered. What was noted before counts no
    /// more. Appends nothing if there are no authors.
    pub(crate) fn push_all(&self, into: &mut FrameWriter) {
        let known = self.lock();
        if known.authors.is_empty() {
            return;
        }
        into.push_note(Note::AllForgotten);
        // The quietest first: that is how a restart knows them.
        let mut authors: Vec<(&AuthorId, &Author)> = known.authors.iter().collect();
        authors.sort_unstable_by_key(|(_, author)| author.heard);
        for (id, author) in authors {
            into.push_note(Note::Author { author: id.0, first_unanswered: author.first_unanswered });
            for (sequence, outcome) in &author.calls {
                if let Outcome::Answered { reply, .. } = outcome {
                    let (author, sequence, reply) = (id.0, *sequence, NotedReply::of(reply));
                    into.push_note(Note::Call { author, sequence, unanswered: 0, reply });
                }
            }
        }
    }

    /// Appends notes of calls that came before these ones of the same authors, are answered, perhaps in vain,
    /// and stand in no log: those that changed nothing, or were refused.
    pub(crate) fn push_unlogged(&self, before: impl Iterator<Item = CallId>, into: &mut FrameWriter) {
        // Of a call that is the first unanswered one none before it is repeated.
        let mut before = before.filter(|id| id.unanswered > 1).peekable();
        if before.peek().is_none() {
            return;
        }
        let known = self.lock();
        for id in before {
            let calls = known.authors.get(&id.author).map_or(&[][..], |author| &author.calls);
            for (sequence, outcome) in calls {
                if let Outcome::Answered { reply, is_logged: false } = outcome
                    && (id.first_unanswered()..id.sequence).contains(sequence)
                {
                    let (author, sequence, reply) = (id.author.0, *sequence, NotedReply::of(reply));
                    into.push_note(Note::Call { author, sequence, unanswered: 0, reply });
                }
            }
        }
    }

    /// Takes in what the log notes, in its order.
    pub(crate) fn take_note(&self, note: Note<'_>) {
        let mut known = self.lock();
        match note {
            Note::AllForgotten => {
                known.authors.clear();
                known.replies_bytes = 0;
            }
            Note::Author { author, first_unanswered } => {
                if known.authors.len() >= AUTHORS_MAX {
                    known.forget_quiet();
                }
                let heard = known.next_moment();
                let added = Author { first_unanswered, heard, ..Author::default() };
                if let Some(former) = known.authors.insert(AuthorId(author), added) {
                    known.replies_bytes -= former.reply_bytes();
                }
            }
            Note::Call { author, sequence, unanswered, reply } => {
                known.take_call(AuthorId(author), sequence, unanswered, &reply.to_vec());
                if known.replies_bytes > self.replies_bytes_max {
                    known.forget_quiet();
                }
            }
        }
    }
}

impl Known {
    /// Keeps the reply of a call, unless nobody awaits it.
    fn take_call(&mut self, id: AuthorId, sequence: u64, unanswered: u16, reply: &[u8]) {
        let heard = self.next_moment();
        let Self { authors, replies_bytes, .. } = self;
        let Some(author) = authors.get_mut(&id) else { return };
        author.heard = heard;
        if unanswered > 0 {
            let first_unanswered = (sequence + 1).saturating_sub(unanswered.into());
            *replies_bytes -= author.forget_answered(first_unanswered);
        }
        let is_known = author.calls.iter().any(|(known, _)| *known == sequence);
        if sequence < author.first_unanswered || is_known {
            return;
        }
        if author.calls.len() == CALLS_UNANSWERED_MAX {
            // No node lets so many pass. To know some of them would not do.
            *replies_bytes -= author.reply_bytes();
            authors.remove(&id);
            return;
        }
        author.calls.push((sequence, Outcome::Answered { reply: reply.into(), is_logged: true }));
        *replies_bytes += reply.len();
    }
}

impl Author {
    fn reply_bytes(&self) -> usize {
        self.calls.iter().map(|(_, outcome)| outcome.bytes()).sum()
    }
}
