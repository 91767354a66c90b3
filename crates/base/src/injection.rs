//! How a test injects a deliberate bug, to see that a model or a simulation would find it.
//!
//! Invariant: without [`inject`] nothing here changes anything. None of this exists but in a build for a
//! model checker, or with `--cfg injected` for the simulator. A bug is injected for the thread on which the
//! checker runs all of a model's threads, or the simulator everything.
//!
//! Each crate declares the bugs that break it in its own module `injected`, by [`bugs`](crate::bugs). This
//! crate knows how to switch a bug on, and no bug of another crate. A test that selects bugs by name gathers
//! the crates' lists.

use std::cell::Cell;
use std::fmt;

/// Something that is wrong on purpose. It is itself and no other: two bugs of one name are two.
pub struct Bug {
    name: &'static str,
}

impl Bug {
    /// A bug that tests select by this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// By which tests select it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// True where the bug is to be made.
    #[must_use]
    pub fn is_injected(&'static self) -> bool {
        INJECTED.get().is_some_and(|injected| std::ptr::eq(injected, self))
    }
}

impl fmt::Debug for Bug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Declares the bugs of a crate, and `ALL`, the list of them.
#[macro_export]
macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal;)+) => {
        $(
            $(#[doc = $doc])+
            pub static $bug: $crate::injection::Bug = $crate::injection::Bug::new($name);
        )+

        /// Each bug of this crate.
        pub static ALL: &[&$crate::injection::Bug] = &[$(&$bug),+];
    };
}

thread_local! {
    static INJECTED: Cell<Option<&'static Bug>> = const { Cell::new(None) };
}

/// Runs `model` with `bug` in place.
pub fn inject<R>(bug: &'static Bug, model: impl FnOnce() -> R) -> R {
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

/// Runs of a model before a bug in it counts as not found. Loom's run tries every schedule, and a test's run
/// is what it is. Shuttle draws schedules at random: a rare one is missing in some runs.
const RUNS_MAX: usize = if cfg!(shuttle) { 50 } else { 1 };

/// Asserts that `model` fails, by a panic, with `bug` in place.
///
/// # Panics
/// If it passes in each of [`RUNS_MAX`] runs.
pub fn assert_found(bug: &'static Bug, model: impl Fn()) {
    let is_found = (0..RUNS_MAX).any(|_| {
        let run = std::panic::AssertUnwindSafe(|| inject(bug, &model));
        std::panic::catch_unwind(run).is_err()
    });
    assert!(is_found, "the model passes with {bug:?} injected: it would not find this bug");
}
