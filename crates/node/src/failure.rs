//! A process's one-way door into refusing everything: a bug that some thread met.
//!
//! Invariant: the first failure stays. It was written to stderr before any call is refused because of it.

use std::any::Any;
use std::sync::OnceLock;

use farsight_base::report::report;
use farsight_protocol::{ErrorCode, ServerError};

/// The first failure, if there was one.
#[derive(Debug, Default)]
pub struct Failure {
    text: OnceLock<String>,
}

impl Failure {
    /// Records what `who` met. Only the first call has an effect.
    pub fn record(&self, who: &str, what: &str) {
        self.text.get_or_init(|| {
            let text = format!("this process stopped answering calls: {who} failed: {what}. Restart it");
            report(&text);
            text
        });
    }

    /// Records a panic that was caught in `who`.
    pub fn record_panic(&self, who: &str, payload: &(dyn Any + Send)) {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        self.record(who, &format!("a bug, panic {:?}", text.unwrap_or("without words")));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays_and_is_told() {
        let failure = Failure::default();
        assert!(failure.check().is_ok());
        let payload = std::panic::catch_unwind(|| panic!("no block {}", 7)).unwrap_err();
        failure.record_panic("worker 0", payload.as_ref());
        failure.record("training", "something else");
        let error = failure.check().unwrap_err();
        assert_eq!(
            error.text,
            "this process stopped answering calls: worker 0 failed: a bug, panic \"no block 7\". Restart it"
        );
    }
}
