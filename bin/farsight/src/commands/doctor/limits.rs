//! Limits of this process.

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::size;

/// Descriptors that a server with some hundred sessions needs: a few for each.
const OPEN_FILES_WANTED: u64 = 1024;

/// Shared memory locks nothing; network cards lock all that they reach.
pub(super) fn locked_memory() -> Finding {
    let text = match getrlimit(Resource::Memlock).current {
        None => "no limit".to_owned(),
        Some(bytes) => format!("{} (enough: shared memory locks none)", size::text(bytes)),
    };
    Finding::ok("memlock", text)
}

pub(super) fn open_files() -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES_WANTED => Finding::warn(
            "open files",
            format!("{limit}: each session takes a few, on both sides"),
            format!("ulimit -n {OPEN_FILES_WANTED}"),
        ),
        Some(limit) => Finding::ok("open files", limit.to_string()),
        None => Finding::ok("open files", "no limit"),
    }
}
