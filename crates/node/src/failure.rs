//! A process's one-way door into refusing everything: a bug that some thread met.
//!
//! Invariant: the first failure stays. It was written to stderr before any call is refused because of it. The
//! call in which it was met is not refused: what became of that one is unknown.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

use farsight_base::report::report;
use farsight_protocol::{ErrorCode, ServerError};

/// What is called when a failure is recorded.
type Hook = Box<dyn FnOnce() + Send>;

/// The first failure, if there was one.
#[derive(Default)]
pub struct Failure {
    text: OnceLock<String>,
    /// Those who wait to be told.
    hooks: Mutex<Vec<Hook>>,
}

impl Failure {
    /// Records what `who` met. Only the first call has an effect.
    pub fn record(&self, who: &str, what: &str) {
        self.text.get_or_init(|| {
            let text = format!("this process stopped answering calls: {who} failed: {what}. Restart it");
            report(&text);
            text
        });
        let hooks = std::mem::take(&mut *self.hooks.lock().unwrap_or_else(PoisonError::into_inner));
        hooks.into_iter().for_each(call);
    }

    /// Records a panic that was caught in `who`.
    pub fn record_panic(&self, who: &str, payload: &(dyn Any + Send)) {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        self.record(who, &format!("a bug, panic {:?}", text.unwrap_or("without words")));
    }

    /// Calls `hook` once something has failed, in the thread that failed; at once if something has. It must
    /// not block: calls wait behind it.
    pub fn on_record(&self, hook: impl FnOnce() + Send + 'static) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure that is not seen here takes the lock, and with it the hook, afterwards.
        if self.text.get().is_none() {
            return hooks.push(Box::new(hook));
        }
        drop(hooks);
        call(Box::new(hook));
    }

    /// The failure's words.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.get().map(String::as_str)
    }

    /// Refuses if something failed.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`] with the failure's words.
    pub fn check(&self) -> Result<(), ServerError> {
        self.text().map_or(Ok(()), |text| Err(ServerError::new(ErrorCode::OutOfResources, text)))
    }

    /// The answer to the call in which a panic was recorded.
    pub(crate) fn unknown_outcome(&self) -> ServerError {
        let text = self.text().unwrap_or("a bug");
        ServerError::new(ErrorCode::Bug, format!("this call may have been executed or not: {text}"))
    }
}

fn call(hook: Hook) {
    // The thread that failed has answers to give, whatever becomes of who is told.
    let _ = catch_unwind(AssertUnwindSafe(hook));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_first_failure_stays_and_is_told() {
        let failure = Failure::default();
        assert!(failure.check().is_ok());
        let payload = catch_unwind(|| panic!("no block {}", 7)).unwrap_err();
        failure.record_panic("worker 0", payload.as_ref());
        failure.record("training", "something else");
        let error = failure.check().unwrap_err();
        assert_eq!(
            error.text,
            "this process stopped answering calls: worker 0 failed: a bug, panic \"no block 7\". Restart it"
        );
    }

    #[test]
    fn whoever_waits_is_told_once_and_who_comes_late_at_once() {
        let failure = Failure::default();
        let (told, heard) = channel();
        let hook = |number: u32| {
            let told = told.clone();
            move || told.send(number).unwrap()
        };
        failure.on_record(hook(1));
        failure.on_record(|| panic!("a hook with a bug"));
        failure.on_record(hook(2));
        assert!(heard.try_recv().is_err());
        failure.record("worker 0", "a bug");
        failure.record("worker 1", "a bug");
        failure.on_record(hook(3));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
