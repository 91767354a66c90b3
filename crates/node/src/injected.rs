//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A memory node at which a compute node has ended takes every newcomer for that one.
    NEWCOMERS_FENCED = "NewcomersFenced";
    /// A memory node fences a compute node under its first number, and under no other.
    FIRST_NUMBER_FENCED = "FirstNumberFenced";
    /// Writes are applied and answered before the log that has them is durable.
    ANSWERED_BEFORE_SYNC = "AnsweredBeforeSync";
    /// The sequencer decides a group as if the one before, whose sync is under way, had written nothing.
    FLYING_UNSEEN = "FlyingUnseen";
    /// The sequencer applies a group when its sync begins.
    APPLIED_BEFORE_SYNC = "AppliedBeforeSync";
    /// The sequencer counts a pair that has ended.
    ENDED_PAIR_DECIDED = "EndedPairDecided";
    /// Objects that are in compute nodes' hands are freed by who looks for those that no slot names.
    HELD_OBJECT_FREED = "HeldObjectFreed";
    /// A coordinator's directory does not say which dropped tables other nodes may have still.
    DROP_NOT_KEPT = "DropNotKept";
    /// What a client that has ended had sent of a value stays where it is.
    STAGED_VALUE_LEAKED = "StagedValueLeaked";
    /// What has come of a value shows at its key before its write does.
    STAGED_VALUE_SHOWN = "StagedValueShown";
    /// Each piece of a value that goes to a client is of the key's newest value.
    PIECE_OF_NEWER_VALUE = "PieceOfNewerValue";
    /// A damaged pair gets the first value of its key that the files have, of whatever version.
    REPAIRED_BY_ANY_VERSION = "RepairedByAnyVersion";
    /// A snapshot leaves a piece as it is to which something was written.
    TOUCHED_PIECE_KEPT = "TouchedPieceKept";
    /// A piece that was left for a damaged pair counts as one to which nothing was written.
    LEFT_PIECE_ADVANCED = "LeftPieceAdvanced";
    /// A node does not keep what it answered a call that may be repeated.
    REPLY_NOT_KEPT = "ReplyNotKept";
    /// A node executes calls of a connection that their author has left.
    OLD_CONNECTION_HEARD = "OldConnectionHeard";
    /// A node forgets a call that its author still awaits.
    ANSWERED_TOO_EARLY = "AnsweredTooEarly";
    /// A node executes calls of authors that it does not know.
    STRANGER_EXECUTED = "StrangerExecuted";
    /// The log knows authors, and none of their calls.
    CALL_UNNOTED = "CallUnnoted";
    /// What became of calls is noted in a frame behind that of their writes.
    NOTE_BEHIND_WRITES = "NoteBehindWrites";
    /// A round of snapshots does not note anew what the segments that it removes note of calls.
    NOTES_END_WITH_SEGMENT = "NotesEndWithSegment";
    /// The log does not have calls that changed nothing, though it has later ones of their authors.
    UNCHANGING_UNNOTED = "UnchangingUnnoted";
    /// A worker is woken before the late reply is there that it shall send.
    WOKEN_BEFORE_REPLY = "WokenBeforeReply";
    /// What a compute node had in hand is freed when it has ended at the head's node alone.
    HAND_FREED_UNFENCED = "HandFreedUnfenced";
    /// Memory of an object is given again in the generation that it had.
    GENERATION_KEPT = "GenerationKept";
    /// A node lets compute nodes in that go by the list of nodes from before a new one was taken in.
    OLD_LIST_LET_IN = "OldListLetIn";
    /// A recall is answered when the first one has let go who keeps values.
    RECALL_ANSWERED_EARLY = "RecallAnsweredEarly";
    /// Who has ended at a node is taken to give nothing out that it kept.
    KEEPER_FORGOTTEN = "KeeperForgotten";
    /// A new node takes what an attempt brings that was left.
    LEFT_ATTEMPT_HEARD = "LeftAttemptHeard";
}
