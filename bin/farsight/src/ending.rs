//! The signals that ask this program to end.
//!
//! Invariant: a hangup that was ignored when the program began stays ignored, so `nohup farsight serve &`
//! outlives its terminal. Otherwise it ends a command as SIGTERM does: with everything tidied up.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals to hear.
pub(crate) fn signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hangup = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether a process of this `/proc/PID/status` ignores the signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP) && !is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(is_ignored(status, 13));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tnone\n", SIGHUP));
    }
}
