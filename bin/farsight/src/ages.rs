//! How long ago pieces of snapshots were written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::duration;

/// The ages of a table's oldest piece and of the one in the middle, by when they were written.
pub(crate) fn text(oldest_ms: Option<u64>, median_ms: Option<u64>) -> String {
    match (oldest_ms, median_ms) {
        (Some(oldest), Some(median)) => {
            format!("the oldest written {} ago, the middle one {} ago", age(oldest), age(median))
        }
        _ => "-".to_owned(),
    }
}

/// The time since then, in whole seconds.
fn age(written_ms: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_millis(written_ms));
    let seconds = since.unwrap_or_default().as_secs();
    if seconds == 0 { "less than 1s".to_owned() } else { duration::text(Duration::from_secs(seconds)) }
}
