//! Bugs that a model or a simulation injects, to see that it would find them.
//!
//! Invariant: without [`inject`] nothing here changes anything. None of this exists but in a build for a
//! model checker, or with `--cfg injected` for the simulator. A bug is injected for the thread on which the
//! checker runs all of a model's threads, or the simulator everything.

use std::cell::Cell;

/// What is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Every Acquire load and exchange is Relaxed.
    AcquireLoads,
    /// Every Release store and exchange is Relaxed.
    ReleaseStores,
    /// No Acquire fence.
    AcquireFences,
    /// No Release fence.
    ReleaseFences,
    /// No SeqCst fence.
    SeqCstFences,
    /// A split writes left, which names right, before right is filled; readers take a block that is no leaf
    /// for one without the key.
    LinkedBeforeFilled,
    /// A value is accepted whatever its incarnation.
    AnyIncarnation,
    /// A line is copied without a second look at its stamp.
    NoSecondLook,
    /// Who is about to sleep does not look once more.
    NoLastLook,
    /// A consumer believes the peer's counter.
    CounterBelieved,
    /// A queue's gate is looked at before it is entered.
    GateCheckedBefore,
    /// A value's line is accepted while it is being written.
    OddAccepted,
    /// A value is accepted although its slot was not written in this incarnation.
    UnwrittenAccepted,
    /// A key that is not in the lines is absent, whatever their fences.
    MissWithoutFences,
    /// A client takes a key right of the leaf that it was sent to for absent.
    NoSiblingStep,
    /// An insert takes the slot of a removed pair, in the same incarnation.
    SlotReused,
    /// A rewrite leaves the lines of the values even while it writes them.
    OpenedInPart,
    /// A rewrite keeps the incarnation.
    IncarnationKept,
    /// A writer believes a client's hint without a look at the leaf's fences.
    HintTrusted,
    /// What a split changes is not trained again.
    DroppedRetrain,
    /// A server gives a region the number of one that it has withdrawn.
    NumberReused,
    /// A call is answered before what it stored can be seen.
    AnsweredBeforeVisible,
    /// A key is shown before its value is written, and readers take what they find there.
    KeyShownFirst,
    /// The model is trained on the leaves' lowest keys instead of their fences.
    TrainedOnKeys,
    /// A client never replaces a sub-model that it has.
    StaleModelKept,
    /// A client repeats READs for ever instead of asking the server.
    UnboundedRetry,
    /// A client follows a sibling wherever it points.
    BoundsNotChecked,
    /// A fence is answered while verbs of the fenced client are still on their way.
    FenceAnsweredEarly,
    /// A pool's lock is taken over without a fence for its holder.
    StolenUnfenced,
    /// A compute node one of whose operations broke off goes on under its number.
    NotPoisoned,
    /// A pool's lock is released before the WRITEs that were made under it.
    UnlockedFirst,
    /// A pool's leaf is not READ again behind the lock: what was READ before counts.
    NoRereadUnderLock,
    /// A new image names the leaves of the old one and no other.
    LeavesNotCarriedOver,
    /// A trainer takes the lines of the old image before the new one is published.
    LinesReusedEarly,
    /// A compute node never fetches another image of a group that it has: that is no bug, but slow.
    ImageKept,
    /// A merge leaves the right leaf open.
    MergedUnclosed,
    /// A leaf that is to be merged is taken over before it is locked.
    AdoptedUnlocked,
    /// A leaf at which a group begins is merged without a look whether it still does.
    AnchorTakenBlind,
    /// What a compute node that has ended left is given back without a look whether anything leads to it.
    LinkedFreed,
    /// A scan that comes to the end of a part takes it for the end of the table.
    ScanEndsWithPart,
    /// A memory node that was started again is taken for the one before.
    LivesNotCompared,
    /// A simulated card that promises the order of WRITEs sends those behind one that it gave up.
    SentBehindGivenUp,
    /// A memory node at which a compute node has ended takes every newcomer for that one.
    NewcomersFenced,
    /// A client takes a connection that is lost for its current one, for ever.
    LostLifeKept,
    /// An update that is alone in its call leaves the old value under a new version.
    LoneUpdateLost,
    /// What is known of a group is taken, changed, and put back, without the lock in between.
    ChangedUnlocked,
    /// A group's version is taken behind its content.
    VersionTakenLate,
    /// A parked call's ticket answers the call that stands in its place by now.
    TicketOutlivesClient,
}

thread_local! {
    static INJECTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Runs `model` with `bug` in place.
pub fn inject<R>(bug: Bug, model: impl FnOnce() -> R) -> R {
    /// Takes the bug out again, also after a model that failed.
    struct Injected;
    impl Drop for Injected {
        fn drop(&mut self) {
            INJECTED.set(None);
        }
    }
    INJECTED.set(Some(bug));
    let _injected = Injected;
    model()
}

/// Asserts that `model` fails, by a panic, with `bug` in place.
///
/// # Panics
/// If it passes.
pub fn assert_found(bug: Bug, model: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inject(bug, model)));
    assert!(outcome.is_err(), "the model passes with {bug:?} injected: it would not find this bug");
}

/// True where `bug` is to be made.
#[must_use]
pub fn is_injected(bug: Bug) -> bool {
    INJECTED.get() == Some(bug)
}
