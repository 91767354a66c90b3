//! What became of writes that were executed side by side, and of each on its own.

use farsight_protocol::{ErrorCode, WriteOutcome};

use crate::EngineError;

/// Appends outcomes up to the first write whose outcome is unknown: that is the error. A write that failed
/// and changed nothing is an outcome beside others, by its code; if all of them are such, the first one's
/// reason is the call's.
///
/// # Errors
/// As said.
pub fn gather<E: Into<EngineError>>(
    done: impl ExactSizeIterator<Item = Result<WriteOutcome, E>>,
    code_of: impl Fn(&EngineError) -> ErrorCode,
    outcomes: &mut Vec<WriteOutcome>,
) -> Result<(), EngineError> {
    let mut refused: Option<EngineError> = None;
    let (calls, before) = (done.len(), outcomes.len());
    let mut refusals = 0;
    for outcome in done {
        let failed = match outcome.map_err(E::into) {
            Ok(outcome) => outcome,
            Err(error) if error.is_indeterminate() => return Err(error),
            Err(error) => {
                let code = code_of(&error);
                refusals += 1;
                refused.get_or_insert(error);
                WriteOutcome::Failed(code)
            }
        };
        outcomes.push(failed);
    }
    match refused {
        Some(error) if refusals == calls => {
            outcomes.truncate(before);
            Err(error)
        }
        _ => Ok(()),
    }
}

/// How many of these keys, from the first on, are different; `room` is for them and their numbers.
pub fn distinct(keys: impl Iterator<Item = u64>, room: &mut Vec<(u64, usize)>) -> usize {
    room.clear();
    room.extend(keys.zip(0..));
    room.sort_unstable();
    // Of equal keys each but the first ends what comes before it.
    let repeated = room.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
    repeated.min().unwrap_or(room.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_up_to_the_first_that_comes_again() {
        let mut room = Vec::new();
        let cases: [(&[u64], usize); 5] =
            [(&[], 0), (&[7], 1), (&[7, 7, 7], 1), (&[3, 1, 2], 3), (&[5, 9, 1, 9, 5, 1], 3)];
        for (keys, count) in cases {
            assert_eq!(distinct(keys.iter().copied(), &mut room), count, "{keys:?}");
        }
    }
}
