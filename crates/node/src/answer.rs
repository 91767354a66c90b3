//! One reply a request, whatever happens.

use std::panic::{AssertUnwindSafe, catch_unwind};

use farsight_protocol::{ErrorCode, ReplyWriter, ServerError};

use crate::Failure;

/// Bytes of a refusal's text at most: a peer's bytes quoted in it may be many.
const REFUSAL_BYTES_MAX: usize = 512;

/// Leaves one well-formed reply of at most `limit_bytes` in `reply`: what `execute` wrote there, or a
/// refusal that says what, expected and got. Returns the operations that `execute` counted. A panic in it is
/// recorded as `who`'s `failure`, and answered by [`ErrorCode::Bug`]: nobody knows how far it came. Later
/// calls are refused, and execute nothing.
pub fn answer(
    failure: &Failure,
    who: &str,
    limit_bytes: usize,
    reply: &mut Vec<u8>,
    execute: impl FnOnce(&mut Vec<u8>) -> Result<u64, ServerError>,
) -> u64 {
    // Sound to go on after a panic: latches and locks are released as it unwinds, and buffers are written
    // before they are read. The failure that is recorded keeps every later call away from everything else.
    let executed = catch_unwind(AssertUnwindSafe(|| {
        failure.check()?;
        execute(reply)
    }));
    let executed = executed.unwrap_or_else(|payload| {
        failure.record_panic(who, payload.as_ref());
        Err(failure.unknown_outcome())
    });
    let executed = executed.and_then(|operations| check_length(reply, limit_bytes).map(|()| operations));
    match executed {
        Ok(operations) => operations,
        Err(mut error) => {
            let end = (0..=REFUSAL_BYTES_MAX).rev().find(|end| error.text.is_char_boundary(*end));
            error.text.truncate(end.unwrap_or(0));
            ReplyWriter::new(reply).refuse(&error);
            0
        }
    }
}

fn check_length(reply: &[u8], limit_bytes: usize) -> Result<(), ServerError> {
    if reply.len() <= limit_bytes {
        return Ok(());
    }
    let text = format!("the answer has {} B, a message carries {limit_bytes} B: ask for less", reply.len());
    Err(ServerError::new(ErrorCode::BadRequest, text))
}

#[cfg(test)]
mod tests {
    use farsight_protocol::Reply;

    use super::*;

    fn refusal(reply: &[u8]) -> ServerError {
        Reply::decode(reply).expect("a reply").expect_err("a refusal")
    }

    #[test]
    fn panics_and_long_answers_are_refusals() {
        let failure = Failure::default();
        let mut reply = Vec::new();
        let long = answer(&failure, "worker 0", 32, &mut reply, |reply| {
            ReplyWriter::new(reply).push_words([1, 2, 3]);
            Ok(3)
        });
        assert_eq!((long, refusal(&reply).code), (0, ErrorCode::BadRequest));
        answer(&failure, "worker 0", 64, &mut reply, |_| panic!("no leaf {}", 3));
        assert_eq!(refusal(&reply).code, ErrorCode::Bug, "it may have been executed");
        assert!(refusal(&reply).text.contains("panic \"no leaf 3\""), "{}", refusal(&reply));
        let later = answer(&failure, "worker 1", 64, &mut reply, |_| Ok(1));
        assert_eq!((later, refusal(&reply).code), (0, ErrorCode::OutOfResources));
    }

    #[test]
    fn a_refusal_is_cut_between_two_characters() {
        let mut reply = Vec::new();
        answer(&Failure::default(), "worker 0", 1 << 16, &mut reply, |_| {
            Err(ServerError::new(ErrorCode::BadName, "ä".repeat(REFUSAL_BYTES_MAX)))
        });
        assert_eq!(refusal(&reply).text, "ä".repeat(REFUSAL_BYTES_MAX / 2));
    }
}
