//! Bugs that a model plants, to see that it would find them.
//!
//! Invariant: without [`plant`] nothing here changes anything; none of this exists outside a model checker's
//! build. A bug is planted for the thread on which the checker runs all of a model's threads.

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
    /// A split writes left, which names right, before right is filled.
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
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Runs `model` with `bug` in place.
pub fn plant<R>(bug: Bug, model: impl FnOnce() -> R) -> R {
    /// Takes the bug out again, also after a model that failed.
    struct Planted;
    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(Some(bug));
    let _planted = Planted;
    model()
}

/// Asserts that `model` fails, by a panic, with `bug` in place.
///
/// # Panics
/// If it passes.
pub fn assert_found(bug: Bug, model: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| plant(bug, model)));
    assert!(outcome.is_err(), "the model passes with {bug:?} planted: it would not find this bug");
}

/// True where `bug` is to be made.
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
