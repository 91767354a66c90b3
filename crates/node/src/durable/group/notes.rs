//! What a group notes of its calls, and of authors that begin ([`Authors`]).

use farsight_durability::{FrameWriter, NOTE_HEADER_BYTES, Note, NotedReply};
use farsight_index::clear_kept;
use farsight_protocol::{AuthorId, CallId, ReplyWriter};

use super::{AnswerShape, Answered, Group};
use crate::LateReply;
use crate::authors::Authors;

impl Group {
    /// Takes an author that begins: it is answered once the log has it.
    pub(in super::super) fn begin_author(&mut self, author: AuthorId, reply: LateReply) {
        self.new_authors.push(author);
        self.notes_bytes_max += NOTE_HEADER_BYTES;
        let outcomes = self.outcomes.len();
        self.decided(outcomes, reply, AnswerShape::Written);
    }

    /// True if something of it goes into the log.
    pub(in super::super) fn is_logged(&self) -> bool {
        !self.frame.is_empty() || !self.new_authors.is_empty()
    }

    /// True if it changes tables.
    pub(in super::super) fn has_changes(&self) -> bool {
        self.changes.len() > 0
    }

    /// Bytes of its frame with notes at most; a few more if calls before are noted with its own.
    pub(in super::super) fn frame_bytes_max(&self) -> usize {
        self.frame.len() + self.notes_bytes_max
    }

    /// Notes authors and calls in its frame, which is appended next.
    pub(in super::super) fn note(&mut self, authors: &Authors) {
        let mut frame = std::mem::take(&mut self.frame);
        self.note_in(&mut frame, authors);
        self.frame = frame;
    }

    /// The same in another frame.
    pub(in super::super) fn note_in(&mut self, frame: &mut FrameWriter, authors: &Authors) {
        let Self { new_authors, answers, outcomes, old_values, noted, .. } = self;
        for author in new_authors {
            frame.push_note(Note::Author { author: author.0, first_unanswered: 0 });
        }
        #[cfg(injected)]
        let notes_unchanging = !crate::injected::UNCHANGING_UNNOTED.is_injected();
        #[cfg(not(injected))]
        let notes_unchanging = true;
        if notes_unchanging {
            authors.push_unlogged(answers.iter().filter_map(|call| call.reply.call_id()), frame);
        }
        let mut changes_before = 0;
        for Answered { reply, outcomes: own, shape, changes_end } in answers {
            let is_changing = std::mem::replace(&mut changes_before, *changes_end) < *changes_end;
            let Some(id) = reply.call_id().filter(|_| is_changing || notes_unchanging) else { continue };
            #[cfg(injected)]
            if crate::injected::CALL_UNNOTED.is_injected() {
                continue;
            }
            // Whether hints were right is not known yet. No repeated call needs to be told.
            let noted_reply = if matches!(shape, AnswerShape::Written) {
                reply.written()
            } else {
                shape.write(&mut ReplyWriter::new(noted), &outcomes[own.clone()], old_values);
                &noted[..]
            };
            let CallId { author, sequence, unanswered, .. } = id;
            let noted_reply = NotedReply::of(noted_reply);
            frame.push_note(Note::Call { author: author.0, sequence, unanswered, reply: noted_reply });
            reply.set_logged();
        }
        clear_kept(noted);
    }
}
